"""Draw Syn-IS: the same number of pictures for every cell of distance, laid out as IS-OOD is published.

OUT/SynIS/cov_0_sem_3/12_40_7.jpg      picture 12 of its cell: label 40 in style 7
OUT/imglist/SynIS/cov_0_sem_3.txt      the pictures of a finished cell
OUT/imagenet1k, OUT/imglist/imagenet1k the familiar pictures that distances were measured against, so that is_ood:OUT reads all
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites import core
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.requests import Drawing, Request
from sorites.diffusion.sampler import BATCH, sample
from sorites.errors import SoritesError
from sorites.files import locked, read_json, sweep_temporaries, write_bytes
from sorites.frame import Distance
from sorites.generation.cells import by_cell, measured
from sorites.generation.pictures import packed
from sorites.generation.prompts import Prompts
from sorites.generation.safety import Checker
from sorites.labels import open_labels
from sorites.pipeline.left_out import LeftOut, readable
from sorites.pipeline.rulers import limited
from sorites.progress import Bar, Tick
from sorites.rng import digest
from sorites.types import to_picture

RECORD, CELLS = "styles.json", "cells"
TRIES = 3
"""The times a picture is drawn with other noise when the checker refuses it."""


@dataclass(frozen=True)
class Order:
    """The settings of the pictures: the number per cell and the kind of file."""

    per_cell: int = 5000
    kind: str = "jpg"
    batch: int = BATCH
    familiar: int = 500
    """Familiar pictures that are written beside the drawn ones."""


@dataclass(frozen=True)
class Job:
    """One picture to be drawn: its place in the cell, its prompt and which seed of that prompt."""

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
    with locked(out, "picture", ".sorites.lock"):
        sweep_temporaries(out)
        _claim(out, _facts(pipe, prompts, how, style, wanted))
        cells = by_cell(measured(prompts, how, out, bar), how.levels)
        tick = bar("pictures", wanted.per_cell * len(cells)) if bar else (lambda _: None)
        found = [_cell(pipe, prompts, cell, rows, out, style, wanted, safe, tick) for cell, rows in cells.items()]
        _familiar(how, out, wanted)
    counts = {name: sum(one[name] for one in found) for name in ("pictures", "flagged", "given_up")}
    return {
        "prompts": len(prompts), "blocked": prompts.blocked, "cells": len(cells), "empty_cells": how.levels**2 - len(cells),
        **counts,
    }  # fmt: skip


def _facts(pipe: Pipe, prompts: Prompts, how: Distance, drawing: Drawing, order: Order) -> dict[str, Any]:
    told = [[style.name, style.prompt, style.negative] for style in prompts.styles]
    named = {"labels": digest(prompts.labels, size=8).hex(), "prompts": len(prompts), "styles": told}
    drawn = {key: value for key, value in drawing.facts().items() if key != "negative"}
    return {"pipeline_version": pipe.version, **drawn, **named, "distance": how.model_dump(mode="json"), "kind": order.kind}


def _claim(out: Path, facts: dict[str, Any]) -> None:
    """Refuse a folder whose pictures were made otherwise, naming what differs."""
    if (out / RECORD).is_file():
        before = read_json(out / RECORD)
        for key in (key for key in facts if before.get(key) != facts[key]):
            shown = f" {str(before.get(key))[:60]}, not {str(facts[key])[:60]}" if key != "styles" else ""
            raise SoritesError(f"{out} holds pictures made with other {key}{shown}; choose another --out DIR")
    write_bytes((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode(), out / RECORD)


def jobs(cell: tuple[int, int], rows: pl.DataFrame, count: int) -> list[Job]:
    """Return the pictures of a cell: its prompts in an order of chance, each once before any comes again with other noise."""
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
    """Draw the pictures of a cell that are missing, and list them; the list comes last."""
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
    write_bytes("".join(f"{name}/{file}\n" for file in there).encode(), out / "imglist" / "SynIS" / f"{name}.txt")
    return {"pictures": len(there), **counts}


def _drawn(pipe: Pipe, some: Sequence[Job], folder: Path, drawing: Drawing, order: Order, safe: Checker | None) -> dict[str, int]:
    """Draw some pictures of one style; one that the checker refuses is drawn again with other noise, a few times."""
    left, flagged = list(some), 0
    for attempt in range(TRIES):
        asked = [Request(job.text, job.seed + attempt * 10**6) for job in left]
        images = [to_picture(row[0]) for row in sample(pipe, asked, drawing, order.batch)]
        bad = safe(images) if safe else [False] * len(images)
        for job, image, wrong in zip(left, images, bad, strict=True):
            if not wrong:
                write_bytes(packed(image, order.kind), folder / f"{job.name}.{order.kind}")
        left, flagged = [job for job, wrong in zip(left, bad, strict=True) if wrong], flagged + sum(bad)
        if not left:
            break
    return {"flagged": flagged, "given_up": len(left)}


def _familiar(how: Distance, out: Path, order: Order) -> None:
    """Write some of the familiar pictures with their list, as is_ood reads them."""
    listed = out / "imglist" / "imagenet1k" / "test_imagenet.txt"
    if listed.is_file():
        return
    source = core.source(how.against, open_labels(core.referee(how.referee).labels))
    names = []
    for place, (_, picture) in enumerate(readable(limited(source, order.familiar), LeftOut("familiar pictures"))):
        names.append(f"val/familiar_{place:05d}.png")
        write_bytes(packed(picture, "png"), out / "imagenet1k" / names[-1])
    write_bytes("".join(f"{name}\n" for name in names).encode(), listed)
