"""Draw images along sliders into a folder in the layout of CNS-Bench, optionally in several processes."""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.apps.generation.concepts import are_published, shift_words
from sorites.apps.generation.files import delete_damaged, known_digests, write_table
from sorites.apps.generation.sliders import LIBRARIES, PROMPT, Sheet, as_png, enlarged
from sorites.apps.generation.spread import Spread
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.samples import ImageF32, ImageU8, to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import (
    BATCH,
    BATCHES_AHEAD,
    Request,
    SamplerOptions,
    along,
    iterate_samples,
    sample,
)
from sorites.diffusion.shelves import Concept, Shelf, sliders_for
from sorites.io.digests import read_sealed, write_sealed
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.listed import FILES, RESTORE, write_listed
from sorites.sources.written import GENERATED

# A shift, a class and some seeds.
Unit = tuple[str, Concept, tuple[int, ...]]


def units_of(places: Sequence[tuple[str, Concept]], seeds: Sequence[int], most: int) -> Iterator[Unit]:
    """Yield units with at most ``most`` seeds each."""
    for shift, concept in places:
        for first in range(0, len(seeds), most):
            yield shift, concept, tuple(seeds[first : first + most])


# Trajectories along sliders.


RECORD, MANIFEST, CLASSES, LABELS = GENERATED.record, GENERATED.table, "classes.tsv", "labels.txt"
SEVERITIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
FORMATS = ("jpg", "png")
# Suffix of shift folders whose images are shifted by the prompt alone, without a slider.
BY_TEXT = "_by_text"
TEXT_PROMPT = "a picture of a {class} in {shift}"


