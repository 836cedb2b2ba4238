"""Composite images with exact ground-truth boxes: photo cut-outs of 24 COCO classes on a background.

The table ``composites.tsv`` maps each cut-out to its class and the places where it occurs; it was
made by hand. The cut-outs come from Debian's ``tuxpaint-stamps-default`` (GPL-2+); the background
photographs are listed in ``backgrounds.tsv`` with their licences. Both are downloaded once; other
backgrounds are generated. A box covers the visible part of an object.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image as Pillow

from sorites.core import Attr, Box, FileRef, Generated, ImageU8, Sample, add_source, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import command, option
from sorites.core.rng import rng_for
from sorites.core.specs import split_options
from sorites.core.table import BOX, SCHEMA
from sorites.io import packages as debian
from sorites.io.decode import decode
from sorites.io.files import cache
from sorites.io.paths import is_file, path_of
from sorites.io.tables import parquet, refuse_types
from sorites.scenes.composite import (
    MIN_VISIBLE_SHARE,
    CutOut,
    Seen,
    Spot,
    cut_out,
    draw,
    draw_spots,
    visible_parts,
)
from sorites.scenes.scenery import Photograph, place
from sorites.sources import sidecar, stamps

# Background photographs without objects (grass, forest, rocks, water), from two Debian packages.


@dataclass(frozen=True)
class Background:
    """A row of the table; ``horizon`` is the share of the image height above the ground."""

    location: str
    package: str
    folder: str
    file: str
    horizon: float
    sha256: str
    credit: str

    def load(self) -> ImageU8:
        """Return the photograph as a cached, read-only array of at most ``LARGEST`` px per side."""
        return _load_photograph(self.package, self.file)


# The maximum side of a loaded photograph in px.
LARGEST = 1024


@functools.cache
def _load_photograph(package: str, file: str) -> ImageU8:
    image = Pillow.fromarray(decode(cache("backgrounds", package, file)))
    image.thumbnail((LARGEST, LARGEST), Pillow.Resampling.LANCZOS)
    pixels = np.asarray(image)
    pixels.flags.writeable = False
    return pixels


@functools.cache
def table() -> tuple[Background, ...]:
    """Return the rows of ``backgrounds.tsv``."""
    lines = files("sorites.sources").joinpath("backgrounds.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple(Background(a, b, c, d, float(horizon), *rest) for a, b, c, d, horizon, *rest in rows)


def fetch() -> tuple[Background, ...]:
    """Download the photographs that are not in the cache yet, and return all rows."""
    for (package, folder), rows in groupby(sorted(table(), key=_package), key=_package):
        digests = {row.file: row.sha256 for row in rows}
        note = f"Fetching {len(digests)} photographs of places from Debian's {package}. It is not installed."
        debian.fetch(package, folder, digests, cache("backgrounds", package), note)
    return table()


def _package(row: Background) -> tuple[str, str]:
    return row.package, row.folder


# Composites: images are drawn lazily, their boxes are known when the samples are listed.


VERSION = 1
# The number of drawn images in the cache: within a task, each image is used by several shifts.
CACHED_IMAGES = 48

# The minimum and maximum side of an image in px.
SIDES = (64, 4096)


@dataclass(frozen=True)
class Object:
    """A cut-out: its class name, its label (None if the class is not among the labels) and the places
    where it occurs.
    """

    name: str
    label: int | None
    places: tuple[str, ...]
    cut: Callable[[], CutOut]


@dataclass(frozen=True)
class Recipe:
    """Settings of the images: the seed, the range of the number of objects, the side in px, and whether
    all backgrounds are generated (``drawn``).
    """

    seed: int = 0
    objects: tuple[int, int] = (3, 8)
    side: int = 640
    drawn: bool = False

    @property
    def id(self) -> str:
        """The prefix of a sample id; it encodes all parameters."""
        low, high = self.objects
        return (
            # Sample ids seed the random draws, so their text must never change.
            f"v{VERSION}-seed{self.seed}-things{low}..{high}-{self.side}px{'-drawn' if self.drawn else ''}"
        )


@dataclass(frozen=True)
class Scene:
    """The objects of one image, their positions, and the background."""

    objects: tuple[Object, ...]
    spots: tuple[Spot, ...]
    location: str


def parse_range(text: str) -> tuple[int, int]:
    """Parse the number of objects per image, such as ``"3"`` or ``"1..5"``."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()) or not 1 <= int(low) <= int(high or low) <= 50:
        raise SoritesError(
            f"expected the number of objects per image, such as 3 or 1..5 (at most 50), got {text!r}"
        )
    return int(low), int(high or low)


