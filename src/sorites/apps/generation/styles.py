"""Generate Syn-IS: labels in many styles, with the same number of images for each level of distance.

The paper names 51 styles of Stable Diffusion XL (IS-OOD, appendix D) and prints one template; our templates
are our own wording. A file with name, prompt and negative_prompt (JSON or a table) can replace them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.apps.generation.files import (
    CELLS,
    PARTS,
    check_format,
    delete_damaged,
    intact,
    known_digests,
    write_table,
)
from sorites.apps.generation.provenance import encode_image
from sorites.apps.generation.safety import Checker
from sorites.core.errors import SoritesError
from sorites.core.labels import open_labels
from sorites.core.messages import option
from sorites.core.progress import Bar, Tick
from sorites.core.rng import digest
from sorites.core.samples import to_uint8
from sorites.core.shard_index import PARQUET
from sorites.core.table import parquet
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import BATCH, Request, SamplerOptions, sample
from sorites.evaluation.facts import decomposition as decompositions
from sorites.evaluation.facts.rulers import HALVES, LEVEL_COLUMNS, Ruler, limited, ruler
from sorites.evaluation.images import LeftOut, readable
from sorites.io.digests import digest_of_file, read_sealed, read_shard, shards_in, write_sealed, write_shard
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.listed import FILES, RESTORE, write_listed
from sorites.io.readers import json_file, lines
from sorites.io.tables import csv
from sorites.measures.neighbours import level_of, uniform
from sorites.sources.written import STYLED
from sorites.suites.suite import Distance

# Placeholders for the label in a template.
PLACEHOLDERS = ("{label}", "{prompt}", "{object}", "{}")
EXPECTED = (
    "styles as JSON [{name, prompt, negative_prompt}, ...] or as a table with these columns; prompt has"
    " {prompt} for the label"
)


@dataclass(frozen=True)
class Style:
    """A style: its name, prompt template, and negative prompt."""

    name: str
    prompt: str
    negative: str = ""

    def prompt_for(self, label: str) -> str:
        """Return the prompt of a label in this style."""
        placeholder = next(placeholder for placeholder in PLACEHOLDERS if placeholder in self.prompt)
        return self.prompt.replace(placeholder, label)


@functools.cache
def published() -> tuple[Style, ...]:
    """Return the 51 styles of the paper with our wording."""
    rows = (
        files("sorites.apps.generation").joinpath("styles.tsv").read_text(encoding="utf-8").splitlines()[1:]
    )
    return tuple(Style(*row.split("\t")) for row in rows)


def styles(file: str | Path | None = None) -> tuple[Style, ...]:
    """Return the styles in a file, or the built-in ones."""
    if file is None:
        return published()
    path = Path(file)
    rows = json_file(path, EXPECTED) if path.suffix == ".json" else _table(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SoritesError(f"{path}: expected {EXPECTED}")
    parsed = tuple(_style(row, path) for row in rows)
    if not parsed or len({style.name for style in parsed}) < len(parsed):
        raise SoritesError(f"{path}: expected one or more styles with different names, got {len(parsed)}")
    return parsed


def _style(row: Mapping[str, object], path: Path) -> Style:
    name, prompt, negative = (str(row.get(key) or "") for key in ("name", "prompt", "negative_prompt"))
    if not name or sum(prompt.count(placeholder) for placeholder in PLACEHOLDERS) != 1:
        raise SoritesError(
            f"{path}: the prompt of the style {name[:40]!r} must have exactly one placeholder "
            f"for the label. Expected {EXPECTED}"
        )
    return Style(name, prompt, negative)


def _table(path: Path) -> list[dict[str, object]]:
    frame = csv(path, EXPECTED, separator="\t" if path.suffix == ".tsv" else ",")
    return list(frame.iter_rows(named=True))


def labels_of(file: Path) -> list[str]:
    """Read unique labels from a file, one per line."""
    return list(dict.fromkeys(filter(None, (line.strip() for line in lines(file, "labels, one per line")))))


def blocked_words(file: Path | None = None) -> tuple[str, ...]:
    """Return the words that no prompt may contain: a built-in list, and those of a file, one per line."""
    builtin = (
        files("sorites.apps.generation").joinpath("blocked.txt").read_text(encoding="utf-8").splitlines()
    )
    more = (
        [] if file is None else [line.strip().lower() for line in lines(file, "blocked words, one per line")]
    )
    return tuple(dict.fromkeys(filter(None, [*builtin, *more])))


@dataclass(frozen=True)
class Prompts:
    """Labels x styles without blocked ones.

    Prompt ``i`` is label ``pairs[i, 0]`` in style ``pairs[i, 1]``.
    """

    labels: tuple[str, ...]
    styles: tuple[Style, ...]
    pairs: NDArray[np.int64]
    blocked: int

    def __len__(self) -> int:
        return len(self.pairs)

    def text(self, index: int) -> str:
        """Return a prompt."""
        label, style = (int(number) for number in self.pairs[index])
        return self.styles[style].prompt_for(self.labels[label])


def pair_prompts(
    labels: Sequence[str], of: Sequence[Style], blocked: Sequence[str], most: int | None = None, seed: int = 0
) -> Prompts:
    """Pair labels with styles, without labels and templates that contain a blocked word.

    Args:
        labels: The labels.
        of: The styles.
        blocked: Blocked words.
        most: Keep only this many random pairs.
        seed: Seed of the selection.
    """
    if not labels:
        raise SoritesError("need one or more labels")
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, blocked))})\b", re.IGNORECASE) if blocked else None
    allowed_labels = [i for i, label in enumerate(labels) if not (pattern and pattern.search(label))]
    allowed_styles = [j for j, style in enumerate(of) if not (pattern and pattern.search(style.prompt))]
    if not allowed_labels or not allowed_styles:
        raise SoritesError("all prompts contain blocked words")
    pairs = (
        np.stack(np.meshgrid(allowed_labels, allowed_styles, indexing="ij"), -1)
        .reshape(-1, 2)
        .astype(np.int64)
    )
    dropped = len(labels) * len(of) - len(pairs)
    if most is not None and most < len(pairs):
        pairs = pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:most])]
    return Prompts(tuple(labels), tuple(of), pairs, dropped)


# Cells: prompts by the semantic and covariate distance of their texts from in-distribution images.


# Prompts measured at a time; finished blocks are stored.
PROMPTS_PER_BLOCK = 8192
FILE = "prompts.parquet"
MEASURE_AGAIN = "Delete it and repeat the command, which measures the prompts again."


def measured(prompts: Prompts, how: Distance, out: Path, bar: Bar | None = None) -> pl.DataFrame:
    """Measure distances and levels of all prompts, and write them to ``prompts.parquet``.

    Stored blocks are reused.
    """
    key = _key(prompts, how)
    if (stored := intact(out / RECORD, FILE)) is not None:
        frame = pl.read_parquet(stored)
        if frame.height == len(prompts):
            return frame
    rulers: list[Ruler] = []
    tick = bar("prompts", len(prompts)) if bar else (lambda _: None)
    parts = []
    for start in range(0, len(prompts), PROMPTS_PER_BLOCK):
        stem = f"{key}_{start:08d}"
        shard = shards_in(out / PARTS, PARQUET).get(stem)
        if shard is None:
            rulers = rulers or [ruler(how, None, bar)]
            shard = write_shard(out / PARTS, stem, PARQUET, parquet(_block(prompts, start, rulers[0])))
        parts.append(pl.read_parquet(read_shard(shard, MEASURE_AGAIN)))
        tick(parts[-1].height)
    frame = _with_levels(pl.concat(parts), how)
    write_listed(out / RECORD, FILE, parquet(frame))
    return frame


def _key(prompts: Prompts, how: Distance) -> str:
    templates = [(style.name, style.prompt) for style in prompts.styles]
    pairs = (
        prompts.pairs.tobytes().hex()
        if len(prompts) < PROMPTS_PER_BLOCK
        else digest(prompts.pairs.tobytes().hex()).hex()
    )
    return digest(prompts.labels, templates, pairs, how.model_dump_json(), size=8).hex()


def _block(prompts: Prompts, start: int, ruler_: Ruler) -> pl.DataFrame:
    indices = range(start, min(start + PROMPTS_PER_BLOCK, len(prompts)))
    texts = [prompts.text(index) for index in indices]
    distances = ruler_.distances(np.asarray(ruler_.encoder.texts(texts)))
    label, style = prompts.pairs[start : start + PROMPTS_PER_BLOCK].T
    return pl.DataFrame(
        {
            "label": label,
            "style": style,
            "text": texts,
            **{half: distances[half].astype(np.float64) for half in HALVES},
        }
    )


def _with_levels(frame: pl.DataFrame, how: Distance) -> pl.DataFrame:
    edges = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    for half in HALVES:
        values = frame[half].to_numpy()
        frame = frame.with_columns(
            level_of(values, edges[half] or uniform(values, how.levels)).alias(LEVEL_COLUMNS[half])
        )
    return frame


def by_cell(frame: pl.DataFrame, levels: int) -> dict[tuple[int, int], pl.DataFrame]:
    """Return the prompts of each (covariate, semantic) cell, counted from 0."""
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


# Drawing, in the layout of IS-OOD.


RECORD = STYLED.record
# How often an image is drawn, with new noise, if the checker rejects it.
MAX_DRAWS = 3


@dataclass(frozen=True)
class Order:
    """Settings of the output: number of images per cell, file format, and batch size."""

    per_cell: int = 5000
    kind: str = "jpg"
    batch: int = BATCH
    in_distribution: int = 500
    """Number of in-distribution images to write beside the drawn ones."""

    def __post_init__(self) -> None:
        if self.per_cell < 1:
            raise SoritesError(f"{option('per_cell', None)} must be at least 1, got {self.per_cell}")
        if self.in_distribution < 0:
            raise SoritesError(f"{option('id_images', None)} must be at least 0, got {self.in_distribution}")
        check_format(self.kind)


@dataclass(frozen=True)
class Job:
    """An image to draw: its index in the cell, its prompt, and the number of the seed for that prompt."""

    place: int
    label: int
    style: int
    text: str
    seed: int

    @property
    def name(self) -> str:
        """Return the stem of the file, as published: index, label and style."""
        return f"{self.place}_{self.label}_{self.style}"


@dataclass(frozen=True)
class StyleCounts:
    """Counts of generated images.

    Attributes:
        cells: Cells with at least one prompt.
        empty_cells: Cells without a prompt.
        images: Images in the folder.
        flagged: Images that the checker rejected.
        given_up: Rejected images without a replacement.
    """

    cells: int
    empty_cells: int
    images: int
    flagged: int
    given_up: int


def require_source(how: Distance) -> None:
    """Open the in-distribution images, the encoder and its decomposition, so that a wrong name fails before
    anything is made.

    Raises:
        SoritesError: One of them does not exist or fits no other, or there are too few images.
    """
    encoder = core.encoder(how.encoder)
    if how.decomposition:
        decompositions.load(how.decomposition, encoder)
    count = len(core.source(how.against, open_labels(encoder.labels)).samples)
    if not count:
        raise SoritesError(f"{option('against', how.against)} has no images")
    if (used := min(count, how.limit or count)) < how.k:
        raise SoritesError(f"{option('k', how.k)} exceeds the {used} in-distribution images")


def draw_styles(
    pipe: Pipe,
    prompts: Prompts,
    how: Distance,
    out: Path,
    drawing: SamplerOptions | None = None,
    order: Order | None = None,
    safe: Checker | None = None,
    bar: Bar | None = None,
) -> StyleCounts:
    """Measure the prompts, draw every cell, and return counts. Existing images are kept.

    Args:
        pipe: The diffusion pipeline.
        prompts: Labels x styles.
        how: How distances are measured.
        out: Output folder.
        drawing: Sampler settings.
        order: Settings of the output.
        safe: Safety checker.
        bar: Creates a progress bar.
    """
    settings, style = order or Order(), drawing or SamplerOptions()
    require_source(how)
    with locked(out, "image", ".sorites.lock"):
        sweep_temporaries(out)
        claim(out, _facts(pipe, prompts, how, style, settings))
        known = delete_damaged(out, known_digests(out, STYLED))
        cells = by_cell(measured(prompts, how, out, bar), how.levels)
        tick = bar("images", settings.per_cell * len(cells)) if bar else (lambda _: None)
        cell_counts = [
            _draw_cell(pipe, prompts, cell, rows, out, style, settings, safe, tick)
            for cell, rows in cells.items()
        ]
        _in_distribution(how, out, settings)
        write_table(out, STYLED, _images(out, known))
    counts = {
        name: sum(cell_count[name] for cell_count in cell_counts)
        for name in ("images", "flagged", "given_up")
    }
    return StyleCounts(len(cells), how.levels**2 - len(cells), **counts)


def _images(out: Path, known: Mapping[str, str]) -> pl.DataFrame:
    """Return the digests of all images in the lists of a folder; those that are known are not read."""
    listed = sorted((out / "imglist").glob("*/*.txt"))
    paths = [
        f"{file.parent.name}/{line}" for file in listed for line in lines(file, "a list of images") if line
    ]
    digests = [known.get(path) or digest_of_file(out / path) for path in paths]
    return pl.DataFrame({"path": paths, STYLED.column: digests})


def _facts(
    pipe: Pipe, prompts: Prompts, how: Distance, drawing: SamplerOptions, order: Order
) -> dict[str, Any]:
    styles_facts = [[style.name, style.prompt, style.negative] for style in prompts.styles]
    prompt_facts = {
        "labels": digest(prompts.labels, size=8).hex(),
        "prompts": len(prompts),
        "styles": styles_facts,
    }
    sampler_facts = {key: value for key, value in drawing.facts().items() if key != "negative"}
    return {
        "pipeline_version": pipe.version,
        **sampler_facts,
        **prompt_facts,
        "distance": how.model_dump(mode="json"),
        "kind": order.kind,
        **({"tiling": True} if pipe.saving.tiling else {}),
    }


def claim(out: Path, facts: dict[str, Any]) -> None:
    """Refuse a folder whose images were made with other settings; a record without images is replaced."""
    if (out / RECORD).is_file():
        before = read_sealed(out / RECORD, RESTORE)
        changed = [key for key in {**before, **facts} if key != FILES and before.get(key) != facts.get(key)]
        if changed and ((out / CELLS).exists() or any(out.glob("SynIS/*/*"))):
            difference = _difference(changed[0], before.get(changed[0]), facts.get(changed[0]))
            raise SoritesError(
                f"{out} has images made with other {difference}; use another {option('out', 'DIR')}"
            )
        if not changed:
            return
    write_sealed(facts, out / RECORD)


def _difference(key: str, before: Any, now: Any) -> str:
    """Return which setting differs, with both values if they are short."""
    if isinstance(before, dict) and isinstance(now, dict):
        inner = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        return f"{key}, " + _difference(inner, before.get(inner), now.get(inner))
    return key if key == "styles" else f"{key} {str(before)[:60]}, not {str(now)[:60]}"


def jobs(cell: tuple[int, int], rows: pl.DataFrame, count: int) -> list[Job]:
    """Return the images of a cell: its prompts in random order, repeated with new noise if needed."""
    order = np.random.default_rng(list(cell)).permutation(rows.height)
    chosen = [(index, int(order[index % rows.height])) for index in range(count)]
    return [
        Job(index, int(rows["label"][i]), int(rows["style"][i]), str(rows["text"][i]), index // rows.height)
        for index, i in chosen
    ]


def _draw_cell(
    pipe: Pipe,
    prompts: Prompts,
    cell: tuple[int, int],
    rows: pl.DataFrame,
    out: Path,
    drawing: SamplerOptions,
    order: Order,
    safe: Checker | None,
    tick: Tick,
) -> dict[str, int]:
    """Draw the missing images of a cell, then write their list."""
    name, counts = f"cov_{cell[0]}_sem_{cell[1]}", {"flagged": 0, "given_up": 0}
    folder, record = out / "SynIS" / name, out / CELLS / f"cov_{cell[0]}_sem_{cell[1]}.json"
    if record.is_file():
        counts = {key: int(read_sealed(record, RESTORE)[key]) for key in counts}
    cell_jobs = jobs(cell, rows, order.per_cell)
    missing = [job for job in cell_jobs if not (folder / f"{job.name}.{order.kind}").is_file()]
    tick(len(cell_jobs) - len(missing))
    by_style = sorted(missing, key=lambda job: (job.style, job.place))
    for style in dict.fromkeys(job.style for job in by_style):
        style_jobs = [job for job in by_style if job.style == style]
        style_drawing = replace(drawing, negative=prompts.styles[style].negative)
        for batch in (style_jobs[i : i + order.batch] for i in range(0, len(style_jobs), order.batch)):
            for key, value in _draw_jobs(pipe, batch, folder, style_drawing, order, safe).items():
                counts[key] += value
            write_sealed(counts, record)
            tick(len(batch))
    existing = [
        f"{job.name}.{order.kind}" for job in cell_jobs if (folder / f"{job.name}.{order.kind}").is_file()
    ]
    paths = "".join(f"{name}/{file}\n" for file in existing)
    write_listed(out / RECORD, f"imglist/SynIS/{name}.txt", paths.encode())
    return {"images": len(existing), **counts}


def _draw_jobs(
    pipe: Pipe,
    batch: Sequence[Job],
    folder: Path,
    drawing: SamplerOptions,
    order: Order,
    safe: Checker | None,
) -> dict[str, int]:
    """Draw images of one style; images that the checker rejects are drawn again with new noise."""
    remaining, flagged = list(batch), 0
    for attempt in range(MAX_DRAWS):
        requests = [Request(job.text, job.seed + attempt * 10**6) for job in remaining]
        images = [to_uint8(row[0]) for row in sample(pipe, requests, drawing, order.batch)]
        rejected = safe(images) if safe else [False] * len(images)
        for job, image, is_rejected in zip(remaining, images, rejected, strict=True):
            if not is_rejected:
                write_bytes(encode_image(image, order.kind), folder / f"{job.name}.{order.kind}")
        remaining, flagged = (
            [job for job, is_rejected in zip(remaining, rejected, strict=True) if is_rejected],
            flagged + sum(rejected),
        )
        if not remaining:
            break
    return {"flagged": flagged, "given_up": len(remaining)}


def _in_distribution(how: Distance, out: Path, order: Order) -> None:
    """Write some in-distribution images with their list, in the layout that the source is_ood reads."""
    listed = "imglist/imagenet1k/test_imagenet.txt"
    before = intact(out / RECORD, listed)
    if before is not None and all((out / "imagenet1k" / name).is_file() for name in before.decode().split()):
        return
    source = core.source(how.against, open_labels(core.encoder(how.encoder).labels))
    names = []
    for index, (_, image) in enumerate(
        readable(limited(source, order.in_distribution), LeftOut("in-distribution images"))
    ):
        names.append(f"val/in_distribution_{index:05d}.png")
        write_bytes(encode_image(image, "png"), out / "imagenet1k" / names[-1])
    write_listed(out / RECORD, listed, "".join(f"{name}\n" for name in names).encode())
