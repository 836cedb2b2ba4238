"""The passport as data: a versioned JSON document from which its page, badge and model card are made.

Numbers are rounded to ten decimals, so interrupting and resuming a battery does not change the document.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sorites.core.errors import SoritesError
from sorites.core.messages import command
from sorites.io.files import read_json, write_bytes

NAME = "passport.json"
DECIMALS = 10


class Strict(BaseModel):
    """Base class of the document: immutable, without unknown keys or NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Number(Strict):
    """An estimate with its 95 % interval and number of samples (or images); null is missing."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int


class SettingValue(Number):
    """Accuracy at one severity."""

    severity: float


class Dial(Strict):
    """One shift: the half-accuracy severity, and the curve behind it."""

    part: str
    shift: str
    version: str
    unit: str
    top: float
    """Greatest tested severity."""
    half: Number
    """Half-accuracy severity; a missing value or upper end is beyond ``top``."""
    words: str
    failure_severity: Number
    drop: Number
    """Clean accuracy minus the mean over the shift."""
    accuracy: tuple[SettingValue, ...]


class Grid(Strict):
    """Settings without an order, such as those of a camera or of real lenses: mean, worst and best."""

    part: str
    shift: str
    settings: int
    mean: Number
    worst: Number
    worst_setting: str
    best: Number
    best_setting: str


class SelectiveRisk(Number):
    """Error among the least OOD images, when the model answers only this share of them."""

    coverage: float


class Separation(Number):
    """AUROC of OOD images against in-distribution images by one scorer."""

    kind: str
    scorer: str


class SelfKnowledge(Strict):
    """Whether the model knows when it fails: its selective risk, and its OOD detection."""

    scorer: str
    risk: tuple[SelectiveRisk, ...]
    auroc: tuple[Separation, ...]


class Run(Strict):
    """The run of one part."""

    part: str
    suite: str
    source: str
    digest: str
    """Hash of the content of its images, independent of folder and machine."""
    samples: int
    images: int
    errors: int


class ModelInfo(Strict):
    """The model."""

    name: str
    version: str
    parameters: int | None = None


class BatteryInfo(Strict):
    """The battery."""

    name: str
    version: int
    digest: str


class Passport(Strict):
    """The whole document."""

    schema_name: Literal["sorites-passport"] = Field(default="sorites-passport", alias="schema")
    schema_version: Literal[1] = 1
    sorites: str
    model: ModelInfo
    battery: BatteryInfo
    clean: Number
    shifted: Number
    dials: tuple[Dial, ...]
    grids: tuple[Grid, ...]
    weakest: tuple[str, ...]
    knows: SelfKnowledge | None
    runs: tuple[Run, ...]
    left_out: dict[str, str]
    """Parts that were not measured, with reasons."""
    versions: dict[str, str]
    hash: str = ""

    def dial(self, shift: str) -> Dial:
        """Return the entry of a shift."""
        return next(dial for dial in self.dials if dial.shift == shift)


def rounded(value: Any) -> Any:
    """Round all floats in a value to ten decimals, since summation order changes later digits."""
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0 if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def sealed(passport: Passport) -> Passport:
    """Return a passport with rounded numbers and the hash of its content."""
    content = rounded(passport.model_dump(mode="json", by_alias=True, exclude={"hash"}))
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return Passport.model_validate({**content, "hash": digest})


def write_json(passport: Passport, folder: Path) -> Path:
    """Write ``passport.json`` atomically."""
    text = json.dumps(
        passport.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False, allow_nan=False
    )
    write_bytes(f"{text}\n".encode(), folder / NAME)
    return folder / NAME


def read_passport(folder: Path) -> Passport:
    """Read the passport of a folder.

    Raises:
        SoritesError: It is missing, damaged or was edited.
    """
    path = folder / NAME
    try:
        passport = Passport.model_validate(read_json(path))
    except SoritesError as error:
        raise SoritesError(f"Cannot read {path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SoritesError(
            f"{path} is not a passport of schema 1: {where}: {first['msg']}. Make it again:"
            f" {command('passport', 'MODEL')}"
        ) from error
    if passport.hash != sealed(passport).hash:
        raise SoritesError(
            f"{path} was changed after it was written: its hash differs. Make it again:"
            f" {command('passport', 'MODEL')}"
        )
    return passport
