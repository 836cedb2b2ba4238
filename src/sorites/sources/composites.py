"""Images with exact boxes that need no annotations: several photo cut-outs of 24 COCO classes in one place.

The table ``composites.tsv`` says which of the stamps shows which class and where it is met; we made
it by eye. The cut-outs are Debian's ``tuxpaint-stamps-default`` (GPL-2+), the photographs of places
are in ``backgrounds.tsv`` with their licences; both are fetched once, and other places are drawn. A
box holds the part of an object that can be seen.
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

from sorites.core import Attr, Box, ImageU8, Sample, add_source, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.rng import rng_for
from sorites.core.specs import split_options
from sorites.core.table import BOX, SCHEMA
from sorites.io import packages as debian
from sorites.io.files import cache
from sorites.io.paths import is_file, path_of
from sorites.io.tables import parquet, refuse_types
from sorites.scenes.composite import SEEN, CutOut, Seen, Spot, cut_out, draw, seen, stand
from sorites.scenes.scenery import Photograph, place
from sorites.sources import sidecar, stamps
from sorites.sources.decode import decode

# Photographs of places without objects in them, from two Debian packages: grass, forest, rocks, water.


@dataclass(frozen=True)
class Background:
    """One row of the table; ``horizon`` is the share of the image's height that lies above the ground."""

    location: str
    package: str
    folder: str
    file: str
    horizon: float
    sha256: str
    credit: str

    def load(self) -> ImageU8:
        """Return the photograph, at most ``LARGEST`` px per side; the array is read-only and kept
        once it was read.
        """
        return _loaded(self.package, self.file)


# The most pixels per side of a loaded photograph.
LARGEST = 1024


@functools.cache
def _loaded(package: str, file: str) -> ImageU8:
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
    """Fetch the photographs that are not yet in the cache, and return the rows of all."""
    for (package, folder), rows in groupby(sorted(table(), key=_place), key=_place):
        wanted = {row.file: row.sha256 for row in rows}
        note = f"Fetching {len(wanted)} photographs of places from Debian's {package}. It is not installed."
        debian.fetch(package, folder, wanted, cache("backgrounds", package), note)
    return table()


def _place(row: Background) -> tuple[str, str]:
    return row.package, row.folder


# Images of several cut-outs in one place, made when they are asked for; their boxes are known when they
# are listed.


VERSION = 1
# Drawn images that are kept: a slice of a run shows each of them to several shifts.
KEPT = 48

# The smallest and the largest side of an image in px.
SIDES = (64, 4096)


@dataclass(frozen=True)
class Object:
    """A cut-out with the name of its class, its label if the suite knows the class, and the places
    it is met in.
    """

    name: str
    label: int | None
    places: tuple[str, ...]
    cut: Callable[[], CutOut]


@dataclass(frozen=True)
class Recipe:
    """A recipe for images: the seed, the range of the number of objects, the side in px, and
    whether all places are drawn.
    """

    seed: int = 0
    objects: tuple[int, int] = (3, 8)
    side: int = 640
    drawn: bool = False

    @property
    def id(self) -> str:
        """The first part of a sample's id, from which everything but the cut-outs can be read."""
        low, high = self.objects
        return (
            # Sample ids seed the random draws, so their text must never change.
            f"v{VERSION}-seed{self.seed}-things{low}..{high}-{self.side}px{'-drawn' if self.drawn else ''}"
        )


@dataclass(frozen=True)
class Scene:
    """The objects of one image, their places, and the location behind them."""

    objects: tuple[Object, ...]
    spots: tuple[Spot, ...]
    location: str


