"""Use a transform of torchvision v2, albumentations or kornia as a shift.

``transform:module:object?theta=NAME&values=1,2,4`` calls ``object(NAME=value)`` for each severity and applies
the result. Further options are passed to the object: ``&kernel_size=23``. ``pair=yes`` passes (value, value),
for parameters that are ranges. Transforms of albumentations get 8-bit images, those of torch (torchvision v2,
kornia) tensors in 0..1, and other callables 8-bit arrays H x W x 3.

Randomness is seeded per sample, equally for all severities, and p (the probability that a transform is
applied) is 1. Of a random parameter, a range between two equal values makes the severity exact. That a higher
severity changes the image more is checked on a trial image (``check=no`` skips it). It is not known whether
objects move, so that images with boxes are refused unless ``moves=no`` says that they do not.
"""

from __future__ import annotations

import ast
import functools
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from sorites.core import SHIFTS, ImageF32, Shift, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.registry import load_object
from sorites.core.rng import digest
from sorites.core.types import STAGES
from sorites.core.user_code import code_version
from sorites.io.readers import json_value
from sorites.shifts.adapters.dials import Values, check_order, seed_of, values_of

FORM = "transform"
FAMILY = "transform"
# Options that are not passed to the object.
OWN = ("theta", "values", "pair", "check", "moves", "stage")
YES_NO = {"yes": True, "no": False}
EXPECTED = "transform:module:object?theta=NAME&values=1,2,4"
# Libraries whose transforms are applied with a probability, 0.5 by default.
WITH_PROBABILITY = ("albumentations", "kornia")

# Torch, NumPy and Python have one global generator each, which transforms draw from.
_global_generators = threading.Lock()


@dataclass(frozen=True)
class Request:
    """A parsed spec."""

    spec: str
    place: str
    theta: str
    values: Values
    arguments: Mapping[str, Any]
    pair: bool = False
    check: bool = True
    moves: bool = True
    stage: str = "scene"

    @property
    def library(self) -> str:
        """The top package of the object's module."""
        return self.place.partition(":")[0].partition(".")[0]


def parse(spec: str) -> Request:
    """Parse a spec.

    Raises:
        SoritesError: It has another form.

    Example:
        >>> parse("transform:albumentations:Blur?theta=blur_limit&values=3,5,7").values.levels
        (3.0, 5.0, 7.0)
    """
    place, _, query = spec.removeprefix(f"{FORM}:").partition("?")
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise SoritesError(f"shift {spec}: expected key=value, got {part!r}. The form is {EXPECTED}")
        options[key] = value
    if ":" not in place or "theta" not in options or "values" not in options:
        raise SoritesError(f"shift {spec}: expected {EXPECTED}")
    stage = options.get("stage", "scene")
    if stage not in STAGES:
        raise SoritesError(f"shift {spec}: stage is one of {', '.join(STAGES)}, got {stage!r}")
    return Request(
        spec,
        place,
        options["theta"],
        values_of(_numbers(spec, options["values"]), f"shift {spec}"),
        {key: _value(text) for key, text in options.items() if key not in OWN},
        _flag(spec, options, "pair", False),
        _flag(spec, options, "check", True),
        _flag(spec, options, "moves", True),
        stage,
    )


def _flag(spec: str, options: Mapping[str, str], key: str, default: bool) -> bool:
    if options.get(key, "yes") not in YES_NO:
        raise SoritesError(f"shift {spec}: {key} is yes or no, got {options[key]!r}")
    return YES_NO[options[key]] if key in options else default


def _numbers(spec: str, text: str) -> list[int | float]:
    try:
        numbers = json_value(f"[{text}]")
    except ValueError:
        numbers = []
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        numbers = []
    if not numbers:
        raise SoritesError(f"shift {spec}: expected values as numbers, such as values=1,2,4, got {text!r}")
    return list(numbers)


def _value(text: str) -> Any:
    """Return an option as a Python value if it is written as one, otherwise as text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


@functools.lru_cache(maxsize=64)
def transform(spec: str) -> Shift:
    """Return a transform of another library as a shift (transform:module:object?theta=NAME&values=1,2,4)."""
    request = parse(spec)
    if request.library == "albumentations":
        os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it asks a server for its newest version
    make = load_object("shift", request.place)
    if not callable(make):
        raise SoritesError(f"shift {spec}: expected a class or a function, got a {type(make).__name__}")

    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        transform = _made(make, request, severity)
        with _naming_errors(request):
            return _applied(transform, image, seed_of(rng))

    built = Shift(
        spec,
        apply,
        FAMILY,
        request.theta if request.values.direct else "level",
        request.values.levels,
        version=digest(code_version(make), _release(request.library), size=8).hex(),
        about=f"{request.place} with {request.theta} = {', '.join(f'{v:g}' for v in request.values.values)}",
        moves_objects=request.moves,
        stage=request.stage,  # type: ignore[arg-type]
    )
    if request.check:
        check_order(built)
    return built


SHIFTS.add_form(FORM, transform)


def _release(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


@contextmanager
def _naming_errors(request: Request, hint: str = "") -> Iterator[None]:
    """Name the transform in errors that it raises, in one line."""
    try:
        yield
    except SoritesError:
        raise
    except Exception as error:  # a transform may raise anything
        reason = " ".join(str(error).partition("For further information")[0].split())
        raise SoritesError(f"shift {request.spec}: {type(error).__name__}: {reason}{hint}") from error


def _made(make: Callable[..., Any], request: Request, severity: float) -> Callable[..., Any]:
    value = request.values.at(severity)
    probability = {"p": 1.0} if request.library in WITH_PROBABILITY else {}
    given = {**probability, **request.arguments, request.theta: (value, value) if request.pair else value}
    hint = "" if request.pair else f". If {request.theta} is a range, add pair=yes"
    with _naming_errors(request, hint):
        transform: Callable[..., Any] = make(**given)
    if not callable(transform):
        raise SoritesError(f"shift {request.spec}: {request.place}(...) returned no transform")
    return transform


def _applied(transform: Callable[..., Any], image: ImageF32, seed: int) -> ImageF32:
    """Apply a transform with its generators seeded."""
    libraries = {base.__module__.partition(".")[0] for base in type(transform).__mro__}
    if "albumentations" in libraries:
        transform.set_random_seed(seed)  # type: ignore[attr-defined]
        return _as_image(transform(image=to_uint8(image))["image"], image)
    with _global_generators, _seeded(seed, "torch" in libraries):
        if "torch" in libraries:
            return _on_tensor(transform, image, "kornia" in libraries)
        return _as_image(transform(to_uint8(image)), image)


@contextmanager
def _seeded(seed: int, torch_too: bool) -> Iterator[None]:
    """Seed the global generators, and restore them afterwards."""
    plain, array = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        if not torch_too:
            yield
            return
        import torch

        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(array)  # noqa: NPY002


def _on_tensor(transform: Callable[..., Any], image: ImageF32, batched: bool) -> ImageF32:
    import torch

    pixels = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
    moved = transform(pixels[None])[0] if batched else transform(pixels)
    return _as_image(moved.numpy().transpose(1, 2, 0), image)


def _as_image(moved: Any, image: ImageF32) -> ImageF32:
    array = np.asarray(moved)
    if array.shape != image.shape:
        raise SoritesError(
            f"it returned an image of {array.shape} for one of {image.shape}; expected the same"
        )
    return to_float(array) if array.dtype == np.uint8 else np.clip(array, 0, 1).astype(np.float32)
