"""Pictures with exact boxes that need no annotations: several photo cut-outs of 24 COCO classes in one place.

The table ``composites.tsv`` says which of the stamps shows which class and where it is met; we made it by eye. The cut-outs are
Debian's ``tuxpaint-stamps-default`` (GPL-2+), the photographs of places are in ``backgrounds.tsv`` with their licences; both are
fetched once, and other places are drawn. A box holds the part of a thing that can be seen.
"""

from __future__ import annotations

import functools
from importlib.resources import files

from sorites.core import Sample, add_source
from sorites.errors import SoritesError
from sorites.files import cache
from sorites.labels import Labels
from sorites.scenes.composite import CutOut, cut_out
from sorites.sources import _backgrounds as backgrounds
from sorites.sources import _debian as debian
from sorites.sources import stamps
from sorites.sources._options import split_options
from sorites.sources._scattered import Recipe, Thing, parse_range, samples

COUNT, THINGS, SIDE = 150, "3..8", 640
"""The number of pictures, of things in each and of px per side, where the source is given none."""

MOST = 100_000


@add_source
def composites(path: str | None, labels: Labels) -> list[Sample]:
    """Make pictures of 640 px with 3 to 8 photo cut-outs of COCO's classes and exact boxes; ``composites:300`` are 300 of them.

    Further options follow the number: ``composites:300?things=1..5&size=800&seed=1&places=drawn``.
    """
    allowed = {"things": (), "size": (), "seed": (), "places": ("drawn", "photographed")}
    number, given = split_options("composites", path or str(COUNT), allowed)
    recipe = Recipe(
        seed=_number("seed", given.get("seed", "0")),
        things=parse_range(given.get("things", THINGS)),
        side=_number("size", given.get("size", str(SIDE))),
        drawn=given.get("places") == "drawn",
    )
    count = _number("composites", number)
    if not 1 <= count <= MOST:
        raise SoritesError(f"composites: wanted 1 to {MOST:,} pictures, got {count}")
    return samples(things(labels), recipe, count, () if recipe.drawn else backgrounds.fetch())


def _number(key: str, text: str) -> int:
    if not text.isdecimal():
        raise SoritesError(f"composites: wanted {key} as a whole number, such as composites:{COUNT}?seed=1, got {text!r}")
    return int(text)


def things(labels: Labels) -> list[Thing]:
    """Return the cut-outs of the table, fetched if need be. One whose class the labels do not have stands in pictures without
    a box."""
    found = [Thing(name, labels.get(name), places, functools.partial(_cut, file)) for file, name, places in table()]
    if all(thing.label is None for thing in found):
        raise SoritesError('composites show classes of COCO, and the labels have none of them. Type: --labels coco (in a suite '
                           'labels = "coco")')  # fmt: skip
    debian.fetch(stamps.PACKAGE, stamps.INSIDE, {row.file: row.sha256 for row in stamps.table()}, cache("stamps"), stamps.NOTE)
    return found


@functools.cache
def table() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the rows of ``composites.tsv``: a stamp's file, its class among COCO's, and the places that it is met in."""
    lines = files("sorites.sources").joinpath("composites.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple((file, name, tuple(places.split(", "))) for file, name, places in rows)


@functools.cache
def _cut(file: str) -> CutOut:
    path = cache("stamps") / file
    return cut_out(stamps.picture(path), stamps.alpha(path))