def parse_range(text: str) -> tuple[int, int]:
    """Return how many objects an image may have, from ``"3"`` or ``"1..5"``."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()) or not 1 <= int(low) <= int(high or low) <= 50:
        raise SoritesError(
            f"wanted how many objects stand in an image, such as 3 or 1..5 (at most 50), got {text!r}"
        )
    return int(low), int(high or low)


def samples(
    objects: Sequence[Object], recipe: Recipe, count: int, photographs: Sequence[Photograph]
) -> list[Sample]:
    """Return ``count`` images with the boxes of the objects that can be seen; an object that is
    mostly hidden is an attribute.
    """
    if not SIDES[0] <= recipe.side <= SIDES[1]:
        raise SoritesError(f"wanted images of {SIDES[0]} to {SIDES[1]} px, got {recipe.side}")
    by_class: dict[str, list[Object]] = {}
    for obj in objects:
        by_class.setdefault(obj.name, []).append(obj)
    groups = [by_class[name] for name in sorted(by_class)]

    @functools.lru_cache(maxsize=KEPT)
    def image(number: int) -> ImageU8:
        scene, rng = _scene(groups, recipe, number), _rng(recipe, number, "place")
        ground = place(scene.location, recipe.side, rng, photographs)
        cuts = [obj.cut() for obj in scene.objects]
        pixels = to_uint8(draw(cuts, scene.spots, ground, 0.2 if scene.location == "water" else 0.55))
        pixels.flags.writeable = False
        return pixels

    return [_sample(_scene(groups, recipe, n), recipe, n, functools.partial(image, n)) for n in range(count)]


def _rng(recipe: Recipe, number: int, what: str) -> np.random.Generator:
    return rng_for(recipe.seed, f"{number:05d}", f"composites {VERSION} {what}")


def _scene(groups: Sequence[Sequence[Object]], recipe: Recipe, number: int) -> Scene:
    """Draw a scene: a class for each object and one of its cut-outs; the first object says where they are."""
    rng = _rng(recipe, number, "things")
    count = int(rng.integers(recipe.objects[0], recipe.objects[1] + 1))
    chosen = [
        group[int(rng.integers(len(group)))]
        for group in (groups[int(rng.integers(len(groups)))] for _ in range(count))
    ]
    location = chosen[0].places[int(rng.integers(len(chosen[0].places)))]
    spots = stand([obj.cut() for obj in chosen], recipe.side, rng)
    return Scene(tuple(chosen), tuple(spots), location)


def _sample(scene: Scene, recipe: Recipe, number: int, load: Callable[[], ImageU8]) -> Sample:
    shown = list(
        zip(scene.objects, seen([obj.cut() for obj in scene.objects], scene.spots, recipe.side), strict=True)
    )
    hidden = [Attr("hidden", obj.name) for obj, part in shown if part.share < SEEN]
    return Sample(
        id=f"{recipe.id}/{number:05d}",
        load=load,
        ground_truth=tuple(
            _box(obj.label, part) for obj, part in shown if part.share >= SEEN and obj.label is not None
        ),
        attrs=(Attr("location", scene.location), Attr("objects", str(len(shown))), *dict.fromkeys(hidden)),
    )


def _box(label: int, part: Seen) -> Box:
    return Box(part.box, label, area=float(part.area))


# The number of images, of objects in each and of px per side, where the source is given none.
COUNT, OBJECTS, SIDE = 150, "3..8", 640

MOST = 100_000


@add_source
def composites(path: str | None, labels: Labels) -> list[Sample]:
    """Make images of 640 px with 3 to 8 photo cut-outs of COCO's classes and exact boxes;
    ``composites:300`` are 300 of them.

    Further options follow the number: ``composites:300?objects=1..5&size=800&seed=1&places=drawn``.
    """
    allowed = {"objects": (), "size": (), "seed": (), "places": ("drawn", "photographed")}
    number, given = split_options("composites", path or str(COUNT), allowed)
    recipe = Recipe(
        seed=_number("seed", given.get("seed", "0")),
        objects=parse_range(given.get("objects", OBJECTS)),
        side=_number("size", given.get("size", str(SIDE))),
        drawn=given.get("places") == "drawn",
    )
    count = _number("composites", number)
    if not 1 <= count <= MOST:
        raise SoritesError(f"composites: wanted 1 to {MOST:,} images, got {count}")
    return samples(objects(labels), recipe, count, () if recipe.drawn else fetch())


def _number(key: str, text: str) -> int:
    if not text.isdecimal():
        raise SoritesError(
            f"composites: wanted {key} as a whole number, such as composites:{COUNT}?seed=1, got {text!r}"
        )
    return int(text)


def objects(labels: Labels) -> list[Object]:
    """Return the cut-outs of the table, fetched if need be.

    One whose class the labels do not have stands in images without a box.
    """
    found = [
        Object(name, labels.get(name), places, functools.partial(_cut, file))
        for file, name, places in annotation_table()
    ]
    if all(obj.label is None for obj in found):
        raise SoritesError('composites show classes of COCO, and the labels have none of them. Type: --labels coco (in a suite '
                           'labels = "coco")')  # fmt: skip
    debian.fetch(
        stamps.PACKAGE,
        stamps.INSIDE,
        {row.file: row.sha256 for row in stamps.table()},
        cache("stamps"),
        stamps.NOTE,
    )
    return found


@functools.cache
def annotation_table() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the rows of ``composites.tsv``: a stamp's file, its class among COCO's, and the places
    that it is met in.
    """
    lines = files("sorites.sources").joinpath("composites.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple((file, name, tuple(places.split(", "))) for file, name, places in rows)


@functools.cache
def _cut(file: str) -> CutOut:
    path = cache("stamps") / file
    return cut_out(stamps.image(path), stamps.alpha(path))


# Read composites made by ``sorites context``: a dataset folder whose sidecar holds the settings, and a
# file with the boxes.


# The file that maps an image id to the boxes of what it shows.
GROUND_TRUTH = "ground_truth.parquet"


@add_source
def context(path: str | None, labels: Labels) -> list[Sample]:
    """Read objects in common and uncommon settings, with their boxes as truth, from a folder made by
    ``sorites context``.
    """
    if path is None:
        raise SoritesError(
            "composites have to be made first. Type: sorites context --out DIR, and then --source context:DIR"
        )
    root = path_of(path)
    if not is_file(root / sidecar.NAME):
        raise SoritesError(f"{root} holds no composites. Make them with: sorites context --out {root}")
    samples = sidecar.read(root, labels)
    # composites of several objects have their boxes in the sidecar
    if any(sample.ground_truth is not None for sample in samples):
        return samples
    boxes = _boxes(root / GROUND_TRUTH)
    return [replace(s, ground_truth=boxes.get(str(s.image_id), ())) for s in samples]


def _boxes(file: Path) -> dict[str, tuple[Box, ...]]:
    """Map the id of each image to the boxes of what it shows."""
    frame = parquet(file, 'the boxes of composites; make them again with "sorites context"')
    if lost := [name for name in ("image_id", "ground_truth") if name not in frame.columns]:
        raise SoritesError(f"{file}: wanted the columns image_id and truth; {', '.join(lost)} missing")
    refuse_types(frame, {"image_id": SCHEMA["image_id"], "ground_truth": pl.List(BOX)}, file)
    return {
        id_: tuple(_context_box(box, f"{file}, {id_}") for box in some or ())
        for id_, some in frame.select("image_id", "ground_truth").rows()
    }


def _context_box(box: dict[str, float] | None, where: str) -> Box:
    if box is None or any(box[side] is None for side in ("x0", "y0", "x1", "y1", "label")):
        raise SoritesError(f"{where}: wanted x0, y0, x1, y1 and label of each box, got {box}")
    return Box((box["x0"], box["y0"], box["x1"], box["y1"]), int(box["label"]))
