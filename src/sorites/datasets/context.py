"""Context composites: cut-outs in surroundings that are common or uncommon for their class.

Every object is shown up to eight times in the same pose, once for each choice of common or uncommon time,
weather and location. A table (``context.tsv``) lists what is common for each class. There is no weather
indoors, and a class for which night is common has no uncommon time, so some objects are shown fewer times.
The clean image has nothing uncommon; the others belong to the shift ``context``, whose severity is the number
of uncommon attributes. The idea is from FOCUS (Kattakinda & Feizi, ICML 2022).
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image as Pillow
from pydantic import Field

from sorites import core
from sorites.core import CLEAN, Attr, ImageU8, Sample, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, coco, imagenet
from sorites.core.messages import option
from sorites.core.rng import digest, hashed_order, rng_for
from sorites.core.table import BOX
from sorites.datasets.build import (
    ANNOTATIONS,
    LOCK,
    Size,
    claimed,
    coco_json,
    described,
    place_image,
    write_files,
)
from sorites.evaluation.storage.record import DATASET
from sorites.evaluation.storage.schema import hash_of
from sorites.io.digests import digest_of_file, write_sealed
from sorites.io.files import locked
from sorites.io.tables import parquet, parquet_bytes
from sorites.io.validation import Record
from sorites.scenes.composite import (
    WEATHER,
    CutOut,
    Pose,
    at_night,
    box_of,
    cut_out,
    draw_pose,
    insert,
    weathered,
)
from sorites.scenes.scenery import DRAWN, place
from sorites.sources import sidecar
from sorites.sources.composites import (
    COUNT,
    GROUND_TRUTH,
    OBJECTS,
    SIDE,
    SIDES,
    Background,
    Object,
    Recipe,
    fetch,
    parse_range,
    samples,
)
from sorites.sources.composites import objects as stamps

# Side of the images in pixels; the central 7/8, which models see, contains the whole object.
SIZE = 256

KINDS = ("time", "weather", "location")
_STAMPS = option("source", "stamps")
# Increment when images of either dataset change.
VERSION = 1


@dataclass(frozen=True)
class Habits:
    """Common conditions of a class: times of day, common locations and uncommon locations."""

    name: str
    times: tuple[str, ...]
    common: tuple[str, ...]
    uncommon: tuple[str, ...]


@dataclass(frozen=True)
class Surroundings:
    """A time, a weather and a location, and which of the three are uncommon for the object."""

    words: tuple[str, str, str]
    rare: tuple[bool, bool, bool]

    @property
    def level(self) -> int:
        """The number of uncommon attributes, 0 to 3."""
        return sum(self.rare)

    def attrs(self, name: str) -> tuple[Attr, ...]:
        """Return the attributes for the table: the class, and each word with whether it is common."""
        parts = zip(KINDS, self.words, self.rare, strict=True)
        return (Attr("class", name), *(Attr(k, w, None if w == "none" else not rare) for k, w, rare in parts))


def read_habits(text: str) -> dict[str, Habits]:
    """Parse the table of habits, by class id."""
    rows = [line.split("\t") for line in text.splitlines()[1:] if line.strip()]
    if any(len(row) != 5 for row in rows):
        raise SoritesError(
            "context: expected lines of id, class, time, common and uncommon places, separated by tabs"
        )
    return {id_: Habits(name, *(tuple(cell.split(", ")) for cell in cells)) for id_, name, *cells in rows}


@functools.cache
def habits() -> dict[str, Habits]:
    """Return the built-in table of habits, by class id."""
    return read_habits(files("sorites.datasets").joinpath("context.tsv").read_text(encoding="utf-8"))


def surroundings(class_habits: Habits, rng: np.random.Generator) -> list[Surroundings]:
    """Return the surroundings of an object by rising number of uncommon attributes; ``rng`` chooses among
    equal words.
    """
    usual, odd = (str(rng.choice(places)) for places in (class_habits.common, class_habits.uncommon))
    fall = str(rng.choice(list(WEATHER)))
    choices = []
    for dark, wet, away in product((False, True), repeat=3):
        where = odd if away else usual
        inside = where == "indoors"
        if (dark and "night" in class_habits.times) or (wet and inside):
            continue
        words = ("night" if dark else "day", fall if wet else "none" if inside else "sunny", where)
        choices.append(Surroundings(words, (dark, wet, away)))
    return sorted(choices, key=lambda choice: (choice.level, choice.rare))


@dataclass(frozen=True)
class Scene:
    """An object in its pose, its box, and the surroundings it is shown in."""

    sample: Sample
    obj: CutOut
    at: Pose
    box: tuple[float, float, float, float]
    shown_in: tuple[Surroundings, ...]
    seed: int
    size: int = SIZE

    def image(self, around: Surroundings, photographs: Sequence[Background]) -> ImageU8:
        """Return the object in one of its surroundings."""
        (time, weather, location), id_ = around.words, self.sample.id
        ground = place(location, self.size, rng_for(self.seed, id_, f"context {location}"), photographs)
        image, _ = insert(self.obj, ground, self.at, 0.2 if location == "water" else 0.55)
        image = weathered(image, weather, rng_for(self.seed, id_, weather))
        if time == "night":
            image = at_night(image, rng_for(self.seed, id_, "night"))
        return to_uint8(image)


def scene(sample: Sample, class_habits: Habits, seed: int, size: int = SIZE) -> Scene:
    """Cut an object out and choose its pose and surroundings, which depend only on the seed and the
    sample.
    """
    obj = _cut(sample)
    rng = rng_for(seed, sample.id, "context")
    shown_in, at = surroundings(class_habits, rng), draw_pose(rng)
    return Scene(sample, obj, at, box_of(obj, size, at), tuple(shown_in), seed, size)


def compose(
    sample: Sample, class_habits: Habits, seed: int, photographs: Sequence[Background], size: int = SIZE
) -> Iterator[tuple[Surroundings, ImageU8, tuple[float, float, float, float]]]:
    """Yield (surroundings, image, box) of one object."""
    staged = scene(sample, class_habits, seed, size)
    for around in staged.shown_in:
        yield around, staged.image(around, photographs), staged.box


def build_context(
    out: str | Path,
    source: str = "stamps",
    *,
    seed: int = 0,
    limit: int | None = None,
    drawn: bool = False,
    size: int = SIZE,
    labels: Labels | None = None,
    tick: Callable[[int], None] = lambda n: None,
) -> tuple[int, int]:
    """Write context composites as a dataset folder.

    Images that a finished call wrote are not made again. Samples whose class is not in the table of habits
    are left out.

    Args:
        out: Folder of the dataset.
        source: Source of cut-outs.
        seed: Seed of poses and surroundings.
        limit: Maximum number of objects.
        drawn: Use only drawn places, so that no photograph is downloaded.
        size: Side of the images in px.
        labels: Label space, ImageNet by default.
        tick: Called once per object.

    Returns:
        The numbers of objects and images.
    """
    folder, space = Path(out), labels or imagenet()
    if not SIDES[0] <= size <= SIDES[1]:
        raise SoritesError(f"size: expected {SIDES[0]} to {SIDES[1]} px, got {size}")
    if limit is not None and limit < 1:
        raise SoritesError(f"{option('limit', None)}: expected a whole number above 0, got {limit}")
    made_of = ComposedRecord(context=VERSION, source=source, seed=seed, limit=limit, drawn=drawn)
    with claim_folder(folder, made_of if size == SIZE else made_of.having(size=size)) as claim:
        chosen = _samples_with_habits(source, space)[:limit]
        photographs = () if drawn else fetch()
        records: list[dict[str, object]] = []
        ground_truth: list[dict[str, object]] = []
        for sample in chosen:
            staged = scene(sample, habits()[space.ids[sample.label or 0]], seed, size)
            for around in staged.shown_in:
                record = _record(sample, around, space, source, seed, size)
                make = functools.partial(staged.image, around, photographs)
                records.append(record | {sidecar.DIGEST: claim.place(str(record["path"]), make)})
                ground_truth.append(
                    {"image_id": record["image_id"], "ground_truth": [_box(staged.box, sample.label)]}
                )
            tick(1)
        boxes = pl.DataFrame(ground_truth, schema={"image_id": pl.String, "ground_truth": pl.List(BOX)})
        claim.finish(records, {GROUND_TRUTH: parquet_bytes(boxes)})
    return len(chosen), len(records)


def _samples_with_habits(source: str, space: Labels) -> list[Sample]:
    """Return the samples whose class is in the table of habits, in fair order."""
    candidates = [
        sample
        for sample in core.source(source, space)
        if sample.label is not None and space.ids[sample.label] in habits()
    ]
    if not candidates:
        raise SoritesError(
            f"no sample of {source} has a class in the table of habits (context.tsv); try {_STAMPS}"
        )
    return hashed_order(candidates, lambda sample: [sample.id])


class ComposedRecord(Record):
    """Content of ``sorites.json`` of a dataset that was composed: the options that determine its images.

    The fields that a composition does not use are not set.
    """

    run_id: str = ""
    context: int | None = None
    composites: int | None = None
    """The version of the kind of composition that made the dataset."""
    source: str
    objects: str | None = None
    size: int | None = None
    seed: int
    limit: int | None
    drawn: bool
    files: dict[str, str] = Field(default={})
    """Digests of the other files that are no images; not set until the dataset is finished."""


@dataclass(frozen=True)
class Claim:
    """A locked dataset folder, its record, and the digests of the images of an earlier, finished call."""

    folder: Path
    record: ComposedRecord
    known: dict[str, str]

    def place(self, path: str, make: Callable[[], ImageU8]) -> str:
        """Make and write an image unless an earlier call wrote it and it is unchanged; return its digest."""
        file, digest_then = self.folder / path, self.known.get(path)
        if digest_then is not None and file.is_file() and digest_of_file(file) == digest_then:
            return digest_then
        return place_image(png(make()), file)

    def finish(self, records: Sequence[dict[str, object]], content: dict[str, bytes]) -> None:
        """Write the sidecar and other files, then the record that lists their digests."""
        about = "Cut-outs composed with backgrounds of common and uncommon times, weathers and places."
        files = described("context", records, about) | content
        finished = self.record.having(files=write_files(self.folder, files))
        write_sealed(finished.as_json(), self.folder / DATASET)


def _known_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the images of a finished dataset; empty if it is not finished or damaged."""
    try:
        sidecar.verify(folder, sidecar.NAME)
        listed = parquet(folder / sidecar.NAME, columns=["path", sidecar.DIGEST])
    except SoritesError:
        return {}
    return dict(listed.iter_rows())