def samples(
    objects: Sequence[Object], recipe: Recipe, count: int, photographs: Sequence[Photograph]
) -> list[Sample]:
    """Return ``count`` samples with the boxes of their visible objects.

    An object that is mostly hidden has no box; the attribute ``hidden`` names its class.
    """
    if not SIDES[0] <= recipe.side <= SIDES[1]:
        raise SoritesError(f"expected images of {SIDES[0]} to {SIDES[1]} px, got {recipe.side}")
    by_class: dict[str, list[Object]] = {}
    for obj in objects:
        by_class.setdefault(obj.name, []).append(obj)
    groups = [by_class[name] for name in sorted(by_class)]

    @functools.lru_cache(maxsize=CACHED_IMAGES)
    def image(number: int) -> ImageU8:
        scene, rng = _scene(groups, recipe, number), _rng(recipe, number, "place")
        ground = place(scene.location, recipe.side, rng, photographs)
        cuts = [obj.cut() for obj in scene.objects]
        pixels = to_uint8(draw(cuts, scene.spots, ground, 0.2 if scene.location == "water" else 0.55))
        pixels.flags.writeable = False
        return pixels

    return [_sample(_scene(groups, recipe, n), recipe, n, Generated(image, (n,))) for n in range(count)]


def _rng(recipe: Recipe, number: int, what: str) -> np.random.Generator:
    return rng_for(recipe.seed, f"{number:05d}", f"composites {VERSION} {what}")


def _scene(groups: Sequence[Sequence[Object]], recipe: Recipe, number: int) -> Scene:
    """Draw a class and a cut-out for each object; the first object determines the background."""
    rng = _rng(recipe, number, "things")  # the word seeds the draw: never change it
    count = int(rng.integers(recipe.objects[0], recipe.objects[1] + 1))
    chosen = [
        group[int(rng.integers(len(group)))]
        for group in (groups[int(rng.integers(len(groups)))] for _ in range(count))
    ]
    location = chosen[0].places[int(rng.integers(len(chosen[0].places)))]
    spots = draw_spots([obj.cut() for obj in chosen], recipe.side, rng)
    return Scene(tuple(chosen), tuple(spots), location)


def _sample(scene: Scene, recipe: Recipe, number: int, image: Generated) -> Sample:
    visible = list(
        zip(
            scene.objects,
            visible_parts([obj.cut() for obj in scene.objects], scene.spots, recipe.side),
            strict=True,
        )
    )
    hidden = [Attr("hidden", obj.name) for obj, part in visible if part.share < MIN_VISIBLE_SHARE]
    return Sample(
        id=f"{recipe.id}/{number:05d}",
        image=image,
        ground_truth=tuple(
            _box(obj.label, part)
            for obj, part in visible
            if part.share >= MIN_VISIBLE_SHARE and obj.label is not None
        ),
        attrs=(Attr("location", scene.location), Attr("objects", str(len(visible))), *dict.fromkeys(hidden)),
    )


def _box(label: int, part: Seen) -> Box:
    return Box(part.box, label, area=float(part.area))


# Defaults: the number of images, of objects per image, and of px per side.
COUNT, OBJECTS, SIDE = 150, "3..8", 640

MAX_IMAGES = 100_000


