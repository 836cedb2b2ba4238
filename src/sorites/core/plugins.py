"""Plug-in registries, the decorators that fill them, and look-ups by name."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from sorites.core.errors import Notice, SoritesError, UnknownName, tell
from sorites.core.labels import Labels, imagenet, matched_text
from sorites.core.packed import packed
from sorites.core.progress import phase
from sorites.core.registry import PREFIX, Registry
from sorites.core.samples import (
    ImageU8,
    Sample,
    Source,
)
from sorites.core.specs import check_values, named_spec, parse_call, split_spec, unique_groups
from sorites.core.types import (
    Apply,
    Encoder,
    Measure,
    Metric,
    Model,
    PlainScorer,
    Scorer,
    Shift,
    Stage,
)
from sorites.core.user_code import declared_version, own_measure, own_metric, own_scorer, own_shift
from sorites.io.paths import reason

SHIFTS: Registry[Shift] = Registry("shift", "sorites.shifts", own_shift)
SOURCES: Registry[Callable[[str | None, Labels], Iterable[Sample]]] = Registry("source", "sorites.sources")
MODELS: Registry[Callable[[str | None], Model]] = Registry("model", "sorites.models")
SCORERS: Registry[Callable[..., Any]] = Registry("scorer", "sorites.scorers", own_scorer)
METRICS: Registry[Metric] = Registry("metric", "sorites.metrics", own_metric)
MEASURES: Registry[Measure] = Registry("measure", "sorites.measures", own_measure)
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
    stage: Stage = "scene",
) -> Callable[[Apply], Shift]:
    """Register a shift.

    Use ``@add_shift(family="blur", unit="px", levels=(1, 2, 4))`` on ``name(image, severity, rng)``, or pass
    ``settings`` instead of ``levels`` and decorate ``name(image, params, rng)``.

    Args:
        family: Group of related shifts in reports.
        unit: Unit of the severity.
        levels: Published severities 1, 2, ...
        settings: Named params of a grid without a severity.
        version: Part of a run's identity; change it when pixels change.
        configure: Builds the shift with other options.
        stage: Where in the making of an image the shift acts: scene, optics, sensor, isp or codec. Shifts
            that are applied together are applied in this order.

    Returns:
        A decorator that registers the function under its name and returns the ``Shift``.

    Example:
        >>> import numpy as np, sorites
        >>> @sorites.add_shift(family="light", unit="stops", levels=(0.5, 1, 2))
        ... def half_light(image, severity, rng):
        ...     "Halve the light once per stop."
        ...     return image / 2**severity
        >>> image = np.full((2, 2, 3), 0.5, np.float32)
        >>> float(sorites.shift("half_light")(image, 1.0, np.random.default_rng(0)).max())
        0.25
    """

    def register(apply: Apply) -> Shift:
        about = summary_of(apply)
        registered = Shift(
            apply.__name__,
            apply,
            family,
            unit,
            tuple(map(float, levels)),
            tuple(settings),
            version,
            about,
            configure,
            stage=stage,
        )
        return SHIFTS.add(registered.name, registered)

    return register


def add_source(
    make: Callable[[str | None, Labels], Iterable[Sample]],
) -> Callable[[str | None, Labels], Iterable[Sample]]:
    """Register a source: ``@add_source`` on ``name(path, labels)``, which yields samples.

    Args:
        make: Takes the text after the colon of a spec (None if there is none) and the label space of the
            suite, and yields samples.

    Returns:
        The function itself.

    Example:
        >>> import sorites
        >>> @sorites.add_source
        ... def no_images(path, labels):
        ...     "A source without images."
        ...     return []
        >>> len(sorites.source("no_images").samples)
        0
    """
    return SOURCES.add(make.__name__, make)


def add_model(make: Callable[[str | None], Model]) -> Callable[[str | None], Model]:
    """Register a model: ``@add_model`` on ``name(argument)``.

    Args:
        make: Takes the text after the colon of a spec (None if there is none) and returns a ``Model``.

    Returns:
        The function itself.

    Example:
        >>> import numpy as np, sorites
        >>> @sorites.add_model
        ... def brightness(argument):
        ...     "Two classes: dark and bright."
        ...     def forward(images):
        ...         means = [image.mean() / 255 for image in images]
        ...         return sorites.Outputs(logits=np.array([[1 - m, m] for m in means], np.float32))
        ...     return sorites.Model("brightness", forward)
        >>> sorites.model("brightness")([np.full((8, 8, 3), 255, np.uint8)]).logits.argmax()
        np.int64(1)
    """
    return MODELS.add(make.__name__, make)


def add_scorer(make: Callable[..., Any]) -> Callable[..., Any]:
    """Register a scorer: ``@add_scorer`` on a function ``name(outputs, **params)`` or a subclass of
    ``Scorer``.

    Args:
        make: Returns one OOD score per image, higher = more OOD; or a class whose instances do.

    Returns:
        The function or class itself.

    Example:
        >>> import numpy as np, sorites
        >>> @sorites.add_scorer
        ... def negative_margin(outputs, power=1.0):
        ...     "The negated difference of the two largest logits."
        ...     first, second = np.sort(outputs.logits, axis=1)[:, :-3:-1].T
        ...     return -((first - second) ** power)
        >>> outputs = sorites.Outputs(logits=np.array([[3.0, 1.0], [2.0, 2.0]], np.float32))
        >>> sorites.scorer("negative_margin(power=2.0)")(outputs)
        array([-4., -0.], dtype=float32)
    """
    return SCORERS.add(make.__name__, make)


def add_metric(ask: Metric) -> Metric:
    """Register a metric: ``@add_metric`` on ``name(table, by=(...))``.

    Args:
        ask: Takes a table (a polars LazyFrame) and the columns to group by, and returns a frame with these
            columns, ``value`` and ``n``, and optionally ``low`` and ``high``.

    Returns:
        The metric, which refuses a column that is listed twice.

    Example:
        >>> import polars as pl, sorites
        >>> @sorites.add_metric
        ... def error_rate(table, by=("model",)):
        ...     "Share of misclassified images."
        ...     correct = pl.col("correct").cast(pl.Float64)
        ...     return table.group_by(by).agg(value=1 - correct.mean(), n=pl.len()).collect()
        >>> table = pl.LazyFrame({"model": ["a", "a"], "correct": [True, False]})
        >>> sorites.error_rate(table).rows()
        [('a', 0.5, 2)]
    """
    return METRICS.add(ask.__name__, unique_groups(ask))


def add_measure(
    *, nearer: Literal["lower", "higher"], unit: str = "", version: int | str = 1, whole: bool = False
) -> Callable[[Callable[[ImageU8, ImageU8], float]], Measure]:
    """Register a measure: ``@add_measure(nearer="higher", unit="dB")`` on ``name(reference, moved)``.

    Args:
        nearer: Whether lower or higher values mean that the shifted image is closer to its reference.
        unit: Unit of the value.
        version: Part of the identity of results; change it when numbers change.
        whole: The measure accepts captured images without a frame and of different sizes.

    Returns:
        A decorator that registers the function under its name and returns the ``Measure``.

    Raises:
        SoritesError: ``nearer`` is neither ``"lower"`` nor ``"higher"``.

    Example:
        >>> import numpy as np, sorites
        >>> @sorites.add_measure(nearer="lower")
        ... def largest_change(reference, moved):
        ...     "The largest difference of two pixels."
        ...     return float(abs(reference.astype(int) - moved).max())
        >>> black = np.zeros((2, 2, 3), np.uint8)
        >>> sorites.measure("largest_change")(black, black + 9)
        9.0
    """

    def register(function: Callable[[ImageU8, ImageU8], float]) -> Measure:
        name = function.__name__
        if nearer not in ("lower", "higher"):
            raise SoritesError(f'measure {name}: expected nearer="lower" or nearer="higher", got {nearer!r}')
        about = summary_of(function)
        return MEASURES.add(name, Measure(name, function, nearer, unit, about, version, whole))

    return register


def add_encoder(make: Callable[[str | None], Encoder]) -> Callable[[str | None], Encoder]:
    """Register an encoder: ``@add_encoder`` on ``name(argument)``.

    Args:
        make: Takes the text after the colon of a spec (None if there is none) and returns an ``Encoder``.

    Returns:
        The function itself.
    """
    return ENCODERS.add(make.__name__, make)


def shift(name: str, **options: Any) -> Shift:
    """Return a shift by name.

    Args:
        name: A name from ``sorites list shifts``, or ``"python:module:name"``.
        options: Options of the shift, if it has any.

    Returns:
        The shift, which is called with an image in 0..1, a severity and a random generator.

    Raises:
        UnknownName: There is no such shift or option.
        SoritesError: The shift has no options, or a value has the wrong type.

    Example:
        >>> import sorites
        >>> sorites.shift("coma", padding="reflect").family
        'optics'
    """
    base = SHIFTS.get(name)
    if not options:
        return base
    if base.configure is None:
        raise SoritesError(f"the shift {name} has no options, got {', '.join(options)}")
    parameters = inspect.signature(base.configure).parameters
    for key in options.keys() - parameters.keys():
        raise UnknownName("option", key, parameters, f"The shift {name} has {', '.join(parameters)}.")
    check_values(base.configure, options, f"the shift {name}")
    return replace(base.configure(**options), options=options)


def source(spec: str, labels: Labels | None = None) -> Source:
    """Read a source.

    Args:
        spec: A spec such as ``"stamps"`` or ``"folder:PATH"``.
        labels: The label space of the images; default: the 1000 classes of ImageNet.

    Returns:
        The source with its samples; images are decoded on demand.

    Raises:
        UnknownName: There is no such source.
        SoritesError: The source cannot be read.

    Example:
        >>> import sorites
        >>> sorites.source("stamps").samples[0].load().shape[-1]
        3
    """
    name, argument = split_spec(spec)
    read, space = SOURCES.get(name), labels or imagenet()
    if type(space) is Labels:
        space = replace(space, loose={})
    try:
        samples = packed(read(argument, space))
        _note_similar(spec, space)
        return Source(name, samples)
    except OSError as error:  # no permission, name too long, circular link
        where = f"{error.filename}: " if error.filename else ""
        raise SoritesError(f"source {name}: cannot read {where}{reason(error)}") from error


def _note_similar(spec: str, labels: Labels) -> None:
    """Show the class names of a source that are only similar to those of the label space."""
    if labels.loose:
        shown = matched_text((name, labels.names[label]) for name, label in labels.loose.items())
        text = f"{spec}: class names taken for similar ones: {shown}. If one is wrong, rename it"
        tell(Notice(text, code="similar_classes", matched=dict(labels.loose)), stacklevel=3)


def model(spec: str) -> Model:
    """Load a model.

    Args:
        spec: A spec such as ``"lite0"``, ``"onnx:PATH"`` or ``"v2=onnx:PATH"``.

    Returns:
        The model, which is called with a list of 8-bit images. Its name in the table is the part of the
        spec before ``=``, or else the spec.

    Raises:
        UnknownName: There is no such kind of model.
        MissingExtra: A library that it needs is not installed.
        SoritesError: The model cannot be loaded.
    """
    named, plain = named_spec(spec)
    name, argument = split_spec(plain)
    with phase(f"loading {plain}"):
        loaded = MODELS.get(name)(argument)
    loaded.name = named
    return loaded


def measure(name: str) -> Measure:
    """Return a measure by name.

    Args:
        name: A name from ``sorites list measures``, or ``"python:module:name"``.

    Returns:
        The measure, which is called with two 8-bit images: a reference and its shifted image.

    Raises:
        UnknownName: There is no such measure.

    Example:
        >>> import numpy as np, sorites
        >>> grey = np.full((16, 16, 3), 128, np.uint8)
        >>> sorites.measure("ssim")(grey, grey)
        1.0
    """
    return MEASURES.get(name)


def encoder(spec: str) -> Encoder:
    """Load an image-text encoder.

    Args:
        spec: A spec such as ``"open_clip:ViT-B-32@openai"``, ``"python:module:name"`` or ``"cifar"``.

    Returns:
        The encoder; its name is the spec.

    Raises:
        UnknownName: There is no such kind of encoder.
        MissingExtra: A library that it needs is not installed.
        SoritesError: The encoder cannot be loaded.
    """
    name, argument = split_spec(spec)
    loaded = ENCODERS.get(name)(argument)
    loaded.name = spec
    return loaded


def scorer(spec: str, **params: Any) -> Scorer:
    """Create a scorer.

    Args:
        spec: A name, optionally with parameters: ``"knn(k=10)"`` or ``"python:module:name(k=10)"``.
        params: Parameters, as an alternative to those in the spec.

    Returns:
        A new scorer. Call ``fit`` first if it needs training images, then call it on outputs.

    Raises:
        UnknownName: There is no such scorer or parameter.
        SoritesError: A parameter has the wrong type.

    Example:
        >>> import numpy as np, sorites
        >>> outputs = sorites.Outputs(logits=np.array([[9.0, 0.0], [0.5, 0.0]], np.float32))
        >>> sure, unsure = sorites.scorer("msp")(outputs)
        >>> bool(sure < unsure)
        True
        >>> sorites.scorer("knn", k=10).name
        'knn(k=10)'
    """
    name, params = scorer_params(spec, params)
    make, table_name = SCORERS.get(name), scorer_name(name, params)
    check_values(make, params, f"scorer {name}")
    if not isinstance(make, type):
        ready: Scorer = PlainScorer(functools.partial(make, **params))
    else:
        instance = make(**params)
        ready = instance if isinstance(instance, Scorer) else PlainScorer(instance, instance)
    ready.name = table_name
    return ready


def scorer_version(spec: str) -> int | str:
    """Return the version of a scorer's numbers: attribute ``version`` of its class or function, else
    ``Scorer.version``, and the hash of the files that its parameters name (``content``). That of user code is
    a hash of the code unless it declares a version itself.
    """
    name, params = scorer_params(spec, {})
    made = SCORERS.get(name)
    if name.startswith(PREFIX):
        return declared_version(made)
    version: int | str = getattr(made, "version", Scorer.version)
    content = made.content(**params) if hasattr(made, "content") else ""
    return f"{version} {content}" if content else version


def scorer_candidates(spec: str) -> dict[str, dict[str, Any]]:
    """Return the scorers that a parameter search tries for ``spec``, by name, with the parameters of each.

    These are all combinations of the ``ranges`` of its class or function; parameters set in the spec stay
    fixed. The first parameter varies fastest, as in OpenOOD. Empty if there is nothing to search.
    """
    name, fixed = scorer_params(spec, {})
    ranges: Mapping[str, Sequence[Any]] = getattr(SCORERS.get(name), "ranges", {})
    searched = {key: values for key, values in ranges.items() if key not in fixed}
    combined = itertools.product(*reversed(searched.values())) if searched else ()
    candidates = [dict(zip(searched, reversed(values), strict=True)) for values in combined]
    return {scorer_name(name, {**fixed, **params}): params for params in candidates}


def scorer_name(spec: str, params: Mapping[str, Any] | None = None) -> str:
    """Return the name of a scorer in the table: with the parameters that differ from the defaults, such as
    ``knn(k=10)``.
    """
    name, values = scorer_params(spec, params or {})
    defaults = {p.name: p.default for p in inspect.signature(SCORERS.get(name)).parameters.values()}
    wrong = sorted(values.keys() - defaults.keys())
    if wrong:
        parameters = [key for key in defaults if key != "outputs"]
        raise UnknownName(
            f"parameter of scorer {name}", wrong[0], parameters, f"It has {', '.join(parameters) or 'none'}."
        )
    unusual = ", ".join(f"{key}={value!r}" for key, value in sorted(values.items()) if value != defaults[key])
    return f"{name}({unusual})" if unusual else name


def scorer_params(spec: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Split ``"knn(k=10)"`` into its name and parameters, and merge in ``params``."""
    name, spec_params = parse_call(spec, "scorer")
    return name, {**spec_params, **params}