@contextmanager
def claim_folder(folder: Path, record: ComposedRecord) -> Iterator[Claim]:
    """Lock a folder for one dataset: resume the same dataset, start in an empty folder, refuse any other."""
    with locked(folder, "dataset", LOCK):
        before, made_of = claimed(folder, ComposedRecord), record.as_json()
        there = made_of if before is None else before.as_json()
        known = {} if before is None else _known_digests(folder)
        differs = [key for key in made_of if there.get(key) != made_of[key]]
        if differs:
            raise SoritesError(
                f"{folder} contains another dataset (its {differs[0]} differs); choose another"
                f" {option('out', 'DIR')}"
            )
        identified = record.having(run_id=hash_of(made_of))
        write_sealed(identified.as_json(), folder / DATASET)
        yield Claim(folder, identified, known)


def _record(
    sample: Sample, around: Surroundings, space: Labels, source: str, seed: int, size: int
) -> dict[str, object]:
    """Return the sidecar row of an image."""
    words = dict(zip(KINDS, around.words, strict=True))
    spelled = json.dumps(words, sort_keys=True)
    larger = () if size == SIZE else (size,)
    image_id = digest("context", VERSION, source, sample.id, spelled, seed, *larger).hex()
    name = habits()[space.ids[sample.label or 0]].name
    return {
        "path": f"{around.level}/{space.ids[sample.label or 0]}/{image_id}.png",
        "sample_id": sample.id,
        "image_id": image_id,
        "label": space.ids[sample.label or 0],
        "accept": [space.ids[i] for i in sorted(sample.right)],
        "split": sample.split,
        "attrs": [vars(attr) for attr in around.attrs(name)],
        "family": "context" if around.level else CLEAN,
        "shift": "context" if around.level else CLEAN,
        "severity": float(around.level),
        "level": around.level or None,
        "params": spelled,
        "framed": False,
        "seed": seed,
    }


