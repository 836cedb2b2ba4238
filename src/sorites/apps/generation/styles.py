"""Prompts of Syn-IS: every label in every style, checked against a list of words that are not drawn.

The paper names 51 styles of Stable Diffusion XL (IS-OOD, appendix D) and prints one template; the
wording of ours is our own. A file of the usual form (name, prompt, negative_prompt, as JSON or as a
table) takes its place.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.apps.generation.images import packed
from sorites.apps.generation.safety import Checker
from sorites.core.errors import SoritesError
from sorites.core.labels import open_labels
from sorites.core.progress import Bar, Tick
from sorites.core.rng import digest
from sorites.core.samples import to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import BATCH, Drawing, Request, sample
from sorites.evaluation.facts.rulers import COLUMNS, HALVES, Ruler, limited, ruler
from sorites.evaluation.images import LeftOut, readable
from sorites.io.files import locked, read_json, sweep_temporaries, write_bytes
from sorites.io.readers import json_file, lines
from sorites.io.tables import csv, parquet
from sorites.measures.neighbours import level_of, uniform
from sorites.suites.suite import Distance

# The placeholders for a label in a template; files of others use one of these.
PLACES = ("{label}", "{prompt}", "{object}", "{}")
WANTED = (
    "styles as JSON [{name, prompt, negative_prompt}, ...] or as a table with these columns; prompt has"
    " {prompt} for the label"
)


@dataclass(frozen=True)
class Style:
    """A style: its name, its template, and what images in it are steered away from."""

    name: str
    prompt: str
    negative: str = ""

    def told(self, label: str) -> str:
        """Return the prompt of a label in this style."""
        place = next(place for place in PLACES if place in self.prompt)
        return self.prompt.replace(place, label)


@functools.cache
def published() -> tuple[Style, ...]:
    """Return the 51 named styles with our wording."""
    rows = (
        files("sorites.apps.generation").joinpath("styles.tsv").read_text(encoding="utf-8").splitlines()[1:]
    )
    return tuple(Style(*row.split("\t")) for row in rows)


def styles(file: str | Path | None = None) -> tuple[Style, ...]:
    """Return the styles of a file, or the named ones."""
    if file is None:
        return published()
    path = Path(file)
    rows = json_file(path, WANTED) if path.suffix == ".json" else _table(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SoritesError(f"{path}: wanted {WANTED}")
    found = []
    for row in rows:
        name, prompt, negative = (str(row.get(key) or "") for key in ("name", "prompt", "negative_prompt"))
        if not name or sum(prompt.count(place) for place in PLACES) != 1:
            raise SoritesError(
                f"{path}: the style {name[:40]!r} has no prompt with one place for the label. Wanted {WANTED}"
            )
        found.append(Style(name, prompt, negative))
    if not found or len({style.name for style in found}) < len(found):
        raise SoritesError(f"{path}: wanted one or more styles with different names, got {len(found)}")
    return tuple(found)


def _table(path: Path) -> list[dict[str, object]]:
    frame = csv(path, WANTED, separator="\t" if path.suffix == ".tsv" else ",")
    return list(frame.iter_rows(named=True))


def labels_of(file: Path) -> list[str]:
    """Return the labels of a file, one per line, each once."""
    return list(
        dict.fromkeys(filter(None, (line.strip() for line in lines(file, "--labels, one label per line"))))
    )


def blocked_words(file: Path | None = None) -> tuple[str, ...]:
    """Return the words that no prompt may hold: a short list of ours, and those of a file, one per line."""
    ours = files("sorites.apps.generation").joinpath("blocked.txt").read_text(encoding="utf-8").splitlines()
    more = (
        [] if file is None else [line.strip().lower() for line in lines(file, "--block, one word per line")]
    )
    return tuple(dict.fromkeys(filter(None, [*ours, *more])))


@dataclass(frozen=True)
class Prompts:
    """Labels x styles without those that a list blocks: prompt ``i`` is label ``pairs[i, 0]`` in
    style ``pairs[i, 1]``.
    """

    labels: tuple[str, ...]
    styles: tuple[Style, ...]
    pairs: NDArray[np.int64]
    blocked: int

    def __len__(self) -> int:
        return len(self.pairs)

    def text(self, place: int) -> str:
        """Return one prompt."""
        label, style = (int(number) for number in self.pairs[place])
        return self.styles[style].told(self.labels[label])


def planned(
    labels: Sequence[str], of: Sequence[Style], blocked: Sequence[str], most: int | None = None, seed: int = 0
) -> Prompts:
    """Pair labels with styles; a label or a template with a blocked word is left out.

    ``most`` keeps some pairs, drawn evenly.
    """
    if not labels:
        raise SoritesError("wanted one or more labels")
    rule = re.compile(rf"\b({'|'.join(map(re.escape, blocked))})\b", re.IGNORECASE) if blocked else None
    clean = [i for i, label in enumerate(labels) if not (rule and rule.search(label))]
    fine = [j for j, style in enumerate(of) if not (rule and rule.search(style.prompt))]
    if not clean or not fine:
        raise SoritesError("the list of blocked words leaves no prompt")
    pairs = np.stack(np.meshgrid(clean, fine, indexing="ij"), -1).reshape(-1, 2).astype(np.int64)
    out = len(labels) * len(of) - len(pairs)
    if most is not None and most < len(pairs):
        pairs = pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:most])]
    return Prompts(tuple(labels), tuple(of), pairs, out)


# Cells of Syn-IS: prompts by the distances of their texts from in-distribution images, in meaning and in
# appearance.


# Texts that are measured at a time; what is measured is kept.
BLOCK = 8192
FILE, PARTS = "prompts.parquet", "prompts"


def measured(prompts: Prompts, how: Distance, out: Path, bar: Bar | None = None) -> pl.DataFrame:
    """Return every prompt with its distances and levels, and write them to ``prompts.parquet``;
    measured blocks are kept.
    """
    key = _key(prompts, how)
    if (out / FILE).is_file():
        frame = parquet(out / FILE, 'the prompts of "sorites generate styles"')
        if frame.height == len(prompts):
            return frame
    against: list[Ruler] = []
    tick = bar("prompts", len(prompts)) if bar else (lambda _: None)
    parts = []
    for start in range(0, len(prompts), BLOCK):
        file = out / PARTS / f"{key}_{start:08d}.parquet"
        if not file.is_file():
            against = against or [ruler(how, None, bar)]
            _write(_block(prompts, start, against[0]), file)
        parts.append(parquet(file))
        tick(parts[-1].height)
    frame = _levelled(pl.concat(parts), how)
    _write(frame, out / FILE)
    return frame


def _key(prompts: Prompts, how: Distance) -> str:
    told = [(style.name, style.prompt) for style in prompts.styles]
    pairs = (
        prompts.pairs.tobytes().hex() if len(prompts) < BLOCK else digest(prompts.pairs.tobytes().hex()).hex()
    )
    return digest(prompts.labels, told, pairs, how.model_dump_json(), size=8).hex()


def _block(prompts: Prompts, start: int, against: Ruler) -> pl.DataFrame:
    places = range(start, min(start + BLOCK, len(prompts)))
    texts = [prompts.text(place) for place in places]
    found = against.distances(np.asarray(against.encoder.texts(texts)))
    label, style = prompts.pairs[start : start + BLOCK].T
    return pl.DataFrame(
        {
            "label": label,
            "style": style,
            "text": texts,
            **{half: found[half].astype(np.float64) for half in HALVES},
        }
    )


def _levelled(frame: pl.DataFrame, how: Distance) -> pl.DataFrame:
    given = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    for half in HALVES:
        values = frame[half].to_numpy()
        frame = frame.with_columns(
            level_of(values, given[half] or uniform(values, how.levels)).alias(COLUMNS[half])
        )
    return frame


def _write(frame: pl.DataFrame, file: Path) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_bytes(buffer.getvalue(), file)


def by_cell(frame: pl.DataFrame, levels: int) -> dict[tuple[int, int], pl.DataFrame]:
    """Return the prompts of each (covariate, semantic) cell, counted from 0; those of no cell are
    left out.
    """
    if not frame.height:
        raise SoritesError("there are no prompts")
    parts = frame.drop_nulls(["sem_level", "cov_level"]).partition_by(
        ["cov_level", "sem_level"], as_dict=True
    )
    return {
        (cov - 1, sem - 1): parts[cov, sem]
        for cov in range(1, levels + 1)
        for sem in range(1, levels + 1)
        if (cov, sem) in parts
    }


# Draw Syn-IS: the same number of images for every cell of distance, laid out as IS-OOD is published.


RECORD, CELLS = "styles.json", "cells"
# The times an image is drawn with other noise when the checker refuses it.
TRIES = 3


@dataclass(frozen=True)
class Order:
    """The settings of the images: the number per cell and the kind of file."""

    per_cell: int = 5000
    kind: str = "jpg"
    batch: int = BATCH
    in_distribution: int = 500
    """In-distribution images that are written beside the drawn ones."""


@dataclass(frozen=True)
class Job:
    """One image to be drawn: its place in the cell, its prompt and which seed of that prompt."""

    place: int
    label: int
    style: int
    text: str
    seed: int

    @property
    def name(self) -> str:
        """Return the stem of its file, as published: a running number, the label's and the style's."""
        return f"{self.place}_{self.label}_{self.style}"


def draw_styles(
    pipe: Pipe, prompts: Prompts, how: Distance, out: Path, drawing: Drawing | None = None, order: Order | None = None,
    safe: Checker | None = None, bar: Bar | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Measure the prompts, draw every cell, and return the counts; what is there already is kept."""
    wanted, style = order or Order(), drawing or Drawing()
    if wanted.per_cell < 1:
        raise SoritesError(f"--per-cell: wanted a whole number from 1, got {wanted.per_cell}")
    with locked(out, "image", ".sorites.lock"):
        sweep_temporaries(out)
        _claim(out, _facts(pipe, prompts, how, style, wanted))
        cells = by_cell(measured(prompts, how, out, bar), how.levels)
        tick = bar("images", wanted.per_cell * len(cells)) if bar else (lambda _: None)
        found = [
            _cell(pipe, prompts, cell, rows, out, style, wanted, safe, tick) for cell, rows in cells.items()
        ]
        _in_distribution(how, out, wanted)
    counts = {name: sum(one[name] for one in found) for name in ("images", "flagged", "given_up")}
    return {
        "prompts": len(prompts), "blocked": prompts.blocked, "cells": len(cells), "empty_cells": how.levels**2 - len(cells),
        **counts,
    }  # fmt: skip


