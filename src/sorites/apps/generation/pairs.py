"""Images with two sliders at once: a grid of severities in the layout that ``cns_bench`` reads, and sheets.

A grid has every combination of the severities of both sliders and of 0. Its images have the shift ``a x b``,
so that the metrics of grids apply. A sheet shows one slider down, the other across (Figure 29 of CNS-Bench).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.apps.generation.cards import Description
from sorites.apps.generation.files import delete_damaged, known_digests
from sorites.apps.generation.images import (
    check_seeds,
    claim,
    embedded_facts,
    finish,
    image_facts,
    refuse_other_kind,
    shared_facts,
    write_classes,
)
from sorites.apps.generation.provenance import encode_image
from sorites.apps.generation.safety import Checker
from sorites.apps.generation.sliders import PROMPT, Sheet, as_png, enlarged
from sorites.core.compositions import TIMES
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.samples import ImageF32, to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import BATCH, Request, SamplerOptions, iterate_samples
from sorites.diffusion.shelves import Concept, Shelf, sliders_for
from sorites.io.decode import decode
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.sources.papers.cns_bench import SHEETS, pair_name
from sorites.sources.written import GENERATED


@dataclass(frozen=True)
class Axes:
    """Two sliders with their severities above 0."""

    names: tuple[str, str]
    severities: tuple[tuple[float, ...], tuple[float, ...]]

    @property
    def shift(self) -> str:
        """The name of the grid, as of other grids."""
        return TIMES.join(self.names)

    @property
    def points(self) -> tuple[tuple[float, ...], ...]:
        """All combinations of the severities and of 0, the second fastest."""
        return tuple(itertools.product(*((0.0, *values) for values in self.severities)))


def axes_of(asked: Sequence[tuple[str, Sequence[float]]]) -> Axes:
    """Return the axes of a grid; one severity alone stands for its half and itself.

    Raises:
        SoritesError: There are not two different sliders, or a severity is not a number above 0.
    """
    if len(asked) != 2 or asked[0][0] == asked[1][0]:
        raise SoritesError(
            f"expected two different sliders, such as {option('slider', 'heavy_snow=1.5')} and "
            f"{option('slider', 'cartoon_style=1')}; got {len(asked)}"
        )
    axes = []
    for name, values in asked:
        wrong = [value for value in values if not (np.isfinite(value) and 0 < value <= 100)]
        if wrong or not values:
            got = wrong[0] if wrong else "none"
            raise SoritesError(f"{name}: expected severities above 0, at most 100; got {got}")
        axes.append(tuple(sorted(set(values))) if len(values) > 1 else (values[0] / 2, values[0]))
    (first, _), (second, _) = asked
    return Axes((first, second), (axes[0], axes[1]))


@dataclass(frozen=True)
class PairUnit:
    """The images of one class and seed on a grid."""

    concept: Concept
    seed: int
    request: Request
    files: tuple[Path, ...]
    sheet: Path


def make_pairs(
    pipe: Pipe, shelf: Shelf, axes: Axes, seeds: Sequence[int], out: Path,
    drawing: SamplerOptions | None = None, draw: Sheet | None = None, kind: str = "jpg", batch: int = BATCH,
    bar: Bar | None = None, about: Description | None = None, safety: Checker | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Draw the grid of two sliders for every class and seed, and return the table. Existing images are kept.

    Args:
        pipe: The diffusion pipeline.
        shelf: The sliders.
        axes: The two sliders and their severities.
        seeds: Seeds of the initial noise.
        out: Output folder.
        drawing: Sampler settings.
        draw: Draws a sheet for every class and seed.
        kind: ``"jpg"`` or ``"png"``.
        batch: Images per forward pass.
        bar: Creates a progress bar.
        about: What the publisher says of the images, for the dataset card.
        safety: Says which images are unsafe. They are kept and marked in the column ``flagged``.
    """
    check_seeds(seeds, kind)
    chosen, how = shelf.kept(axes.names, ()), drawing or SamplerOptions()
    concepts = _with_both(chosen, axes)
    facts = shared_facts(pipe, chosen, how, PROMPT)
    with locked(out, "image", ".sorites.lock"):
        sweep_temporaries(out)
        refuse_other_kind(out, is_grid=True)
        claim(out, facts)
        write_classes(chosen, out)
        known = known_digests(out, GENERATED)
        delete_damaged(out, known)
        units = list(_units(pipe, chosen, axes, (concepts, seeds), out, kind))
        missing = [unit for unit in units if not all(file.exists() for file in unit.files)]
        tick = (
            bar("images", sum(len(unit.files) for unit in missing)) if bar and missing else (lambda _: None)
        )
        drawn = iterate_samples(pipe, [unit.request for unit in missing], how, batch)
        for unit, images in zip(missing, drawn, strict=True):
            _write_images(unit, images, axes, embedded_facts(facts), kind)
            tick(len(images))
        for unit in units if draw else ():
            _write_sheet(unit, axes, draw)
        rows = pl.DataFrame([row for unit in units for row in _rows(unit, axes, out, facts)])
        rows = rows.with_columns(pl.col("severity").cast(pl.Float64))
        finish(pipe, out, rows, known, facts, about or Description(), safety)
    return rows


