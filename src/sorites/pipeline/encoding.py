"""Features of all images of a run by a referee, unit by unit on an engine: what is encoded is kept, and not encoded again."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np

from sorites import core
from sorites.core import Features, Referee
from sorites.engines import Engine
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.pipeline.left_out import LeftOut
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan, Unit
from sorites.pipeline.running import running_in
from sorites.pipeline.shards import slug, stem
from sorites.pipeline.tensors import read_tensors
from sorites.progress import Tick
from sorites.referees._features import features

ROOM = "encoded"
"""The room of a run folder that keeps features of its images by referees."""


def place_of(folder: Path, unit: Unit, referee: str) -> Path:
    """Return the file of one unit's features."""
    return folder / ROOM / f"{stem(unit, slug(referee))}.safetensors"


def encode_unit(folder: Path, unit: Unit, *, referee: str) -> None:
    """A unit of work: make its pictures again, encode them, and keep the features with the ids of the images."""
    from safetensors.numpy import save

    running = running_in(folder)
    judge: Referee = running.once(f"referee {referee}", lambda plan: core.referee(referee))
    keys: list[str] = []
    lost: list[tuple[str, str]] = []
    pictures = []
    for shot in shots(running.plan, unit):
        if shot.picture is None:
            lost.append((f"{shot.sample.id}, {shot.shift}", shot.error or "no picture"))
        else:
            keys.append(running.plan.image_id(shot.sample, shot.shift, shot.setting))
            pictures.append((shot.picture, running.plan.is_framed(shot.sample)))
    found = features(judge, pictures) if pictures else np.empty((0, 1), np.float32)
    about = {"image_id": json.dumps(keys), "lost": json.dumps(lost), "version": json.dumps(judge.version)}
    write_bytes(save({"features": found}, metadata=about), place_of(folder, unit, referee))


def encoded(
    folder: Path, plan: Plan, referee: Referee, engine: Engine, workers: int, tick: Tick, left: LeftOut
) -> tuple[list[str], Features]:
    """Return the ids of all images of a run that can be made, and their features; what another version encoded is done again."""
    units = plan.units()
    todo = [unit for unit in units if not _kept(folder, unit, referee)]
    tick(sum(map(plan.images_of, units)) - sum(map(plan.images_of, todo)))
    for unit, _ in engine(todo, functools.partial(encode_unit, folder, referee=referee.name), workers):
        tick(plan.images_of(unit))
    keys: list[str] = []
    parts: list[Features] = []
    for unit in units:
        about, arrays = read_tensors(place_of(folder, unit, referee.name), ("image_id",))
        for what, why in about.get("lost", ()):
            left.add(what, why)
        keys += about["image_id"]
        parts += [arrays["features"]] if about["image_id"] else []
    if not parts:
        raise SoritesError(f"there are no pictures for referee {referee.name} to look at")
    return keys, np.concatenate(parts)


def _kept(folder: Path, unit: Unit, referee: Referee) -> bool:
    """Return whether a unit's features are there, by this version of the referee."""
    path = place_of(folder, unit, referee.name)
    if not path.exists():
        return False
    try:
        return bool(read_tensors(path, ("image_id",), ())[0].get("version") == referee.version)
    except SoritesError:
        return False