@add_source
def composites(path: str | None, labels: Labels) -> list[Sample]:
    """Make images of 640 px with 3 to 8 photo cut-outs of COCO classes and exact boxes;
    ``composites:300`` makes 300 of them.

    Further options follow the number: ``composites:300?objects=1..5&size=800&seed=1&places=drawn``.
    """
    allowed = {"objects": (), "size": (), "seed": (), "places": ("drawn", "photographed")}
    number, options = split_options("composites", path or str(COUNT), allowed)
    recipe = Recipe(
        seed=_number("seed", options.get("seed", "0")),
        objects=parse_range(options.get("objects", OBJECTS)),
        side=_number("size", options.get("size", str(SIDE))),
        drawn=options.get("places") == "drawn",
    )
    count = _number("composites", number)
    if not 1 <= count <= MAX_IMAGES:
        raise SoritesError(f"composites: expected 1 to {MAX_IMAGES:,} images, got {count}")
    return samples(objects(labels), recipe, count, () if recipe.drawn else fetch())


def _number(key: str, text: str) -> int:
    if not text.isdecimal():
        raise SoritesError(
            f"composites: expected a whole number for {key}, as in composites:{COUNT}?seed=1, got {text!r}"
        )
    return int(text)


def objects(labels: Labels) -> list[Object]:
    """Return the cut-outs of the table, downloading them if needed.

    An object whose class is not among the labels appears in images without a box.
    """
    cut_outs = [
        Object(name, labels.get(name), places, functools.partial(_cut, file))
        for file, name, places in annotation_table()
    ]
    if all(obj.label is None for obj in cut_outs):
        raise SoritesError(
            "composites show COCO classes, but none of them is among the labels. Pass"
            f' {option("labels", "coco")}, or set labels = "coco" in the suite.'
        )
    debian.fetch(
        stamps.PACKAGE,
        stamps.INSIDE,
        {row.file: row.sha256 for row in stamps.table()},
        cache("stamps"),
        stamps.NOTE,
    )
    return cut_outs


@functools.cache
def annotation_table() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the rows of ``composites.tsv``: file of a stamp, COCO class, places where it occurs."""
    lines = files("sorites.sources").joinpath("composites.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple((file, name, tuple(places.split(", "))) for file, name, places in rows)


@functools.cache
def _cut(file: str) -> CutOut:
    ref = FileRef(cache("stamps") / file)
    return cut_out(stamps.image(ref), stamps.alpha(ref))


# Composites made by ``sorites context``: a dataset folder with a sidecar, and a file with the boxes.


# The file that maps image ids to ground-truth boxes.
GROUND_TRUTH = "ground_truth.parquet"


@add_source
def context(path: str | None, labels: Labels) -> list[Sample]:
    """Read objects in common and uncommon settings, with ground-truth boxes, from a folder made by
    ``sorites context``.
    """
    if path is None:
        raise SoritesError(
            f"context needs a folder of composites. Make one with {command('context', out='DIR')}, then pass"
            f" {option('source', 'context:DIR')}"
        )
    root = path_of(path)
    if not is_file(root / sidecar.NAME):
        raise SoritesError(f"{root} contains no composites. Make them with {command('context', out=root)}")
    samples = sidecar.read(root, labels)
    # Composites of several objects have their boxes in the sidecar.
    if any(sample.ground_truth is not None for sample in samples):
        return samples
    sidecar.verify(root, GROUND_TRUTH)
    boxes = _boxes(root / GROUND_TRUTH)
    return [replace(s, ground_truth=boxes.get(str(s.image_id), ())) for s in samples]


def _boxes(file: Path) -> dict[str, tuple[Box, ...]]:
    """Map image ids to ground-truth boxes."""
    frame = parquet(file, f"the boxes of composites; make them again with {command('context', out='DIR')}")
    if missing := [name for name in ("image_id", "ground_truth") if name not in frame.columns]:
        raise SoritesError(
            f"{file}: expected the columns image_id and ground_truth; missing: {', '.join(missing)}"
        )
    refuse_types(frame, {"image_id": SCHEMA["image_id"], "ground_truth": pl.List(BOX)}, file)
    return {
        id_: tuple(_context_box(box, f"{file}, {id_}") for box in cells or ())
        for id_, cells in frame.select("image_id", "ground_truth").rows()
    }


def _context_box(box: dict[str, float] | None, where: str) -> Box:
    if box is None or any(box[side] is None for side in ("x0", "y0", "x1", "y1", "label")):
        raise SoritesError(f"{where}: expected x0, y0, x1, y1 and label of each box, got {box}")
    return Box((box["x0"], box["y0"], box["x1"], box["y1"]), int(box["label"]))
