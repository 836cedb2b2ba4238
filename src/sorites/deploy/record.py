"""The content of ``guard.json``: a threshold, what it was chosen on, and the rates that it promises.

Plain dataclasses, so that the runtime needs no validation library. The file ends with a digest of its own
bytes and lists the digests of the files beside it.
"""

from __future__ import annotations

import json
import re
import types
import typing
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from sorites.core.errors import Damaged

SCHEMA = "sorites-guard"
VERSION = 1
NAME, GRAPH, REFERENCE = "guard.json", "guard.onnx", "guard.npz"
DIGEST_BYTES = 16
REMEDY = "Make it again with the command that is in it, or restore it."
_SEAL = re.compile(rb',\n "digest": "(?P<digest>[0-9a-f]{32})"\n}')
_SEAL_LENGTH = len(b',\n "digest": ""\n}') + 2 * DIGEST_BYTES

T = TypeVar("T")


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % interval, of ``n`` images; null where there are none."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class SettingRates:
    """What the guard does at one setting of a shift, estimated on images that did not choose the threshold.

    ``alarm`` is the share of images with an alarm, ``error`` the share that the model gets wrong, ``risk``
    the share that it gets wrong among images without an alarm, and ``caught`` the share with an alarm among
    those that it gets wrong. An OOD image counts as wrong.
    """

    shift: str
    setting: str
    severity: float | None
    alarm: Rate
    error: Rate
    risk: Rate
    caught: Rate


@dataclass(frozen=True)
class Choice:
    """How the threshold was chosen.

    Attributes:
        at: The rule: tpr=0.95, risk=0.05, beyond=SHIFT:SEVERITY or cost=FILE.
        samples: Samples on which the threshold was chosen.
        held_out: Other samples, on which the rates were estimated.
        confidence: Confidence of the promise, for risk and beyond.
        note: What the rule promises, in words.
    """

    at: str
    samples: int
    held_out: int
    confidence: float | None
    note: str


@dataclass(frozen=True)
class Frame:
    """Resize the shorter side to ``resize`` px, then crop the centre ``crop`` px."""

    resize: int
    crop: int | None
    filter: str


@dataclass(frozen=True)
class Preparation:
    """How an image becomes the input of the graph.

    ``mean`` and ``std`` refer to pixels in 0..1 and are not used for 8-bit inputs.
    """

    frame: Frame | None
    size: tuple[int, int]
    crop_pct: float
    filter: str
    mode: str
    layout: str
    dtype: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    batch: int | None


@dataclass(frozen=True)
class Agreement:
    """Images whose scores were compared with those of the run, and the largest difference."""

    images: int
    difference: float | None


@dataclass(frozen=True)
class GuardRecord:
    """The content of ``guard.json``.

    Attributes:
        model: Name of the model in the run.
        model_version: Version of the model: a hash of its weights.
        scorer: Name of the scorer.
        scorer_version: Version of its numbers.
        threshold: An image with a score above it raises an alarm.
        choice: How the threshold was chosen.
        rates: What the guard does at each setting of the run; the first is "all" of them.
        classes: Class ids in the order of the logits of the graph.
        label_space: Class ids of the run, to read labels of new images.
        preparation: How an image becomes an input; null if the graph starts at the outputs of the model.
        set_threshold: Classes of at least this probability are in the prediction set; null without a set.
        coverage: The share of prediction sets of clean images that contain the class.
        fitted: What the scorer was fitted on.
        run_id: Id of the run.
        suite: Name of its suite.
        source: The source of its images.
        agreement: The comparison of guard and run.
        versions: Versions of Sorites and of libraries.
        command: The command that made the guard.
        files: Digests of the files beside it.
    """

    model: str
    model_version: str
    scorer: str
    scorer_version: str
    threshold: float
    choice: Choice
    rates: tuple[SettingRates, ...]
    classes: tuple[str, ...]
    label_space: tuple[str, ...]
    preparation: Preparation | None
    set_threshold: float | None
    coverage: float | None
    fitted: dict[str, int]
    run_id: str
    suite: str
    source: str
    agreement: Agreement
    versions: dict[str, str]
    command: str
    files: dict[str, str] = field(default_factory=dict)

    def rates_of(self, shift: str, setting: str = "") -> SettingRates:
        """Return the rates at a setting.

        Raises:
            KeyError: The guard has none of it.
        """
        for rates in self.rates:
            if rates.shift == shift and rates.setting == setting:
                return rates
        raise KeyError(f"{shift} {setting}".strip())


def digest_of(data: bytes) -> str:
    """Return the digest of some bytes, as everywhere in Sorites."""
    import hashlib  # loads OpenSSL

    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def dump(record: GuardRecord) -> bytes:
    """Return the bytes of ``guard.json``."""
    content = {"schema": SCHEMA, "schema_version": VERSION, **asdict(record)}
    body = json.dumps(content, indent=1, allow_nan=False).encode().removesuffix(b"\n}")
    return b'%s,\n "digest": "%s"\n}' % (body, digest_of(body).encode())


def read(path: Path) -> GuardRecord:
    """Read ``guard.json``.

    Raises:
        Damaged: It is missing, was changed, or is no guard.
    """
    data = read_bytes(path)
    body, end = data[:-_SEAL_LENGTH], data[-_SEAL_LENGTH:]
    seal = _SEAL.fullmatch(end)
    if seal is None or seal["digest"].decode() != digest_of(body):
        raise Damaged(path, "its content does not match its digest", REMEDY)
    content = json.loads(body + b"\n}")
    if content.pop("schema", None) != SCHEMA or content.pop("schema_version", None) != VERSION:
        raise Damaged(path, f"it is not a guard of version {VERSION}", REMEDY)
    try:
        return parsed(GuardRecord, content)
    except (TypeError, ValueError) as error:
        raise Damaged(path, error, REMEDY) from error


def read_bytes(path: Path, digest: str | None = None) -> bytes:
    """Read a file and compare it with a digest.

    Raises:
        Damaged: It cannot be read, or has another digest.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(path, error.strerror or str(error), REMEDY) from error
    if digest is not None and digest_of(data) != digest:
        raise Damaged(path, "its content does not match its digest", REMEDY)
    return data


def parsed(kind: type[T], content: Any) -> T:
    """Return plain data as a dataclass; nested ones too.

    Raises:
        TypeError: A field is missing, unknown or of another type.
    """
    hints = typing.get_type_hints(kind)
    if not isinstance(content, dict):
        raise TypeError(f"expected an object, got {type(content).__name__}")
    unknown = content.keys() - hints.keys()
    missing = {f.name for f in fields(kind)} - content.keys()  # type: ignore[arg-type]
    if unknown or missing:
        raise TypeError(f"expected the fields {', '.join(hints)}, got {', '.join(map(str, content))}")
    return kind(**{name: _value(hints[name], content[name], name) for name in hints})


def _value(hint: Any, value: Any, name: str) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    kind = next(option for option in options if option is not type(None))
    if is_dataclass(kind):
        return parsed(kind, value)  # type: ignore[arg-type]
    if typing.get_origin(kind) is not None:
        return _collection(kind, value, name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name}: expected {kind}, got {value!r}")
    return value


def _collection(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], part, name) for part in value)
    if origin is dict and isinstance(value, dict):
        return {key: _value(arguments[1], part, name) for key, part in value.items()}
    raise TypeError(f"{name}: expected {kind}, got {value!r}")
