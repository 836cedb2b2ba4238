"""The plug-in registries, the decorators that add to them, and the look-ups by name."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, imagenet
from sorites.core.packed import packed
from sorites.core.registry import Registry
from sorites.core.samples import (
    CLEAN,
    Attr,
    Box,
    ImageF32,
    ImageU8,
    OwnDial,
    Sample,
    Setting,
    Source,
    read_only,
    to_float,
    to_uint8,
)
from sorites.core.specs import called_with, grouped_once, named_spec, refuse_values, split_spec
from sorites.core.types import (
    Apply,
    Batches,
    Encoder,
    Examples,
    Features,
    Head,
    Measure,
    Metric,
    Model,
    Outputs,
    PlainScorer,
    Scorer,
    SettingValue,
    Shift,
    Sweep,
)
from sorites.io.paths import reason

__all__ = [
    "CLEAN",
    "ENCODERS",
    "MEASURES",
    "METRICS",
    "MODELS",
    "SCORERS",
    "SHIFTS",
    "SOURCES",
    "Apply",
    "Attr",
    "Batches",
    "Box",
    "Encoder",
    "Examples",
    "Features",
    "Head",
    "ImageF32",
    "ImageU8",
    "Measure",
    "Metric",
    "Model",
    "Outputs",
    "OwnDial",
    "Sample",
    "Scorer",
    "Setting",
    "SettingValue",
    "Shift",
    "Source",
    "Sweep",
    "add_encoder",
    "add_measure",
    "add_metric",
    "add_model",
    "add_scorer",
    "add_shift",
    "add_source",
    "encoder",
    "measure",
    "model",
    "named_spec",
    "read_only",
    "scorer",
    "shift",
    "source",
    "split_spec",
    "to_float",
    "to_uint8",
]  # fmt: skip

SHIFTS: Registry[Shift] = Registry("shift", "sorites.shifts")
SOURCES: Registry[Callable[[str | None, Labels], Iterable[Sample]]] = Registry("source", "sorites.sources")
MODELS: Registry[Callable[[str | None], Model]] = Registry("model", "sorites.models")
SCORERS: Registry[Callable[..., Any]] = Registry("scorer", "sorites.scorers")
METRICS: Registry[Metric] = Registry("metric", "sorites.metrics")
MEASURES: Registry[Measure] = Registry("measure", "sorites.measures")
ENCODERS: Registry[Callable[[str | None], Encoder]] = Registry("encoder", "sorites.encoders")


def summary_of(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].split())


def add_shift(
    *,
    family: str,
    unit: str,
    levels: Sequence[float] = (),
    settings: Sequence[Mapping[str, Any]] = (),
    version: int | str = 1,
    configure: Callable[..., Shift] | None = None,
) -> Callable[[Apply], Shift]:
    """``@add_shift(family="blur", unit="px", levels=(1, 2, 4))`` over ``name(image, severity,
    rng)``; or, with ``settings=`` instead of levels, over ``name(image, params, rng)``.
    """

    def register(apply: Apply) -> Shift:
        about = summary_of(apply)
        made = Shift(
            apply.__name__,
            apply,
            family,
            unit,
            tuple(map(float, levels)),
            tuple(settings),
            version,
            about,
            configure,
        )
        return SHIFTS.add(made.name, made)

    return register


def add_source(
    make: Callable[[str | None, Labels], Iterable[Sample]],
) -> Callable[[str | None, Labels], Iterable[Sample]]:
    """``@add_source`` over ``name(path, labels)`` that yields samples."""
    return SOURCES.add(make.__name__, make)


def add_model(make: Callable[[str | None], Model]) -> Callable[[str | None], Model]:
    """``@add_model`` over ``name(argument)``; the argument is what follows the colon in ``name:argument``."""
    return MODELS.add(make.__name__, make)


def add_scorer(make: Callable[..., Any]) -> Callable[..., Any]:
    """``@add_scorer`` over a function ``name(outputs, **params)``, or over a subclass of ``Scorer``."""
    return SCORERS.add(make.__name__, make)


def add_metric(ask: Metric) -> Metric:
    """``@add_metric`` over ``name(table, by=(...))``."""
    return METRICS.add(ask.__name__, grouped_once(ask))


def add_measure(
    *, nearer: Literal["lower", "higher"], unit: str = "", version: int | str = 1, whole: bool = False
) -> Callable[[Callable[[ImageU8, ImageU8], float]], Measure]:
    """Register a measure: ``@add_measure(nearer="higher", unit="dB")`` over ``name(reference, moved)``.

    ``nearer`` says which values mean that the moved image is nearer to its reference; a ``whole``
    measure takes captured images without a frame and of any size.
    """

    def register(function: Callable[[ImageU8, ImageU8], float]) -> Measure:
        name = function.__name__
        if nearer not in ("lower", "higher"):
            raise SoritesError(f'measure {name}: wanted nearer="lower" or nearer="higher", got {nearer!r}')
        about = summary_of(function)
        return MEASURES.add(name, Measure(name, function, nearer, unit, about, version, whole))

    return register


def add_encoder(make: Callable[[str | None], Encoder]) -> Callable[[str | None], Encoder]:
    """Register an encoder: ``@add_encoder`` over ``name(argument)``; the argument follows the colon
    in ``name:argument``.
    """
    return ENCODERS.add(make.__name__, make)


def shift(name: str, **options: Any) -> Shift:
    """``shift("coma")``, or with its own options ``shift("coma", padding="reflect")``."""
    found = SHIFTS.get(name)
    if not options:
        return found
    if found.configure is None:
        raise SoritesError(f"the shift {name} has no options, got {', '.join(options)}")
    known = inspect.signature(found.configure).parameters
    for key in options.keys() - known.keys():
        raise UnknownName("option", key, known, f"The shift {name} has {', '.join(known)}.")
    refuse_values(found.configure, options, f"the shift {name}")
    return replace(found.configure(**options), options=options)


def source(spec: str, labels: Labels | None = None) -> Source:
    """``"stamps"``, ``"folder:PATH"``; labels default to ImageNet's thousand."""
    name, argument = split_spec(spec)
    read = SOURCES.get(name)
    try:
        return Source(name, packed(read(argument, labels or imagenet())))
    except OSError as error:  # a folder that may not be read, a name too long, a link that leads in a circle
        where = f"{error.filename}: " if error.filename else ""
        raise SoritesError(f"source {name}: cannot read {where}{reason(error)}") from error


