"""Spread the drawing of images over an engine: each process opens the pipeline once, and writes
the images of its units.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.apps.generation.concepts import are_published, shift_words
from sorites.apps.generation.sliders import LIBRARIES, PROMPT, Sheet, as_png, enlarged
from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.samples import ImageF32, ImageU8, to_uint8
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import AHEAD, BATCH, Drawing, Request, along, sample, sampled
from sorites.diffusion.sliders import Concept, Shelf, together
from sorites.diffusion.words import with_words
from sorites.evaluation.engines import Engine
from sorites.io.files import locked, read_json, sweep_temporaries, write_bytes

# A shift, a class and some seeds.
Unit = tuple[str, Concept, tuple[int, ...]]


@dataclass(frozen=True)
class Spread:
    """An engine, the number of units at a time, and the way to open the pipeline in another process."""

    engine: Engine
    workers: int
    open: Callable[[], Pipe]


@functools.lru_cache(maxsize=2)
def open_pipe(
    path: str, device: str | None = None, dtype: str | None = None, words: str | None = None
) -> Pipe:
    """Load a pipeline, with learnt words where a folder of them is given; a process loads it once."""
    pipe = load(path, device, dtype)
    return with_words(pipe, words) if words else pipe


def units_of(places: Sequence[tuple[str, Concept]], seeds: Sequence[int], most: int) -> Iterator[Unit]:
    """Yield units of at most so many seeds."""
    for shift, concept in places:
        for first in range(0, len(seeds), most):
            yield shift, concept, tuple(seeds[first : first + most])


# Draw images along sliders into a folder laid out as CNS-Bench is published, with a manifest of
# everything they follow from.


RECORD, MANIFEST, CLASSES, LABELS = "generation.json", "manifest.parquet", "classes.tsv", "labels.txt"
SEVERITIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
FORMATS = ("jpg", "png")
# The suffix of a shift's folder where the words alone make the shift, without a slider.
BY_TEXT = "_by_text"
TEXT_PROMPT = "a picture of a {class} in {shift}"


@dataclass(frozen=True)
class Trajectory:
    """The images of one class, shift and seed: where each goes, and what is asked of the sampler."""

    shift: str
    concept: Concept
    seed: int
    severities: tuple[float, ...]
    request: Request
    files: tuple[Path, ...]

    @property
    def is_there(self) -> bool:
        """Return whether all of its images are drawn."""
        return all(file.exists() for file in self.files)


@dataclass(frozen=True)
class Order:
    """The images that are wanted: of which sliders, at which severities, in which words, drawn
    how, and where they go.
    """

    shelf: Shelf
    severities: tuple[float, ...]
    out: Path
    drawing: Drawing
    kind: str
    prompt: str
    by_text: bool
    batch: int


def make_images(
    pipe: Pipe, shelf: Shelf, severities: Sequence[float], seeds: Sequence[int], out: Path, drawing: Drawing | None = None,
    kind: str = "jpg", prompt: str = PROMPT, by_text: bool = False, batch: int = BATCH, bar: Bar | None = None,
    spread: Spread | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Draw every slider of a shelf at every severity and seed, and return the manifest; finished
    images are kept.

    With ``spread`` an engine draws them in other processes.
    """
    order = Order(
        shelf, _checked(severities, seeds, kind), out, drawing or Drawing(), kind, prompt, by_text, batch
    )
    facts = _facts(pipe, shelf, order.drawing, prompt)
    with locked(out, "image", ".sorites.lock"):
        sweep_temporaries(out)
        _claim(out, facts)
        if not are_published(shelf.concepts):
            write_bytes(
                "".join(f"{one.number}\t{one.name}\n" for one in shelf.concepts).encode(), out / CLASSES
            )
            write_bytes("".join(f"{one.name}\n" for one in shelf.concepts).encode(), out / LABELS)
        wanted = [
            one
            for unit in units_of(list(shelf.places), seeds, len(seeds))
            for one in _trajectories(order, pipe, unit)
        ]
        missing = sum(len(one.files) for one in wanted if not one.is_there)
        tick = bar("images", missing) if bar and missing else (lambda _: None)
        if spread is None:
            _draw(order, pipe, wanted, tick)
        else:
            units = list(units_of(list(shelf.places), seeds, max(1, AHEAD * batch // len(order.severities))))
            for _, made in spread.engine(
                units, functools.partial(draw_unit, order, spread.open), spread.workers
            ):
                tick(made)
        rows = pl.DataFrame([row for one in wanted for row in _rows(one, out, facts)])
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        write_bytes(buffer.getvalue(), out / MANIFEST)
    return rows


def draw_unit(order: Order, open_: Callable[[], Pipe], unit: Unit) -> int:
    """Draw what is missing of a unit in this process, and return the number of images that were."""
    pipe = open_()
    return _draw(order, pipe, list(_trajectories(order, pipe, unit)))


def _draw(
    order: Order, pipe: Pipe, wanted: Sequence[Trajectory], tick: Callable[[int], None] = lambda _: None
) -> int:
    missing = [one for one in wanted if not one.is_there]
    for one, images in zip(
        missing, sampled(pipe, [one.request for one in missing], order.drawing, order.batch), strict=True
    ):
        for file, image in zip(one.files, images, strict=True):
            write_bytes(packed(to_uint8(image), order.kind), file)
        tick(len(images))
    return sum(len(one.files) for one in missing)


def _checked(severities: Sequence[float], seeds: Sequence[int], kind: str) -> tuple[float, ...]:
    settings = tuple(sorted(set(map(float, severities))))
    if not settings or not all(
        np.isfinite(s) and abs(s) <= 100 and round(s * 1000) == s * 1000 for s in settings
    ):
        raise SoritesError(
            f"wanted severities in thousandths, at most 100, got {', '.join(map(str, severities))}"
        )
    if not seeds or min(seeds) < 0 or max(seeds) > 10**8:
        raise SoritesError("wanted one or more seeds from 0 up")
    if kind not in FORMATS:
        raise SoritesError(f"wanted images as {' or '.join(FORMATS)}, got {kind!r}")
    return settings


def _trajectories(order: Order, pipe: Pipe, unit: Unit) -> Iterator[Trajectory]:
    shift, concept, seeds = unit
    slider, settings, kind = order.shelf.slider(pipe, shift, concept), order.severities, order.kind
    plain, words = (order.prompt.replace("{class}", name) for name in (concept.name, pipe.word(concept.name)))
    for seed in seeds:
        request = along(words, seed, slider, settings, plain)
        yield Trajectory(
            shift,
            concept,
            seed,
            settings,
            request,
            _files(order.out / shift / concept.folder, seed, settings, kind),
        )
    told = TEXT_PROMPT.replace("{class}", pipe.word(concept.name)).replace("{shift}", shift_words(shift))
    for seed in seeds if order.by_text else ():
        for severity, text in ((0.0, words), (1.0, told)):
            files = _files(order.out / f"{shift}{BY_TEXT}" / concept.folder, seed, (severity,), kind)
            yield Trajectory(
                f"{shift}{BY_TEXT}", concept, seed, (severity,), Request(text, seed, noise=plain), files
            )


def _files(folder: Path, seed: int, settings: tuple[float, ...], kind: str) -> tuple[Path, ...]:
    return tuple(folder / f"seed_{seed:04d}_scale_{round(setting * 1000):04d}.{kind}" for setting in settings)


def packed(image: ImageU8, kind: str) -> bytes:
    """Return an image as the bytes of a file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(
        buffer, **({"format": "JPEG", "quality": 95} if kind == "jpg" else {"format": "PNG"})
    )
    return buffer.getvalue()


def _facts(pipe: Pipe, shelf: Shelf, drawing: Drawing, prompt: str) -> dict[str, Any]:
    """Return what all images of the folder follow from beside class, shift, seed and severity."""
    versions = {
        f"{shift}/{concept.folder}": shelf.slider(pipe, shift, concept).version
        for shift, concept in shelf.places
    }
    libraries = {name: version(name) for name in (*LIBRARIES, "numpy", "pillow")}
    return {
        "pipeline_version": pipe.version, "prompt": prompt, **drawing.facts(), "sliders": versions, "libraries": libraries,
        "pipeline": str(pipe.path),
    }  # fmt: skip


def _claim(out: Path, facts: dict[str, Any]) -> None:
    """Refuse a folder whose images were drawn otherwise, naming what differs; sliders may be
    added to it.
    """
    if (out / RECORD).is_file():
        before = read_json(out / RECORD)
        for key in (key for key in facts if key not in ("sliders", "pipeline", "libraries")):
            if before.get(key) != facts[key]:
                raise SoritesError(
                    f"{out} holds images drawn with {key} {before.get(key)!r}, not {facts[key]!r}; choose"
                    " another --out DIR"
                )
        had = before.get("sliders", {})
        changed = [name for name, made in facts["sliders"].items() if had.get(name, made) != made]
        if changed:
            raise SoritesError(f"{out} holds images of another slider {changed[0]}; choose another --out DIR")
        facts = {**facts, "sliders": {**had, **facts["sliders"]}}
    write_bytes((json.dumps(facts, indent=1) + "\n").encode(), out / RECORD)


def _rows(one: Trajectory, out: Path, facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    made = {key: value for key, value in facts.items() if key not in ("sliders", "libraries")}
    for severity, file in zip(one.severities, one.files, strict=True):
        yield {
            "path": file.relative_to(out).as_posix(), "shift": one.shift, "class": one.concept.number,
            "class_name": one.concept.name, "seed": one.seed, "severity": severity, "text": one.request.prompt,
            "slider_version": one.request.sliders[0].version if one.request.sliders else None,
            "hash": hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest(),
            "params": json.dumps(made, sort_keys=True), "libraries": json.dumps(facts["libraries"], sort_keys=True),
        }  # fmt: skip


# Draw two sliders at once, as a sheet: one down, the other across (Figure 29 of CNS-Bench).


SHARES = (0.0, 0.5, 1.0)


def combined(
    pipe: Pipe, shelf: Shelf, tops: Sequence[tuple[str, float]], concept: Concept, seed: int, drawing: Drawing,
    prompt: str = PROMPT,
) -> list[list[ImageF32]]:  # fmt: skip
    """Return images with two sliders at 0, half and all of their severities, the first down and
    the second across.
    """
    if len(tops) != 2 or tops[0][0] == tops[1][0]:
        raise SoritesError(
            "wanted two different sliders, such as --slider heavy_snow=1.5 --slider cartoon_style=1, got"
            f" {len(tops)}"
        )
    (first, high), (second, wide) = tops
    places = tuple((a * high, b * wide) for a in SHARES for b in SHARES)
    plain, words = (prompt.replace("{class}", name) for name in (concept.name, pipe.word(concept.name)))
    request = Request(words, seed, together(pipe, shelf, (first, second), concept), places, plain)
    found = sample(pipe, [request], drawing)[0]
    return [found[i : i + len(SHARES)] for i in range(0, len(found), len(SHARES))]


def make_combined(
    pipe: Pipe, shelf: Shelf, tops: Sequence[tuple[str, float]], seeds: Sequence[int], out: Path, drawing: Drawing,
    draw: Sheet, kind: str = "jpg",
) -> list[Path]:  # fmt: skip
    """Write such a sheet for every class and seed, with its images beside it; return the sheets."""
    sheets = []
    (first, high), (second, wide) = (tops[0], tops[-1]) if tops else (("", 0.0), ("", 0.0))
    for concept in shelf.concepts:
        for seed in seeds:
            folder = out / f"{first}+{second}" / concept.folder
            page = folder / f"seed_{seed:04d}.png"
            sheets.append(page)
            if page.exists():
                continue
            rows = combined(pipe, shelf, tops, concept, seed, drawing)
            shown = []
            for a, row in zip(SHARES, rows, strict=True):
                for b, image in zip(SHARES, row, strict=True):
                    name = f"seed_{seed:04d}_{first}_{round(a * high * 1000):04d}_{second}_{round(b * wide * 1000):04d}.{kind}"
                    write_bytes(packed(to_uint8(image), kind), folder / name)
                shown.append(
                    [
                        (enlarged(to_uint8(x)), f"{a * high:g}  {b * wide:g}")
                        for b, x in zip(SHARES, row, strict=True)
                    ]
                )
            title = f"{concept.name}: {first} down, {second} across"
            write_bytes(as_png(draw(shown, title)), page)
    return sheets