def _box(box: tuple[float, float, float, float], label: int | None) -> dict[str, object]:
    """Return a box as the table stores it."""
    return {**dict(zip(("x0", "y0", "x1", "y1"), box, strict=True)), "label": label, "conf": None}


def png(image: ImageU8) -> bytes:
    """Encode an image as PNG."""
    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


# Composites of several objects


def build_scattered(
    out: str | Path,
    source: str = "stamps",
    *,
    objects: str = OBJECTS,
    size: int = SIDE,
    seed: int = 0,
    limit: int | None = None,
    drawn: bool = False,
    labels: Labels | None = None,
) -> tuple[int, int]:
    """Write composites of several objects as a dataset folder, with ground-truth boxes in the sidecar and in
    COCO format.

    Images that a finished call wrote are not made again.

    Args:
        out: Folder of the dataset.
        source: ``stamps`` for the cut-outs of COCO's classes, or another source with masks and labels of
            these classes, whose objects are placed anywhere.
        objects: Range of the number of objects per image.
        size: Side of the images in px.
        seed: Seed of the composition.
        limit: Number of images, 150 by default.
        drawn: Use only drawn places, so that no photograph is downloaded.
        labels: Label space, COCO by default.

    Returns:
        The numbers of images and boxes.
    """
    folder, space = Path(out), labels or coco()
    recipe = Recipe(seed, parse_range(objects), size, drawn)
    count = COUNT if limit is None else limit
    record = ComposedRecord(
        composites=VERSION, source=source, objects=objects, size=size, seed=seed, limit=count, drawn=drawn
    )
    with claim_folder(folder, record) as claim:
        cuts = stamps(space) if source == "stamps" else _objects(source, space)
        composites = samples(cuts, recipe, count, () if drawn else fetch())
        rows = [_write_composite(claim, sample, source, space, seed, size) for sample in composites]
        claim.finish([record for record, _ in rows], {ANNOTATIONS: coco_json(rows, space)})
    return len(rows), sum(len(sample.ground_truth or ()) for sample in composites)


