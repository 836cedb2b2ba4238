"""Draw images along sliders into a folder in the layout of CNS-Bench, optionally in several processes."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.apps.generation.cards import Description, write_cards
from sorites.apps.generation.concepts import are_published, shift_words
from sorites.apps.generation.files import FORMATS, check_format, delete_damaged, known_digests, write_table
from sorites.apps.generation.provenance import encode_image
from sorites.apps.generation.safety import Checker
from sorites.apps.generation.sliders import LIBRARIES, PROMPT
from sorites.apps.generation.spread import Spread
from sorites.core.compositions import TIMES
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.samples import to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import (
    BATCH,
    BATCHES_AHEAD,
    Request,
    SamplerOptions,
    along,
    iterate_samples,
)
from sorites.diffusion.shelves import Concept, Shelf
from sorites.io.decode import decode
from sorites.io.digests import read_sealed, write_sealed
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.listed import FILES, RESTORE, write_listed
from sorites.sources.papers.cns_bench import SHEETS, scale_name
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
    shared: tuple[tuple[str, str], ...] = ()
    """The metadata that every file has about the pipeline and the sampler."""


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
    about: Description | None = None,
    safety: Checker | None = None,
) -> pl.DataFrame:
    """Draw every slider of a shelf at every severity and seed, and return the manifest.

    Existing images are kept.

    Args:
        pipe: The diffusion pipeline.
        shelf: The sliders.
        severities: Slider severities.
        seeds: Seeds of the initial noise.
        out: Output folder.
        drawing: Sampler settings.
        kind: ``"jpg"`` or ``"png"``.
        prompt: Prompt with ``{class}``.
        by_text: Also draw images that are shifted by the prompt alone.
        batch: Images per forward pass.
        bar: Creates a progress bar.
        spread: Draw in other processes.
        about: What the publisher says of the images, for the dataset card.
        safety: Says which images are unsafe. They are kept and marked in the column ``flagged``.
    """
    how = drawing or SamplerOptions()
    settings, facts = checked_severities(severities, seeds, kind), shared_facts(pipe, shelf, how, prompt)
    order = Order(shelf, settings, out, how, kind, prompt, by_text, batch, embedded_facts(facts))
    with locked(out, "image", ".sorites.lock"):
        sweep_temporaries(out)
        refuse_other_kind(out, is_grid=False)
        claim(out, facts)
        write_classes(shelf, out)
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
        finish(pipe, out, rows, known, facts, about or Description(), safety)
    return rows


def finish(
    pipe: Pipe,
    out: Path,
    rows: pl.DataFrame,
    known: Mapping[str, str],
    facts: Mapping[str, Any],
    about: Description,
    safety: Checker | None,
) -> None:
    """Write the table of a folder and the files that describe it."""
    marked = rows if safety is None else rows.with_columns(flagged=flags(out, rows["path"].to_list(), safety))
    every = _with_earlier(marked, out, known)
    write_table(out, GENERATED, every)
    sliders = read_sealed(out / RECORD, RESTORE).get("sliders", {})
    write_cards(out, every, {**facts, "sliders": sliders}, about, pipe.path)


def flags(out: Path, paths: Sequence[str], safety: Checker) -> pl.Series:
    """Return what a safety checker says of images."""
    chunks = (paths[start : start + BATCH] for start in range(0, len(paths), BATCH))
    return pl.Series(
        [flag for chunk in chunks for flag in safety([decode(out / path) for path in chunk])],
        dtype=pl.Boolean,
    )


def _with_earlier(rows: pl.DataFrame, out: Path, known: Mapping[str, str]) -> pl.DataFrame:
    """Add what earlier calls found: rows of other seeds or severities, and what a checker said of images."""
    if not known:
        return rows
    before = pl.read_parquet(out / MANIFEST)
    if "flagged" in before.columns and "flagged" not in rows.columns:
        flagged = before.select("path", "hash", "flagged")
        rows = rows.join(flagged, on=["path", "hash"], how="left", maintain_order="left")
    others = before.filter(~pl.col("path").is_in(rows["path"].to_list()))
    return pl.concat([others, rows], how="diagonal_relaxed") if others.height else rows


def write_classes(shelf: Shelf, out: Path) -> None:
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
        for severity, file, image in zip(trajectory.severities, trajectory.files, images, strict=True):
            made = {trajectory.shift: severity} if trajectory.request.sliders else {}
            facts = image_facts(order.shared, trajectory.concept, trajectory.seed, trajectory.request, made)
            write_bytes(encode_image(to_uint8(image), order.kind, facts), file)
        tick(len(images))
    return sum(len(trajectory.files) for trajectory in missing)


def checked_severities(severities: Sequence[float], seeds: Sequence[int], kind: str) -> tuple[float, ...]:
    """Return severities in order, or raise an error for severities, seeds and formats that cannot be."""
    settings = tuple(sorted(set(map(float, severities))))
    if not settings or not all(np.isfinite(s) and abs(s) <= 100 for s in settings):
        raise SoritesError(
            f"severities must be numbers from -100 to 100; got {', '.join(map(str, severities))}"
        )
    check_seeds(seeds, kind)
    return settings


def check_seeds(seeds: Sequence[int], kind: str) -> None:
    """Raise an error for seeds and formats that cannot be."""
    if not seeds or min(seeds) < 0 or max(seeds) > 10**8:
        raise SoritesError("need one or more seeds from 0 up")
    check_format(kind)


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
    return tuple(folder / f"seed_{seed:04d}_scale_{scale_name(setting)}.{kind}" for setting in settings)


def embedded_facts(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what the metadata of every file of a folder says; the place of the pipeline is not in it."""
    left = (key for key in facts if key not in ("sliders", "libraries", "pipeline"))
    return tuple((key, json.dumps(facts[key])) for key in left)


