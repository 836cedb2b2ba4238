"""Features by a referee in files that are kept: of any pictures, and of all images of a run, unit by unit on an engine."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from sorites import core
from sorites.core import Picture, Referee
from sorites.engines import Engine
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.models._export import trial_pictures
from sorites.pipeline.left_out import LeftOut
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan, Unit
from sorites.pipeline.running import Running, running_in
from sorites.pipeline.shards import ENCODED, encoded
from sorites.pipeline.tensors import About, read_header
from sorites.progress import Tick
from sorites.referees._features import features
from sorites.rng import digest

TOGETHER = 2048
"""The least number of images whose neighbours are searched together."""

Named = tuple[str, Picture, bool]
"""The id of a picture, the picture, and whether it is framed."""


def version_of(judge: Referee) -> str:
    """Return the version of a referee; for one that names none, a hash of its features of three pictures, rounded."""
    if judge.version:
        return judge.version
    found = judge.images(trial_pictures((96, 96)), True)
    return f"answers {digest(np.round(found / max(float(np.abs(found).max()), 1e-30), 3).tobytes().hex()).hex()}"


def encode(judge: Referee, version: str, pictures: Iterable[Named], key: str, left: LeftOut, path: Path, stamp: str = "") -> None:
    """Write the features of pictures to a file, with their ids under ``key``, and how many of them could not be read.

    ``stamp`` says what the pictures were read from, and ``content`` is a hash of all that the file holds.
    """
    from safetensors.numpy import save

    ids: list[str] = []

    def listed() -> Iterator[tuple[Picture, bool]]:
        for name, picture, framed in pictures:
            ids.append(name)
            yield picture, framed

    readable = listed()
    first = next(readable, None)
    found = np.empty((0, 1), np.float32) if first is None else features(judge, itertools.chain([first], readable))
    content = digest(json.dumps(ids), hashlib.blake2b(found.tobytes()).hexdigest()).hex()
    about = {key: ids, "left_out": [left.count, left.first], "version": version, "stamp": stamp, "content": content}
    write_bytes(save({"features": found}, metadata={name: json.dumps(value) for name, value in about.items()}), path)


def about_encoded(path: Path, key: str) -> About:
    """Return what a file of features says of its rows, without the features."""
    about = read_header(path)
    match about:
        case {"left_out": [int(), str()], "content": str()} if isinstance(about.get(key), list):
            return about
    raise SoritesError(f"{path} does not say what its features are of. Delete it; it is made again.")


def is_encoded(path: Path, key: str, version: str, stamp: Callable[[], str] = str) -> bool:
    """Return whether a file of features can be kept: it is whole, by this version of the referee, of these pictures.

    One that lacks pictures that could not be read is not kept: they may be readable now.
    """
    try:
        about = about_encoded(path, key)
    except SoritesError:
        return False
    return about.get("version") == version and not about["left_out"][0] and about.get("stamp") == stamp()


def encode_unit(folder: Path, unit: Unit, *, referee: str, version: str) -> None:
    """A unit of work: make its pictures again, encode them, and keep the features with the ids of the images."""
    running = running_in(folder)
    judge: Referee = running.once(f"referee {referee}", lambda plan: core.referee(referee))
    left = LeftOut()
    encode(judge, version, _images(running, unit, left), "image_id", left, encoded(folder, unit, referee))


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
    units, version = plan.units(), version_of(referee)
    there = {path.name for path in (folder / ENCODED).glob("*.safetensors")}
    files = {unit: encoded(folder, unit, referee.name) for unit in units}
    todo = [unit for unit, file in files.items() if file.name not in there or not is_encoded(file, "image_id", version)]
    tick(sum(map(plan.images_of, units)) - sum(map(plan.images_of, todo)))
    for unit, _ in engine(todo, functools.partial(encode_unit, folder, referee=referee.name, version=version), workers):
        tick(plan.images_of(unit))
    groups: list[list[Path]] = []
    room = 0
    for unit in units:
        if room <= 0:
            groups.append([])
            room = TOGETHER
        groups[-1].append(files[unit])
        room -= plan.images_of(unit)
    return groups