def _with_both(shelf: Shelf, axes: Axes) -> list[Concept]:
    """Return the classes that have both sliders."""
    concepts = [c for c in shelf.concepts if all((name, c) in shelf.places for name in axes.names)]
    if not concepts:
        raise SoritesError(f"{shelf.root} has no class with both sliders {' and '.join(axes.names)}")
    return concepts


def _units(
    pipe: Pipe, shelf: Shelf, axes: Axes, of: tuple[Sequence[Concept], Sequence[int]], out: Path, kind: str
) -> Iterator[PairUnit]:
    for concept, seed in itertools.product(*of):
        plain, words = (PROMPT.replace("{class}", name) for name in (concept.name, pipe.word(concept.name)))
        sliders = sliders_for(pipe, shelf, axes.names, concept)
        request = Request(words, seed, sliders, axes.points, plain)
        folder = out / axes.shift / concept.folder
        files = tuple(folder / f"{pair_name(axes.shift, seed, point)}.{kind}" for point in axes.points)
        page = out / SHEETS / f"{axes.shift}, {concept.folder}, seed_{seed:04d}.png"
        yield PairUnit(concept, seed, request, files, page)


def _write_images(
    unit: PairUnit, images: Sequence[ImageF32], axes: Axes, facts: tuple[tuple[str, str], ...], kind: str
) -> None:
    for point, file, image in zip(axes.points, unit.files, images, strict=True):
        made = dict(zip(axes.names, point, strict=True))
        about_image = image_facts(facts, unit.concept, unit.seed, unit.request, made)
        write_bytes(encode_image(to_uint8(image), kind, about_image), file)


def _write_sheet(unit: PairUnit, axes: Axes, draw: Sheet | None) -> None:
    if draw is None or unit.sheet.exists():
        return
    cells = [
        (enlarged(decode(file)), "  ".join(f"{severity:g}" for severity in point))
        for point, file in zip(axes.points, unit.files, strict=True)
    ]
    across = len(axes.severities[1]) + 1
    rows = [cells[start : start + across] for start in range(0, len(cells), across)]
    title = f"{unit.concept.name}: {axes.names[0]} down, {axes.names[1]} across"
    write_bytes(as_png(draw(rows, title)), unit.sheet)


def _rows(unit: PairUnit, axes: Axes, out: Path, facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    params = {key: value for key, value in facts.items() if key not in ("sliders", "libraries")}
    for point, file in zip(axes.points, unit.files, strict=True):
        yield {
            "path": file.relative_to(out).as_posix(),
            "shift": axes.shift,
            "class": unit.concept.number,
            "class_name": unit.concept.name,
            "seed": unit.seed,
            "severity": None,
            "severities": json.dumps(dict(zip(axes.names, point, strict=True))),
            "text": unit.request.prompt,
            "slider_version": " ".join(slider.version for slider in unit.request.sliders),
            "hash": hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest(),
            "params": json.dumps(params, sort_keys=True),
            "libraries": json.dumps(facts["libraries"], sort_keys=True),
        }
