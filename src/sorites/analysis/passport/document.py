"""Define a passport as data: the one source of its page, badge and model card, written as JSON with
a versioned schema.

Numbers are rounded to ten decimals, and nothing in it depends on when or how often the battery was stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sorites.core.errors import SoritesError
from sorites.io.files import read_json, write_bytes

NAME = "passport.json"
DIGITS = 10


class Strict(BaseModel):
    """A part of a passport: immutable, without keys that it does not know, and without NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Number(Strict):
    """An estimate with its 95 % interval and the number of samples (or images) it rests on; null
    is missing.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int


class SettingValue(Number):
    """Accuracy at one severity."""

    severity: float


class Dial(Strict):
    """One dial: how far it may be turned until half of the clean accuracy is lost, and the curve
    behind that.
    """

    part: str
    shift: str
    version: str
    unit: str
    top: float
    """The greatest severity that was tried."""
    half: Number
    """The severity at which half of the clean accuracy is lost; a missing value or high end lies
    beyond the top.
    """
    words: str
    failure_severity: Number
    drop: Number
    """Clean accuracy minus the mean over the dial."""
    accuracy: tuple[SettingValue, ...]


class Grid(Strict):
    """Settings without an order, such as those of a camera or of real lenses: their mean, the worst
    and the best.
    """

    part: str
    shift: str
    settings: int
    mean: Number
    worst: Number
    worst_setting: str
    best: Number
    best_setting: str


class Kept(Number):
    """The share wrong among the least OOD images, where a model answers only so many of them."""

    coverage: float


class Separation(Number):
    """The AUROC by which a score tells OOD images from in-distribution ones."""

    kind: str
    scorer: str


class Knows(Strict):
    """Evidence that the model knows: the errors among its answers, and whether it finds OOD
    images OOD.
    """

    scorer: str
    risk: tuple[Kept, ...]
    auroc: tuple[Separation, ...]


class Run(Strict):
    """The run on which a part was measured."""

    part: str
    suite: str
    source: str
    digest: str
    """A hash of the content of its images; those of another folder or machine have the same, if
    they are the same.
    """
    samples: int
    images: int
    errors: int


class Of(Strict):
    """The model."""

    name: str
    version: str
    parameters: int | None = None


class From(Strict):
    """The battery."""

    name: str
    version: int
    digest: str


class Passport(Strict):
    """Everything that a passport says."""

    schema_name: Literal["sorites-passport"] = Field(default="sorites-passport", alias="schema")
    schema_version: Literal[1] = 1
    sorites: str
    model: Of
    battery: From
    clean: Number
    shifted: Number
    dials: tuple[Dial, ...]
    grids: tuple[Grid, ...]
    weakest: tuple[str, ...]
    knows: Knows | None
    runs: tuple[Run, ...]
    left_out: dict[str, str]
    """Parts that were not measured, with the reason."""
    versions: dict[str, str]
    hash: str = ""

    def dial(self, shift: str) -> Dial:
        """Return the dial of a shift."""
        return next(dial for dial in self.dials if dial.shift == shift)


def rounded(value: Any) -> Any:
    """Return a value in which every number has at most ten decimals: sums in another order differ
    beyond them.
    """
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0 if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def sealed(passport: Passport) -> Passport:
    """Return a passport with rounded numbers and the hash of all it says."""
    held = rounded(passport.model_dump(mode="json", by_alias=True, exclude={"hash"}))
    digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
    return Passport.model_validate({**held, "hash": digest})


def write_json(passport: Passport, folder: Path) -> Path:
    """Write ``passport.json``, whole or not at all."""
    text = json.dumps(
        passport.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False, allow_nan=False
    )
    write_bytes(f"{text}\n".encode(), folder / NAME)
    return folder / NAME


def read_passport(folder: Path) -> Passport:
    """Read the passport in a folder; one that is damaged, or was changed by hand, is an error that
    says so.
    """
    path = folder / NAME
    try:
        found = Passport.model_validate(read_json(path))
    except SoritesError as error:
        raise SoritesError(f"cannot read {path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SoritesError(
            f"{path} is no passport of schema 1: {where}: {first['msg']}. Type: sorites passport MODEL"
        ) from error
    if found.hash != sealed(found).hash:
        raise SoritesError(
            f"{path} was changed after it was written: its hash differs. Make it again: sorites passport"
            " MODEL"
        )
    return found
