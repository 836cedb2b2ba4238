"""Context composites: photo cut-outs in settings that are common or uncommon for them, with 0 to 3 uncommon at once.

Every thing is stood eight times, once for each choice of common or uncommon time, weather and location, in one pose; what is
common for its class is a small table in words (``context.tsv``). Weather stays outdoors and a setting that has nothing uncommon
for a class is left out, so that some things stand fewer times. The clean picture is the one with nothing uncommon; the others
are the shift ``context``, whose severity is how many are. After FOCUS (Kattakinda & Feizi, ICML 2022).
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image as Pillow

from sorites import core
from sorites.core import CLEAN, Attr, Picture, Sample, to_picture
from sorites.datasets.composite import WEATHER, at_night, cut_out, pose, stand, weathered
from sorites.datasets.scenery import place
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.labels import Labels, imagenet
from sorites.rng import digest, fair_order, rng_for
from sorites.sources import _sidecar as sidecar
from sorites.sources._backgrounds import Background, fetch
from sorites.sources.context import TRUTH
from sorites.table import BOX, write

SIZE = 256
"""Pixels of a side; the middle 7/8, which models look at, holds the whole thing."""

KINDS = ("time", "weather", "location")
VERSION = 1


@dataclass(frozen=True)
class Habits:
    """What is usual for a class, in words: times, places, and places where it is not met."""

    name: str
    times: tuple[str, ...]
    common: tuple[str, ...]
    uncommon: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A time, a weather and a location, and which of the three are uncommon for the thing."""

    words: tuple[str, str, str]
    rare: tuple[bool, bool, bool]

    @property
    def level(self) -> int:
        return sum(self.rare)

    def attrs(self, name: str) -> tuple[Attr, ...]:
        told = zip(KINDS, self.words, self.rare, strict=True)
        return (Attr("class", name), *(Attr(k, w, None if w == "none" else not rare) for k, w, rare in told))


def read_habits(text: str) -> dict[str, Habits]:
    """Class id to its habits."""
    rows = [line.split("\t") for line in text.splitlines()[1:] if line.strip()]
    if any(len(row) != 5 for row in rows):
        raise SoritesError("context: wanted lines of id, class, time, common and uncommon places with tabs between them")
    return {id_: Habits(name, *(tuple(cell.split(", ")) for cell in cells)) for id_, name, *cells in rows}


@functools.cache
def habits() -> dict[str, Habits]:
    return read_habits(files("sorites.datasets").joinpath("context.tsv").read_text(encoding="utf-8"))


def settings(own: Habits, rng: np.random.Generator) -> list[Setting]:
    """The settings a thing is stood in, the one with nothing uncommon first; the rng chooses among equals."""
    usual, odd = (str(rng.choice(places)) for places in (own.common, own.uncommon))
    fall = str(rng.choice(list(WEATHER)))
    found = []
    for dark, wet, away in product((False, True), repeat=3):
        where = odd if away else usual
        inside = where == "indoors"
        if (dark and "night" in own.times) or (wet and inside):
            continue
        words = ("night" if dark else "day", fall if wet else "none" if inside else "sunny", where)
        found.append(Setting(words, (dark, wet, away)))
    return sorted(found, key=lambda setting: (setting.level, setting.rare))


def compose(
    sample: Sample, own: Habits, seed: int, photographs: Sequence[Background]
) -> Iterator[tuple[Setting, Picture, tuple[float, float, float, float]]]:
    """The pictures of one thing, with its box in each. The pose, the places and the weather are the sample's own draw."""
    if sample.alpha is None:
        raise SoritesError(f"{sample.id} has no mask: composites need cut-outs, such as --source stamps")
    thing = cut_out(sample.load(), sample.alpha())
    rng = rng_for(seed, sample.id, "context")
    chosen, at = settings(own, rng), pose(rng)
    for setting in chosen:
        time, weather, location = setting.words
        ground = place(location, SIZE, rng_for(seed, sample.id, f"context {location}"), photographs)
        image, box = stand(thing, ground, at, 0.2 if location == "water" else 0.55)
        image = weathered(image, weather, rng_for(seed, sample.id, weather))
        if time == "night":
            image = at_night(image, rng_for(seed, sample.id, "night"))
        yield setting, to_picture(image), box


def build_context(
    out: str | Path,
    source: str = "stamps",
    *,
    seed: int = 0,
    limit: int | None = None,
    drawn: bool = False,
    labels: Labels | None = None,
    tick: Callable[[int], None] = lambda n: None,
) -> tuple[int, int]:
    """Write the composites as a dataset folder; gives how many things and pictures it has.

    ``drawn`` uses drawn places alone, so that no photograph is fetched. Samples whose class has no line in the table of habits
    are left out.
    """
    folder, space = Path(out), labels or imagenet()
    if folder.exists() and any(folder.iterdir()):
        raise SoritesError(f"{folder} is not empty; choose another --out DIR")
    known = [s for s in core.source(source, space) if s.label is not None and space.ids[s.label] in habits()]
    if not known:
        raise SoritesError(f"no sample of {source} has a class with a line in the table of habits")
    chosen = fair_order(known, lambda sample: [sample.id])[:limit]
    photographs = () if drawn else fetch()
    records: list[dict[str, object]] = []
    truth: list[dict[str, object]] = []
    for sample in chosen:
        for setting, picture, box in compose(sample, habits()[space.ids[sample.label or 0]], seed, photographs):
            record = _record(sample, setting, space, source, seed)
            write_bytes(_png(picture), folder / str(record["path"]))
            records.append(record)
            truth.append({"image_id": record["image_id"], "truth": [_box(box, sample.label)]})
        tick(1)
    write(sidecar.frame(records), folder / sidecar.NAME)
    write(pl.DataFrame(truth, schema={"image_id": pl.String, "truth": pl.List(BOX)}), folder / TRUTH)
    return len(chosen), len(records)


def _record(sample: Sample, setting: Setting, space: Labels, source: str, seed: int) -> dict[str, object]:
    words = dict(zip(KINDS, setting.words, strict=True))
    spelled = json.dumps(words, sort_keys=True)
    image_id = digest("context", VERSION, source, sample.id, spelled, seed).hex()
    name = habits()[space.ids[sample.label or 0]].name
    return {
        "path": f"{setting.level}/{space.ids[sample.label or 0]}/{image_id}.png",
        "sample_id": sample.id,
        "image_id": image_id,
        "label": space.ids[sample.label or 0],
        "accept": [space.ids[i] for i in sorted(sample.right)],
        "split": sample.split,
        "attrs": [vars(attr) for attr in setting.attrs(name)],
        "family": "context" if setting.level else CLEAN,
        "shift": "context" if setting.level else CLEAN,
        "severity": float(setting.level),
        "level": setting.level or None,
        "params": spelled,
        "framed": False,
        "seed": seed,
    }


def _box(box: tuple[float, float, float, float], label: int | None) -> dict[str, object]:
    return {**dict(zip(("x0", "y0", "x1", "y1"), box, strict=True)), "label": label, "conf": None}


def _png(picture: Picture) -> bytes:
    buffer = io.BytesIO()
    Pillow.fromarray(picture).save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()
