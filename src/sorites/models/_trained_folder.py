"""The folder of a trained model: ``model.safetensors`` with the weights, and ``model.json`` with what they were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sorites.errors import Damaged, SoritesError
from sorites.files import write_bytes
from sorites.models._preprocess import Input
from sorites.reading.places import is_dir, is_file, path_of
from sorites.reading.tensors import Arrays, tensors
from sorites.reading.texts import json_file
from sorites.rng import digest

RECORD, WEIGHTS, UNFINISHED = "model.json", "model.safetensors", "train.json"
MAKE = 'Type: sorites train run RECIPE --out DIR, then name the model "trained:DIR"'


class Record(BaseModel):
    """The content of ``model.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = 1
    network: str
    """The layers, without weights: small, lite0, timm:resnet50."""
    classes: tuple[str, ...]
    """The ids of the classes in the order of the logits."""
    input: Input
    recipe: dict[str, Any]
    recipe_hash: str
    data_hash: str
    """A hash of the ids, labels and contents of the training and validation pictures."""
    pictures: dict[str, int] = {}
    """The number of pictures of each of the two parts."""
    parent: dict[str, Any]
    """The model that training began from: its spec, and a hash of its weights, null where they were random."""
    steps: int
    """Updates of the weights up to these weights."""
    validation: dict[str, Any] | None = None
    """The accuracy on the validation part, with n and a 95 % interval."""
    versions: dict[str, str] = {}
    """The libraries that trained it."""

    def version(self, weights: str) -> str:
        """Return what a run knows the model by: its weights, and what they were made from."""
        return digest(weights, self.recipe_hash, self.data_hash, json.dumps(self.parent, sort_keys=True)).hex()


def write(folder: Path, record: Record, weights: Mapping[str, Any]) -> None:
    """Write both files; the record comes last, so that a folder that has one is whole."""
    from safetensors.torch import save

    write_bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}), folder / WEIGHTS)
    write_bytes((record.model_dump_json(indent=2) + "\n").encode(), folder / RECORD)


def read(folder: str | Path) -> tuple[Record, Arrays]:
    """Return the record and the weights of a trained model; an unfinished training says how to go on."""
    return read_record(folder), tensors(path_of(folder) / WEIGHTS)[0]


def read_record(folder: str | Path) -> Record:
    """Return the record of a trained model."""
    place = path_of(folder)
    if not is_file(place / RECORD):
        raise SoritesError(_why_not(place))
    try:
        return Record.model_validate(json_file(place / RECORD, "the record of a trained model"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Damaged(place / RECORD, f"{where}: {first['msg']}", MAKE) from error


def _why_not(place: Path) -> str:
    if not is_dir(place):
        return f"there is no folder {place} with a trained model. {MAKE}"
    if not is_file(place / UNFINISHED):
        return f"{place} holds no trained model (no {RECORD}). {MAKE}"
    return f"the training in {place} is not finished. To go on, type the command that began it again: {_command(place)}"


def _command(place: Path) -> str:
    held = json_file(place / UNFINISHED)
    said = held.get("command") if isinstance(held, dict) else None
    return str(said) if said else f"sorites train run RECIPE --out {place}"
