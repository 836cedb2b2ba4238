"""The passport as data: a versioned JSON document from which its page, badge and model card are made.

Numbers are rounded to ten decimals, so interrupting and resuming a battery does not change the document.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sorites.core.errors import Damaged
from sorites.core.messages import command
from sorites.evaluation.integrity.evidence import RunEvidence
from sorites.io.digests import read_sealed, write_sealed
from sorites.io.validation import read_typed

NAME = "passport.json"
# Lists the digests of the files of a passport folder, once all are written.
FILES = "files.json"
REPEAT = f"Make it again: {command('passport', 'MODEL')}"
DECIMALS = 10


class Strict(BaseModel):
    """Base class of the document: immutable, without unknown keys or NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Number(Strict):
    """An estimate with its 95 % interval and the number of samples behind both; null is missing."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int


class SettingValue(Number):
    """Accuracy at one severity."""

    severity: float


class Half(Number):
    """Half-accuracy severity: where accuracy is half-way between clean accuracy and chance.

    A missing value is beyond the greatest tested severity if ``status`` is "beyond", and does not exist if it
    is "undefined": clean accuracy is then not clearly above chance.
    """

    status: str
    clean: float | None
    chance: float
    majority: float | None
    """Share of the most frequent class, where it is larger than chance."""
    assumed: bool
    """True if the number of classes was taken from the images, because it is not recorded."""


class Dial(Strict):
    """One shift: the half-accuracy severity, and the curve behind it."""

    part: str
    shift: str
    version: str
    unit: str
    top: float
    """Greatest tested severity."""
    half: Half
    words: str
    failure_severity: Number
    drop: Number
    """Clean accuracy minus the mean height of the accuracy curve between clean and ``top``."""
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


class Alarm(Strict):
    """Effect of a threshold that accepts 95 % of clean images, under one shift at one severity.

    ``n`` counts the samples that did not choose the threshold; of ``caught``, those that are misclassified.
    """

    part: str
    shift: str
    severity: float
    error: Number
    """Share of misclassified images."""
    caught: Number
    """Share of misclassified images that raise an alarm."""
    alarm: Number
    """Share of images that raise an alarm."""
    clean_alarm: Number
    """Share of clean images that raise an alarm."""


class SelfKnowledge(Strict):
    """How well the model knows when it fails: its selective risk, its OOD detection, and its alarms."""

    scorer: str
    risk: tuple[SelectiveRisk, ...]
    auroc: tuple[Separation, ...]
    alarms: tuple[Alarm, ...]


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
    scorer: str
    """The scorer of the selective risk."""


class Passport(Strict):
    """The whole document."""

    schema_name: Literal["sorites-passport"] = Field(default="sorites-passport", alias="schema")
    """The kind of the document."""
    schema_version: Literal[4] = 4
    """The version of this schema."""
    sorites: str
    """The version of Sorites that wrote it."""
    model: ModelInfo
    """The model."""
    battery: BatteryInfo
    """The suites that were run."""
    clean: Number
    """Accuracy on clean images, each sample once."""
    shifted: Number
    """Mean over the listed shifts of the accuracy under each shift, which is the mean over its settings."""
    dials: tuple[Dial, ...]
    """One entry per shift with ordered severities."""
    grids: tuple[Grid, ...]
    """One entry per shift whose settings have no order."""
    weakest: tuple[str, ...]
    """The shifts with the greatest ``drop``."""
    knows: SelfKnowledge | None
    """How well the model knows when it fails; null if that was not measured."""
    runs: tuple[Run, ...]
    """The run of each part."""
    left_out: dict[str, str]
    """Parts that were not measured, with reasons."""
    versions: dict[str, str]
    """The versions of the libraries."""
    hash: str = ""
    """Hash of all the above."""
    evidence: tuple[RunEvidence, ...] = ()
    """The evidence of the numbers: the run of each part, and the digests of its files."""

    def dial(self, shift: str) -> Dial:
        """Return the entry of a shift."""
        return next(dial for dial in self.dials if dial.shift == shift)


# --- Detectors


class HalfLost(Number):
    """Severity at which half of the objects that are found in the clean image are lost; n counts samples.

    A missing value is beyond the greatest tested severity.
    """

    status: str
    objects: int
    """The objects that are found in clean images."""


class BoxDial(Strict):
    """One shift: when objects are lost, and the curves behind it."""

    part: str
    shift: str
    version: str
    unit: str
    top: float
    """Greatest tested severity."""
    half: HalfLost
    words: str
    lost: Number
    """Mean share of the objects found in clean images that are lost, between clean and ``top``."""
    kept: tuple[SettingValue, ...]
    """Share of those objects that are still found; n counts objects."""
    map: tuple[SettingValue, ...]
    """COCO's mAP, clean images first."""