def _objects(source: str, space: Labels) -> list[Object]:
    """Return the cut-outs of a source as objects named by their labels."""
    with_mask = [
        sample
        for sample in core.source(source, space)
        if sample.alpha is not None and sample.label is not None
    ]
    if not with_mask:
        raise SoritesError(
            f"no sample of {source} has a mask and a label: composites need cut-outs, such as {_STAMPS}"
        )
    return [
        Object(space.names[s.label or 0], s.label, tuple(DRAWN), functools.cache(functools.partial(_cut, s)))
        for s in with_mask
    ]


def _cut(sample: Sample) -> CutOut:
    if sample.alpha is None:
        raise SoritesError(f"{sample.id} has no mask: composites need cut-outs, such as {_STAMPS}")
    return cut_out(sample.load(), sample.alpha())


def _write_composite(
    claim: Claim, sample: Sample, source: str, space: Labels, seed: int, size: int
) -> tuple[dict[str, object], Size]:
    """Write one image unless it exists; return its sidecar row and size."""
    path = f"images/{sample.id.rpartition('/')[2]}.png"
    record: dict[str, object] = {
        "path": path,
        sidecar.DIGEST: claim.place(path, sample.load),
        "sample_id": sample.id,
        "image_id": digest("composites", source, sample.id).hex(),
        "attrs": [vars(attr) for attr in sample.attrs],
        "family": CLEAN,
        "shift": CLEAN,
        "severity": 0.0,
        "params": "{}",
        "framed": False,
        "seed": seed,
        sidecar.BOXES: sidecar.boxes(sample.ground_truth or (), space.ids),
    }
    return record, (size, size)
