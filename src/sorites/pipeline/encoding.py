"""Features by a referee in files that are kept: of any pictures, and of all images of a run, unit by unit on an engine."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from sorites import core
from sorites.core import Picture, Referee
from sorites.engines import Engine
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.pipeline.left_out import LeftOut
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan, Unit
from sorites.pipeline.running import Running, running_in
from sorites.pipeline.shards import slug, stem
from sorites.pipeline.tensors import About, read_tensors
from sorites.progress import Tick
from sorites.referees._features import features

ROOM = "encoded"
"""The room of a run folder that keeps features of its images by referees."""

Named = tuple[str, Picture, bool]
"""The id of a picture, the picture, and whether it is framed."""


def encode(judge: Referee, pictures: Iterable[Named], key: str, left: LeftOut, path: Path) -> None:
    """Write the features of pictures to a file, with their ids under ``key``, and how many of them could not be read."""
    from safetensors.numpy import save

    ids: list[str] = []

    def listed() -> Iterator[tuple[Picture, bool]]:
        for name, picture, framed in pictures:
            ids.append(name)
            yield picture, framed

    readable = listed()
    first = next(readable, None)
    found = np.empty((0, 1), np.float32) if first is None else features(judge, itertools.chain([first], readable))
    about = {key: ids, "left_out": [left.count, left.first], "version": judge.version}
    write_bytes(save({"features": found}, metadata={name: json.dumps(value) for name, value in about.items()}), path)


def about_encoded(path: Path, key: str) -> About:
    """Return what a file of features says of its rows, without the features."""
    about = read_tensors(path, (key,), ())[0]
    match about.get("left_out"):
        case [int(), str()]:
            return about
    raise SoritesError(f"{path} does not say what was left out")


def is_encoded(path: Path, key: str, version: str) -> bool:
    """Return whether a file of features is there and whole, by this version of the referee."""
    if not path.exists():
        return False
    try:
        return bool(about_encoded(path, key).get("version") == version)
    except SoritesError:
        return False


def place_of(folder: Path, unit: Unit, referee: str) -> Path:
    """Return the file of one unit's features."""
    return folder / ROOM / f"{stem(unit, slug(referee))}.safetensors"


def encode_unit(folder: Path, unit: Unit, *, referee: str) -> None:
    """A unit of work: make its pictures again, encode them, and keep the features with the ids of the images."""
    running = running_in(folder)
    judge: Referee = running.once(f"referee {referee}", lambda plan: core.referee(referee))
    left = LeftOut()
    encode(judge, _images(running, unit, left), "image_id", left, place_of(folder, unit, referee))


def _images(running: Running, unit: Unit, left: LeftOut) -> Iterator[Named]:
    for shot in shots(running.plan, unit):
        if shot.picture is None:
            left.add(f"{shot.sample.id}, {shot.shift}", shot.error or "no picture")
        else:
            name = running.plan.image_id(shot.sample, shot.shift, shot.setting)
            yield name, shot.picture, running.plan.is_framed(shot.sample)


def encode_run(folder: Path, plan: Plan, referee: Referee, engine: Engine, workers: int, tick: Tick) -> list[list[Path]]:
    """Encode the units of a run that this version of the referee has not encoded yet.

    Return the files of all units, in groups of about as many images as are searched together.
    """
    units = plan.units()
    todo = [unit for unit in units if not is_encoded(place_of(folder, unit, referee.name), "image_id", referee.version)]
    tick(sum(map(plan.images_of, units)) - sum(map(plan.images_of, todo)))
    for unit, _ in engine(todo, functools.partial(encode_unit, folder, referee=referee.name), workers):
        tick(plan.images_of(unit))
    groups: list[list[Path]] = []
    room = 0
    for unit in units:
        if room <= 0:
            groups.append([])
            room = TOGETHER
        groups[-1].append(place_of(folder, unit, referee.name))
        room -= plan.images_of(unit)
    return groups


TOGETHER = 2048
"""The number of images whose neighbours are searched together, at least."""