class ErrorCost(Number):
    """AP at IoU .5 that one kind of error costs (TIDE)."""

    images: Literal["clean", "shifted"]
    error: str


class BoxSeparation(Number):
    """AUROC of the OOD score of wrong boxes against right ones; n counts boxes."""

    images: str
    """``clean``, ``shifted`` (all listed shifts) or a shift."""
    right: int
    wrong: int


class BoxKnowledge(Strict):
    """How well the score of a box tells wrong boxes from right ones."""

    scorer: str
    conf: float
    auroc: tuple[BoxSeparation, ...]


class BoxPassport(Strict):
    """The whole document of a detector."""

    schema_name: Literal["sorites-passport-boxes"] = Field(default="sorites-passport-boxes", alias="schema")
    """The kind of the document."""
    schema_version: Literal[2] = 2
    """The version of this schema."""
    sorites: str
    """The version of Sorites that wrote it."""
    model: ModelInfo
    """The model."""
    battery: BatteryInfo
    """The suites that were run."""
    conf: float
    """Boxes of less confidence do not count as found."""
    clean: Number
    """mAP on clean images."""
    shifted: Number
    """Mean over the listed shifts of the mAP under each shift, which is the mean over its severities."""
    recall: Number
    """Share of the objects of clean images that are found."""
    precision: Number
    """Share of the boxes on clean images that find an object."""
    dials: tuple[BoxDial, ...]
    """One entry per shift."""
    tide: tuple[ErrorCost, ...]
    """The AP at IoU .5 that each kind of error costs."""
    weakest: tuple[str, ...]
    """The shifts with the greatest ``lost``."""
    knows: BoxKnowledge | None
    """How well the score of a box tells wrong boxes; null if that was not measured."""
    runs: tuple[Run, ...]
    """The run of each part."""
    left_out: dict[str, str]
    """Parts that were not measured, with reasons."""
    versions: dict[str, str]
    """The versions of the libraries."""
    hash: str = ""
    """Hash of all the above."""
    evidence: tuple[RunEvidence, ...] = ()
    """The evidence of the numbers: the run of each part, and the digests of its files."""

    def dial(self, shift: str) -> BoxDial:
        """Return the entry of a shift."""
        return next(dial for dial in self.dials if dial.shift == shift)


AnyPassport = Passport | BoxPassport
OnePassport = TypeVar("OnePassport", Passport, BoxPassport)


def rounded(value: Any) -> Any:
    """Round all floats in a value to ten decimals, since summation order changes later digits."""
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0 if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def sealed(passport: OnePassport) -> OnePassport:
    """Return a passport with rounded numbers and the hash of its content.

    The hash does not cover the evidence: run ids depend on the paths of images, and the hash does not.
    """
    content = rounded(passport.model_dump(mode="json", by_alias=True, exclude={"hash", "evidence"}))
    whole = {**content, "hash": content_hash(content), "evidence": passport.evidence}
    return type(passport).model_validate(whole)


def content_hash(content: dict[str, Any]) -> str:
    """Return the hash of a document's content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(passport: AnyPassport, folder: Path) -> Path:
    """Write ``passport.json`` atomically, sealed with its digest."""
    write_sealed(passport.model_dump(mode="json", by_alias=True), folder / NAME)
    return folder / NAME


def read_passport(folder: Path) -> AnyPassport:
    """Read the passport of a classifier or a detector.

    Raises:
        Damaged: It is missing, damaged or was edited.
    """
    path = folder / NAME
    content = read_sealed(path, REPEAT) if path.is_file() else {}
    if content.get("schema") == BoxPassport.model_fields["schema_name"].default:
        boxes = read_typed(path, BoxPassport, REPEAT)
        _refuse_changed(path, boxes.hash, sealed(boxes).hash)
        return boxes
    passport = read_typed(path, Passport, REPEAT)
    _refuse_changed(path, passport.hash, sealed(passport).hash)
    return passport


def _refuse_changed(path: Path, recorded: str, computed: str) -> None:
    if recorded != computed:
        raise Damaged(path, "it was changed after it was written: its hash differs", REPEAT)
