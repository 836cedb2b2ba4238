"""Numbers of scenes with their resamples, averaged and laid out as answers of box metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.metrics._coco import AREAS, NUMBERS, by_class, over_classes, resampled_values, values
from sorites.metrics._precision import drawn, interval
from sorites.metrics._resampling import checked_resamples
from sorites.metrics._rows import WHOLE, answer_frame
from sorites.metrics._scenes import CLASS, COUNTS, Album, Ints, Scene

RESAMPLES = 1000
Draws = NDArray[np.floating]


@dataclass(frozen=True)
class Line:
    """A number of one group, its value in each resample, and what it was made of."""

    keys: Mapping[str, object]
    value: float
    draws: Draws
    samples: Ints
    more: Mapping[str, object] = field(default_factory=dict)


def counts_of(album: Album, resamples: int) -> NDArray[np.uint8]:
    """Return how often each sample stands in each resample; none where there are no samples to draw from."""
    return drawn(album.samples, checked_resamples(resamples) if album.samples else 0)


def numbers(scene: Scene, names: Sequence[str], counts: NDArray[np.uint8], classed: bool) -> list[Line]:
    """Return COCO's numbers of a scene, one line for each, or one for each class too."""
    classes = by_class(scene, names)
    labels = [one.label for one in classes]
    lines = []
    for name in names:
        found, draws = values(classes, name), resampled_values(classes, name, counts)
        lines += by_label(scene, labels, found, draws, classed, {"number": name}, AREAS[NUMBERS[name].area])
    return lines


def by_label(
    scene: Scene,
    labels: Sequence[int],
    found: Draws,
    draws: Draws,
    classed: bool,
    more: Mapping[str, object],
    sizes: tuple[float, float] = AREAS[0],
) -> list[Line]:
    """Return one line for each class, or one for the mean over classes; it counts the things of these ``sizes`` in px squared."""
    told = {"n": len(scene), **scene.counts, **more}
    area = scene.things.area
    things = scene.things.label[~scene.things.crowd & (area >= sizes[0]) & (area <= sizes[1])]
    samples = np.unique(scene.sample)
    if not classed:
        mean = float(over_classes(found)) if len(found) else float("nan")
        return [Line(scene.keys, mean, over_classes(draws), samples, {"things": len(things), **told})]
    each = zip(labels, found, draws, strict=True)
    return [
        Line({**scene.keys, CLASS: label}, float(one), many, samples, {"things": int((things == label).sum()), **told})
        for label, one, many in each
    ]


def averaged(lines: Iterable[Line], by: Sequence[str], *extra: str) -> list[Line]:
    """Return the means over the settings of each shift, then over shifts, of the lines that agree in ``by``.

    ``extra`` are numbers among ``more`` that are averaged too. A line without a value is left out.
    """
    sound = [line for line in lines if np.isfinite(line.value)]
    per_shift = _merged(sound, [*dict.fromkeys([*by, "shift"])], extra)
    return _merged(per_shift, by, extra)


def _merged(lines: Iterable[Line], by: Sequence[str], extra: Sequence[str]) -> list[Line]:
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line.keys[key] for key in by), []).append(line)
    made = []
    for group in groups.values():
        more = {name: float(np.mean([line.more[name] for line in group])) for name in extra}
        keys = group[0].keys
        samples = np.unique(np.concatenate([line.samples for line in group]))
        value, draws = float(np.mean([line.value for line in group])), np.mean([line.draws for line in group], axis=0)
        made.append(Line(keys, value, draws, samples, {**more, "n": len(samples)}))
    return made


def combined(one: Line, other: Line, how: Callable[[Any, Any], Any], **more: object) -> Line:
    """Return a number made of two that share their resamples."""
    value = float(how(one.value, other.value))
    return Line(one.keys, value, how(one.draws, other.draws), one.samples, {**one.more, **more})


def answer(
    lines: Iterable[Line], album: Album, keys: Sequence[str], *columns: str, then: str | None = None, least: float = 0.0
) -> pl.DataFrame:
    """Lay lines out as by + ``then`` + value, n, low, high and further columns; ``then`` keeps the order in which it came.

    Intervals end at ``least`` and at 1, or nowhere where ``least`` is minus infinity.
    """
    most = 1.0 if np.isfinite(least) else np.inf
    rows: list[dict[str, object]] = []
    for line in lines:
        low, high = interval(line.draws, line.value)
        told = {"low": None if low is None else max(low, least), "high": None if high is None else min(high, most)}
        rows.append({**line.keys, **line.more, **told, "value": line.value if np.isfinite(line.value) else None})
    wanted = [*keys, *([then] if then else ()), "value", "n", "low", "high", *columns]
    whole = dict.fromkeys(("n", "things", *COUNTS), pl.Int64)
    kinds: dict[str, Any] = {**album.kinds, **whole, CLASS: pl.Int32, **({then: pl.String} if then else {})}
    schema: dict[str, Any] = {name: kinds.get(name, pl.Float64) for name in wanted}
    frame = pl.DataFrame([{name: row.get(name) for name in wanted} for row in rows], schema=schema)
    if then is None:
        return answer_frame(frame, keys, *wanted[len(keys) :])
    return frame.sort(keys, maintain_order=True).drop(WHOLE, strict=False)