@dataclass(frozen=True)
class Trajectory:
    """The images of one class, shift and seed: their files, and the request for the sampler."""

    shift: str
    concept: Concept
    seed: int
    severities: tuple[float, ...]
    request: Request
    files: tuple[Path, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether all images exist."""
        return all(file.exists() for file in self.files)


@dataclass(frozen=True)
class Order:
    """An order of images: sliders, severities, prompt, sampler settings, and the output folder."""

    shelf: Shelf
    severities: tuple[float, ...]
    out: Path
    drawing: SamplerOptions
    kind: str
    prompt: str
    by_text: bool
    batch: int


def make_images(
    pipe: Pipe,
    shelf: Shelf,
    severities: Sequence[float],
    seeds: Sequence[int],
    out: Path,
    drawing: SamplerOptions | None = None,
    kind: str = "jpg",
    prompt: str = PROMPT,
    by_text: bool = False,
    batch: int = BATCH,
    bar: Bar | None = None,
    spread: Spread | None = None,
) -> pl.DataFrame:
    """Draw every slider of a shelf at every severity and seed, and return the manifest.

    Existing images are kept.

    Args:
        pipe: The diffusion pipeline.
        shelf: The sliders.
        severities: Slider severities, in thousandths.
        seeds: Seeds of the initial noise.
        out: Output folder.
        drawing: Sampler settings.
        kind: ``"jpg"`` or ``"png"``.
        prompt: Prompt with ``{class}``.
        by_text: Also draw images that are shifted by the prompt alone.
        batch: Images per forward pass.
        bar: Creates a progress bar.
        spread: Draw in other processes.
    """
    order = Order(
        shelf,
        _check_severities(severities, seeds, kind),
        out,
        drawing or SamplerOptions(),
        kind,
        prompt,
        by_text,
        batch,
    )
    facts = _facts(pipe, shelf, order.drawing, prompt)
    with locked(out, "image", ".sorites.lock"):
        sweep_temporaries(out)
        _claim(out, facts)
        _write_classes(shelf, out)
        known = known_digests(out, GENERATED)
        delete_damaged(out, known)
        trajectories = [
            trajectory
            for unit in units_of(list(shelf.places), seeds, len(seeds))
            for trajectory in _trajectories(order, pipe, unit)
        ]
        missing = sum(len(trajectory.files) for trajectory in trajectories if not trajectory.is_complete)
        tick = bar("images", missing) if bar and missing else (lambda _: None)
        if spread is None:
            _draw(order, pipe, trajectories, tick)
        else:
            units = list(
                units_of(list(shelf.places), seeds, max(1, BATCHES_AHEAD * batch // len(order.severities)))
            )
            for _, drawn in spread.engine(
                units, functools.partial(draw_unit, order, spread.open), spread.workers
            ):
                tick(drawn)
        rows = pl.DataFrame([row for trajectory in trajectories for row in _rows(trajectory, out, facts)])
        write_table(out, GENERATED, _with_earlier(rows, out, known))
    return rows


def _with_earlier(rows: pl.DataFrame, out: Path, known: Mapping[str, str]) -> pl.DataFrame:
    """Add the rows of images that earlier calls drew, with other seeds or severities."""
    if not known or not set(known) - set(rows["path"]):
        return rows
    before = pl.read_parquet(out / MANIFEST).filter(~pl.col("path").is_in(rows["path"].to_list()))
    return pl.concat([before, rows], how="vertical_relaxed")


def _write_classes(shelf: Shelf, out: Path) -> None:
    """Write the lists of classes, unless they are those of CNS-Bench, which readers know."""
    if not are_published(shelf.concepts):
        numbered = "".join(f"{concept.number}\t{concept.name}\n" for concept in shelf.concepts)
        names = "".join(f"{concept.name}\n" for concept in shelf.concepts)
        write_listed(out / RECORD, CLASSES, numbered.encode())
        write_listed(out / RECORD, LABELS, names.encode())


def draw_unit(order: Order, open_: Callable[[], Pipe], unit: Unit) -> int:
    """Draw the missing images of a unit in this process, and return their number."""
    pipe = open_()
    return _draw(order, pipe, list(_trajectories(order, pipe, unit)))


def _draw(
    order: Order, pipe: Pipe, trajectories: Sequence[Trajectory], tick: Callable[[int], None] = lambda _: None
) -> int:
    missing = [trajectory for trajectory in trajectories if not trajectory.is_complete]
    for trajectory, images in zip(
        missing,
        iterate_samples(pipe, [trajectory.request for trajectory in missing], order.drawing, order.batch),
        strict=True,
    ):
        for file, image in zip(trajectory.files, images, strict=True):
            write_bytes(encode_image(to_uint8(image), order.kind), file)
        tick(len(images))
    return sum(len(trajectory.files) for trajectory in missing)


def _check_severities(severities: Sequence[float], seeds: Sequence[int], kind: str) -> tuple[float, ...]:
    settings = tuple(sorted(set(map(float, severities))))
    if not settings or not all(
        np.isfinite(s) and abs(s) <= 100 and round(s * 1000) == s * 1000 for s in settings
    ):
        raise SoritesError(
            f"severities must be in thousandths and at most 100; got {', '.join(map(str, severities))}"
        )
    if not seeds or min(seeds) < 0 or max(seeds) > 10**8:
        raise SoritesError("need one or more seeds from 0 up")
    if kind not in FORMATS:
        raise SoritesError(f"the image format must be {' or '.join(FORMATS)}, got {kind!r}")
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
    shifted_text = TEXT_PROMPT.replace("{class}", pipe.word(concept.name)).replace(
        "{shift}", shift_words(shift)
    )
    for seed in seeds if order.by_text else ():
        for severity, text in ((0.0, words), (1.0, shifted_text)):
            files = _files(order.out / f"{shift}{BY_TEXT}" / concept.folder, seed, (severity,), kind)
            yield Trajectory(
                f"{shift}{BY_TEXT}", concept, seed, (severity,), Request(text, seed, noise=plain), files
            )


def _files(folder: Path, seed: int, settings: tuple[float, ...], kind: str) -> tuple[Path, ...]:
    return tuple(folder / f"seed_{seed:04d}_scale_{round(setting * 1000):04d}.{kind}" for setting in settings)


def encode_image(image: ImageU8, kind: str) -> bytes:
    """Encode an image as JPEG or PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(
        buffer, **({"format": "JPEG", "quality": 95} if kind == "jpg" else {"format": "PNG"})
    )
    return buffer.getvalue()


def _facts(pipe: Pipe, shelf: Shelf, drawing: SamplerOptions, prompt: str) -> dict[str, Any]:
    """Return the metadata shared by all images of the folder."""
    versions = {
        f"{shift}/{concept.folder}": shelf.slider(pipe, shift, concept).version
        for shift, concept in shelf.places
    }
    libraries = {name: version(name) for name in (*LIBRARIES, "numpy", "pillow")}
    return {
        "pipeline_version": pipe.version,
        "prompt": prompt,
        **drawing.facts(),
        "sliders": versions,
        "libraries": libraries,
        "pipeline": str(pipe.path),
    }


def _claim(out: Path, facts: dict[str, Any]) -> None:
    """Refuse a folder whose images were drawn with other settings; sliders may be added."""
    if (out / RECORD).is_file():
        before = read_sealed(out / RECORD, RESTORE)
        for key in (key for key in facts if key not in ("sliders", "pipeline", "libraries")):
            if before.get(key) != facts[key]:
                raise SoritesError(
                    f"{out} has images drawn with {key} {before.get(key)!r}, not {facts[key]!r}; "
                    f"use another {option('out', 'DIR')}"
                )
        earlier_sliders = before.get("sliders", {})
        changed = [
            name
            for name, slider_version in facts["sliders"].items()
            if earlier_sliders.get(name, slider_version) != slider_version
        ]
        if changed:
            raise SoritesError(
                f"{out} has images of a different slider {changed[0]}; use another {option('out', 'DIR')}"
            )
        facts = {**facts, "sliders": {**earlier_sliders, **facts["sliders"]}, FILES: before.get(FILES, {})}
    write_sealed(facts, out / RECORD)


def _rows(trajectory: Trajectory, out: Path, facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    params = {key: value for key, value in facts.items() if key not in ("sliders", "libraries")}
    for severity, file in zip(trajectory.severities, trajectory.files, strict=True):
        yield {
            "path": file.relative_to(out).as_posix(),
            "shift": trajectory.shift,
            "class": trajectory.concept.number,
            "class_name": trajectory.concept.name,
            "seed": trajectory.seed,
            "severity": severity,
            "text": trajectory.request.prompt,
            "slider_version": trajectory.request.sliders[0].version if trajectory.request.sliders else None,
            "hash": hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest(),
            "params": json.dumps(params, sort_keys=True),
            "libraries": json.dumps(facts["libraries"], sort_keys=True),
        }


# Two sliders at once, as a sheet: one down, the other across (Figure 29 of CNS-Bench).


SEVERITY_SHARES = (0.0, 0.5, 1.0)


def combined(
    pipe: Pipe,
    shelf: Shelf,
    tops: Sequence[tuple[str, float]],
    concept: Concept,
    seed: int,
    drawing: SamplerOptions,
    prompt: str = PROMPT,
) -> list[list[ImageF32]]:
    """Return images with two sliders at 0, half and all of their severities, one down, one across."""
    if len(tops) != 2 or tops[0][0] == tops[1][0]:
        raise SoritesError(
            f"expected two different sliders, such as {option('slider', 'heavy_snow=1.5')} and "
            f"{option('slider', 'cartoon_style=1')}; got {len(tops)}"
        )
    (first, high), (second, wide) = tops
    severities = tuple((a * high, b * wide) for a in SEVERITY_SHARES for b in SEVERITY_SHARES)
    plain, words = (prompt.replace("{class}", name) for name in (concept.name, pipe.word(concept.name)))
    request = Request(words, seed, sliders_for(pipe, shelf, (first, second), concept), severities, plain)
    images = sample(pipe, [request], drawing)[0]
    return [images[i : i + len(SEVERITY_SHARES)] for i in range(0, len(images), len(SEVERITY_SHARES))]


def make_combined(
    pipe: Pipe,
    shelf: Shelf,
    tops: Sequence[tuple[str, float]],
    seeds: Sequence[int],
    out: Path,
    drawing: SamplerOptions,
    draw: Sheet,
    kind: str = "jpg",
) -> list[Path]:
    """Write a sheet for every class and seed, with its images beside it, and return the sheets."""
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
            cells = []
            for a, row in zip(SEVERITY_SHARES, rows, strict=True):
                for b, image in zip(SEVERITY_SHARES, row, strict=True):
                    down, across = round(a * high * 1000), round(b * wide * 1000)
                    name = f"seed_{seed:04d}_{first}_{down:04d}_{second}_{across:04d}.{kind}"
                    write_bytes(encode_image(to_uint8(image), kind), folder / name)
                cells.append(
                    [
                        (enlarged(to_uint8(x)), f"{a * high:g}  {b * wide:g}")
                        for b, x in zip(SEVERITY_SHARES, row, strict=True)
                    ]
                )
            title = f"{concept.name}: {first} down, {second} across"
            write_bytes(as_png(draw(cells, title)), page)
    return sheets