def model(spec: str) -> Model:
    """``"lite0"``, ``"onnx:PATH"``, ``"v2=onnx:PATH"``; its name in the table is the one given,
    else the spec.
    """
    named, plain = named_spec(spec)
    name, argument = split_spec(plain)
    made = MODELS.get(name)(argument)
    made.name = named
    return made


def measure(name: str) -> Measure:
    """Return a measure of images by name: ``measure("ssim")(reference, moved)``."""
    return MEASURES.get(name)


def encoder(spec: str) -> Encoder:
    """Return an encoder: ``"open_clip:ViT-B-32@openai"``, ``"python:module:name"``, ``"cifar"``; its
    name is the spec as given.
    """
    name, argument = split_spec(spec)
    made = ENCODERS.get(name)(argument)
    made.name = spec
    return made


def scorer(spec: str, **params: Any) -> Scorer:
    """``scorer("knn", k=10)`` or ``scorer("knn(k=10)")``: fit it first where it needs that, then
    call it on outputs.
    """
    name, params = scorer_params(spec, params)
    make, called = SCORERS.get(name), scorer_name(name, params)
    refuse_values(make, params, f"scorer {name}")
    if not isinstance(make, type):
        ready: Scorer = PlainScorer(functools.partial(make, **params))
    else:
        found = make(**params)
        ready = found if isinstance(found, Scorer) else PlainScorer(found, found)
    ready.name = called
    return ready


def scorer_version(spec: str) -> int | str:
    """The version of a scorer's numbers: the attribute ``version`` of its class or function, else
    that of ``Scorer``.
    """
    version: int | str = getattr(SCORERS.get(scorer_params(spec, {})[0]), "version", Scorer.version)
    return version


def scorer_candidates(spec: str) -> dict[str, dict[str, Any]]:
    """The scorers that a search tries in the place of ``spec``, by name, with the values tried of
    each parameter.

    These are all combinations of the ranges of its class or function; a parameter that the spec
    sets stays as it is. The first parameter changes fastest, as in OpenOOD. None where there is
    nothing to try.
    """
    name, given = scorer_params(spec, {})
    ranges: Mapping[str, Sequence[Any]] = getattr(SCORERS.get(name), "ranges", {})
    open_ones = {key: values for key, values in ranges.items() if key not in given}
    combined = itertools.product(*reversed(open_ones.values())) if open_ones else ()
    tried = [dict(zip(open_ones, reversed(values), strict=True)) for values in combined]
    return {scorer_name(name, {**given, **params}): params for params in tried}


def scorer_name(spec: str, params: Mapping[str, Any] | None = None) -> str:
    """A scorer as the table calls it: its name, with the parameters that are not its defaults:
    ``knn(k=10)``.
    """
    name, given = scorer_params(spec, params or {})
    defaults = {p.name: p.default for p in inspect.signature(SCORERS.get(name)).parameters.values()}
    wrong = sorted(given.keys() - defaults.keys())
    if wrong:
        known = [key for key in defaults if key != "outputs"]
        raise UnknownName(
            f"parameter of scorer {name}", wrong[0], known, f"It has {', '.join(known) or 'none'}."
        )
    unusual = ", ".join(f"{key}={value!r}" for key, value in sorted(given.items()) if value != defaults[key])
    return f"{name}({unusual})" if unusual else name


def scorer_params(spec: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """``"knn(k=10)"`` is the name ``knn`` and its parameters, with further ones beside them."""
    name, written = called_with(spec, "scorer")
    return name, {**written, **params}