def _facts(pipe: Pipe, prompts: Prompts, how: Distance, drawing: Drawing, order: Order) -> dict[str, Any]:
    told = [[style.name, style.prompt, style.negative] for style in prompts.styles]
    named = {"labels": digest(prompts.labels, size=8).hex(), "prompts": len(prompts), "styles": told}
    drawn = {key: value for key, value in drawing.facts().items() if key != "negative"}
    return {
        "pipeline_version": pipe.version,
        **drawn,
        **named,
        "distance": how.model_dump(mode="json"),
        "kind": order.kind,
    }


def _claim(out: Path, facts: dict[str, Any]) -> None:
    """Refuse a folder whose images were made otherwise, naming what differs."""
    if (out / RECORD).is_file():
        before = read_json(out / RECORD)
        for key in (key for key in facts if before.get(key) != facts[key]):
            shown = f" {str(before.get(key))[:60]}, not {str(facts[key])[:60]}" if key != "styles" else ""
            raise SoritesError(f"{out} holds images made with other {key}{shown}; choose another --out DIR")
    write_bytes((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode(), out / RECORD)


def jobs(cell: tuple[int, int], rows: pl.DataFrame, count: int) -> list[Job]:
    """Return the images of a cell: its prompts in an order of chance, each once before any comes
    again with other noise.
    """
    order = np.random.default_rng(list(cell)).permutation(rows.height)
    chosen = [(place, int(order[place % rows.height])) for place in range(count)]
    return [
        Job(place, int(rows["label"][i]), int(rows["style"][i]), str(rows["text"][i]), place // rows.height)
        for place, i in chosen
    ]


def _cell(
    pipe: Pipe, prompts: Prompts, cell: tuple[int, int], rows: pl.DataFrame, out: Path, drawing: Drawing, order: Order,
    safe: Checker | None, tick: Tick,
) -> dict[str, int]:  # fmt: skip
    """Draw the images of a cell that are missing, and list them; the list comes last."""
    name, counts = f"cov_{cell[0]}_sem_{cell[1]}", {"flagged": 0, "given_up": 0}
    folder, record = out / "SynIS" / name, out / CELLS / f"cov_{cell[0]}_sem_{cell[1]}.json"
    if record.is_file():
        counts = {key: int(read_json(record)[key]) for key in counts}
    wanted = jobs(cell, rows, order.per_cell)
    missing = [job for job in wanted if not (folder / f"{job.name}.{order.kind}").is_file()]
    tick(len(wanted) - len(missing))
    by_style = sorted(missing, key=lambda job: (job.style, job.place))
    for style in dict.fromkeys(job.style for job in by_style):
        mine = [job for job in by_style if job.style == style]
        told = replace(drawing, negative=prompts.styles[style].negative)
        for some in (mine[i : i + order.batch] for i in range(0, len(mine), order.batch)):
            for key, value in _drawn(pipe, some, folder, told, order, safe).items():
                counts[key] += value
            write_bytes(json.dumps(counts).encode(), record)
            tick(len(some))
    there = [f"{job.name}.{order.kind}" for job in wanted if (folder / f"{job.name}.{order.kind}").is_file()]
    write_bytes(
        "".join(f"{name}/{file}\n" for file in there).encode(), out / "imglist" / "SynIS" / f"{name}.txt"
    )
    return {"images": len(there), **counts}


def _drawn(
    pipe: Pipe, some: Sequence[Job], folder: Path, drawing: Drawing, order: Order, safe: Checker | None
) -> dict[str, int]:
    """Draw some images of one style; one that the checker refuses is drawn again with other
    noise, a few times.
    """
    left, flagged = list(some), 0
    for attempt in range(TRIES):
        asked = [Request(job.text, job.seed + attempt * 10**6) for job in left]
        images = [to_uint8(row[0]) for row in sample(pipe, asked, drawing, order.batch)]
        bad = safe(images) if safe else [False] * len(images)
        for job, image, wrong in zip(left, images, bad, strict=True):
            if not wrong:
                write_bytes(packed(image, order.kind), folder / f"{job.name}.{order.kind}")
        left, flagged = [job for job, wrong in zip(left, bad, strict=True) if wrong], flagged + sum(bad)
        if not left:
            break
    return {"flagged": flagged, "given_up": len(left)}


def _in_distribution(how: Distance, out: Path, order: Order) -> None:
    """Write some of the in-distribution images with their list, as is_ood reads them."""
    listed = out / "imglist" / "imagenet1k" / "test_imagenet.txt"
    if listed.is_file():
        return
    source = core.source(how.against, open_labels(core.encoder(how.encoder).labels))
    names = []
    for place, (_, image) in enumerate(
        readable(limited(source, order.in_distribution), LeftOut("in-distribution images"))
    ):
        names.append(f"val/in_distribution_{place:05d}.png")
        write_bytes(packed(image, "png"), out / "imagenet1k" / names[-1])
    write_bytes("".join(f"{name}\n" for name in names).encode(), listed)
