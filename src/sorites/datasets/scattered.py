"""Composites of several things as a dataset folder: pictures, a sidecar with their true boxes, and COCO's annotation file."""

from __future__ import annotations

import functools
from pathlib import Path

from sorites import core
from sorites.core import CLEAN, Sample
from sorites.datasets.annotations import ANNOTATIONS, Size, coco_json
from sorites.datasets.build import is_whole_picture
from sorites.datasets.context import claimed, png
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.labels import Labels, coco
from sorites.rng import digest
from sorites.scenes.composite import CutOut, cut_out
from sorites.scenes.scenery import DRAWN
from sorites.sources import _sidecar as sidecar
from sorites.sources._backgrounds import fetch
from sorites.sources._scattered import Recipe, Thing, parse_range, samples
from sorites.sources.composites import COUNT, SIDE, THINGS
from sorites.sources.composites import things as stamps
from sorites.table import write

VERSION = 1
"""It rises when pictures change."""


def build_scattered(
    out: str | Path,
    source: str = "stamps",
    *,
    things: str = THINGS,
    size: int = SIDE,
    seed: int = 0,
    limit: int | None = None,
    drawn: bool = False,
    labels: Labels | None = None,
) -> tuple[int, int]:
    """Write pictures of several things each, and return how many there are and how many boxes they have.

    ``stamps`` are the cut-outs of COCO's classes; another source needs masks and labels of these classes, and its things may
    stand anywhere. ``limit`` is the number of pictures, 150 by default. Pictures that are there from a call that was stopped are
    not made again.
    """
    folder, space = Path(out), labels or coco()
    recipe = Recipe(seed, parse_range(things), size, drawn)
    count = COUNT if limit is None else limit
    made_of = {"composites": VERSION, "source": source, "things": things, "size": size, "seed": seed, "limit": count}
    with claimed(folder, {**made_of, "drawn": drawn}):
        cuts = stamps(space) if source == "stamps" else _things(source, space)
        made = samples(cuts, recipe, count, () if drawn else fetch())
        rows = [_written(folder, sample, source, space, seed, size) for sample in made]
        write(sidecar.frame([record for record, _ in rows]), folder / sidecar.NAME)
        write_bytes(coco_json(rows, space), folder / ANNOTATIONS)
    return len(rows), sum(len(sample.truth or ()) for sample in made)


def _things(source: str, space: Labels) -> list[Thing]:
    """Return the cut-outs of a source as things; a name of its label is the name of its class."""
    found = [sample for sample in core.source(source, space) if sample.alpha is not None and sample.label is not None]
    if not found:
        raise SoritesError(f"no sample of {source} has a mask and a label: composites need cut-outs, such as --source stamps")
    return [Thing(space.names[s.label or 0], s.label, tuple(DRAWN), functools.cache(functools.partial(_cut, s))) for s in found]


def _cut(sample: Sample) -> CutOut:
    if sample.alpha is None:
        raise SoritesError(f"{sample.id} has no mask: composites need cut-outs, such as --source stamps")
    return cut_out(sample.load(), sample.alpha())


def _written(folder: Path, sample: Sample, source: str, space: Labels, seed: int, size: int) -> tuple[dict[str, object], Size]:
    """Write one picture unless it is there; return the sidecar's row of it, and its size."""
    path = f"images/{sample.id.rpartition('/')[2]}.png"
    if not is_whole_picture(folder / path):
        write_bytes(png(sample.load()), folder / path)
    record: dict[str, object] = {
        "path": path,
        "sample_id": sample.id,
        "image_id": digest("composites", source, sample.id).hex(),
        "attrs": [vars(attr) for attr in sample.attrs],
        "family": CLEAN,
        "shift": CLEAN,
        "severity": 0.0,
        "params": "{}",
        "framed": False,
        "seed": seed,
        sidecar.BOXES: sidecar.boxes(sample.truth or (), space.ids),
    }
    return record, (size, size)