def image_facts(
    shared: Sequence[tuple[str, str]],
    concept: Concept,
    seed: int,
    request: Request,
    severities: Mapping[str, float],
) -> dict[str, Any]:
    """Return what the metadata of a file says: everything that its pixels follow from, and nothing else."""
    versions = {slider.shift: slider.version for slider in request.sliders}
    active = {
        name: {"severity": value, "version": versions.get(name)}
        for name, value in severities.items()
        if value
    }
    return {
        **{key: json.loads(value) for key, value in shared},
        "prompt": request.prompt,
        "class": concept.name,
        "class_number": concept.number,
        "seed": seed,
        "sliders": active,
    }


def shared_facts(pipe: Pipe, shelf: Shelf, drawing: SamplerOptions, prompt: str) -> dict[str, Any]:
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
        "pipeline": pipe.name,
        **({"tiling": True} if pipe.saving.tiling else {}),
    }


def claim(out: Path, facts: dict[str, Any]) -> None:
    """Refuse a folder whose images were drawn with other settings; sliders may be added.

    A record of other settings without images, which a call leaves that failed before it drew any, is
    replaced.
    """
    before = read_sealed(out / RECORD, RESTORE) if (out / RECORD).is_file() else {}
    if before and (difference := _difference(before, facts)):
        if _has_images(out):
            raise SoritesError(f"{out} has images {difference}; use another {option('out', 'DIR')}")
        before = {}
    if before:
        sliders = {**before.get("sliders", {}), **facts["sliders"]}
        facts = {**facts, "sliders": sliders, FILES: before.get(FILES, {})}
    write_sealed(facts, out / RECORD)


def refuse_other_kind(out: Path, is_grid: bool) -> None:
    """Raise an error if a folder has images of grids and others are to be drawn, or the other way round.

    The annotations of a folder list its images along single sliders, so that readers would leave out a grid.
    """
    folders = (folder for folder in out.iterdir() if folder.is_dir() and folder.name != SHEETS)
    if any((TIMES in folder.name) != is_grid and any(folder.glob("*/seed_*")) for folder in folders):
        kind = "single sliders" if is_grid else "two sliders at once"
        raise SoritesError(f"{out} has images along {kind}; use another {option('out', 'DIR')} for these")


def _difference(before: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return in words how the images of a record differ from those that are asked for; empty if not."""
    for key in {**before, **facts}:
        if key not in ("sliders", "pipeline", "libraries", FILES) and before.get(key) != facts.get(key):
            return f"drawn with {key} {before.get(key)!r}, not {facts.get(key)!r}"
    earlier = before.get("sliders", {})
    changed = [name for name, version in facts["sliders"].items() if earlier.get(name, version) != version]
    return f"of a different slider {changed[0]}" if changed else ""


def _has_images(out: Path) -> bool:
    return (out / MANIFEST).exists() or any(path.suffix[1:] in FORMATS for path in out.glob("*/*/seed_*"))


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
