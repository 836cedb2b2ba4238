"""Evaluate one image at any severity, outside of a run, with the code that a run uses.

``Dial`` applies one to three shifts to a sample and asks every model of a plan. For a sample of a run it
gives the pixels and the rows that the run would store at that severity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from sorites.core import CLEAN, Sample, SettingValue, Shift
from sorites.core.compositions import grid_shift
from sorites.core.errors import SoritesError
from sorites.core.packed import as_packed
from sorites.evaluation.images import Shot, captured_shot, shifted_shots
from sorites.evaluation.plan import MAX_FRAMED_BYTES, Plan
from sorites.evaluation.predict import predict
from sorites.evaluation.samples import CleanImages
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.metrics.detection.failure import objects
from sorites.suites.suite import Dial as NamedShift

# Steps of a bisection: the severity is known to 1/256 of the distance between two levels.
BISECTIONS = 8
MAX_SHIFTS = 3
Severities = Mapping[str, float]


@dataclass(frozen=True)
class Turned:
    """An image at some severities, and the rows that the models give for it."""

    shot: Shot
    rows: pl.DataFrame

    def answer(self, model: str) -> int | None:
        """Return the class that a model answers; None if it gave no class."""
        rows = self.rows.filter((pl.col("model") == model) & (pl.col("output") == "label"))
        return rows["pred"].item() if rows.height else None

    def correct(self, model: str) -> bool | None:
        """Return whether the answer of a model is correct; None without ground truth."""
        rows = self.rows.filter((pl.col("model") == model) & (pl.col("output") == "label"))
        return rows["correct"].item() if rows.height else None

    def is_detector(self, model: str) -> bool:
        """Return whether a model gave boxes."""
        return bool(((self.rows["model"] == model) & (self.rows["output"] == "boxes")).any())

    def found(self, model: str) -> frozenset[int] | None:
        """Return the places of the ground-truth boxes that a detector finds, from ``CONFIDENCE`` on; None
        without ground truth, and for classifiers.
        """
        if self.shot.ground_truth is None or not self.is_detector(model):
            return None
        places = objects(self.rows.lazy().filter(pl.col("model") == model), CONFIDENCE)
        return frozenset(places.filter(pl.col("correct"))["object"].to_list())


@dataclass(frozen=True)
class FailureSeverity:
    """Where a model fails on an image: the last severity at which it does not (``holds``), and the first at
    which it does (``fails``).

    ``fails`` is None if the model does not fail up to the highest level, ``holds`` if it fails at 0.
    """

    holds: float | None
    fails: float | None


@dataclass(frozen=True)
class Dial:
    """One sample, the models of a plan, and shifts to apply."""

    plan: Plan
    sample: Sample

    def shift(self, name: str) -> Shift:
        """Return a shift with the options of the plan's suite.

        Raises:
            SoritesError: There is no such shift, or it has no severity.
        """
        shift = self.plan.shifts.get(name) or NamedShift(name=name).shift()
        if not shift.levels:
            raise SoritesError(f"{name} has settings instead of a severity, so it cannot be turned")
        return shift

    def turn(self, severities: Severities, models: Sequence[str] = ()) -> Turned:
        """Return the image at these severities of shifts, and the answers of models; default all models.

        Raises:
            SoritesError: A shift is unknown, or a severity is out of range.
        """
        (turned,) = self.sweep([severities], models)
        return turned

    def at(self, shift: Shift, setting: SettingValue, models: Sequence[str] = ()) -> Turned:
        """Return the image at a setting of a shift, also of one without severity, and the answers of models.

        Args:
            shift: The shift.
            setting: A severity, or params such as a lens and a place of its field.
            models: The models to ask; default all.
        """
        (turned,) = self._answered(self._with_shift(shift, (setting,)), models)
        return turned

    def sweep(self, points: Sequence[Severities], models: Sequence[str] = ()) -> Iterator[Turned]:
        """Yield the image and the answers at each point; all points have the same shifts."""
        names = tuple(points[0]) if points else ()
        if any(tuple(point) != names for point in points):
            raise SoritesError("all points must have the same shifts, in the same order")
        if len(names) > MAX_SHIFTS:
            raise SoritesError(f"expected at most {MAX_SHIFTS} shifts at once, got {len(names)}")
        shifts = [self.shift(name) for name in names]
        for point in points:
            for shift in shifts:
                _check_range(shift, point[shift.name])
        yield from self._answered(self._shots(shifts, points), models)

    def failure_severity(self, shift: str, model: str, others: Severities | None = None) -> FailureSeverity:
        """Return where a model begins to fail as one shift is turned, with others held fixed.

        A model fails where its answer is wrong, or, without ground truth, where it differs from its answer at
        severity 0; a detector fails where it misses an object that it finds at severity 0. The first level at
        which it fails is found first, then the severity by bisection.

        Raises:
            SoritesError: The model is a detector, and the image has no ground-truth boxes.
        """
        fixed, levels = dict(others or {}), (0.0, *self.shift(shift).levels)
        (first,) = self.sweep([{**fixed, shift: 0.0}], [model])
        fails = _failing(model, first)
        if fails(first):
            return FailureSeverity(None, 0.0)
        coarse = self.sweep([{**fixed, shift: level} for level in levels[1:]], [model])
        failed = next((place for place, turned in enumerate(coarse, 1) if fails(turned)), None)
        if failed is None:
            return FailureSeverity(levels[-1], None)
        low, high = levels[failed - 1], levels[failed]
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if fails(self.turn({**fixed, shift: middle}, [model])) else (middle, high)
            )
        return FailureSeverity(low, high)

    def _shots(self, shifts: Sequence[Shift], points: Sequence[Severities]) -> list[tuple[Plan, Shot]]:
        """Return each image with a plan that has its shift; points that turn the same shifts share work.

        A shift at 0 is left out, so that a point on an axis has the pixels of one shift alone.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        for place, point in enumerate(points):
            groups.setdefault(tuple(name for name, severity in point.items() if severity), []).append(place)
        found: dict[int, tuple[Plan, Shot]] = {}
        for names, places in groups.items():
            turned = [shift for shift in shifts if shift.name in names]
            found.update(zip(places, self._of_shifts(turned, [points[i] for i in places]), strict=True))
        return [found[place] for place in range(len(points))]

    def _of_shifts(
        self, turned: Sequence[Shift], points: Sequence[Severities]
    ) -> Iterator[tuple[Plan, Shot]]:
        """Yield the images at points above 0 of all these shifts."""
        if not turned:
            clean = captured_shot(self.plan, self.sample)
            yield from ((self.plan, clean) for _ in points)
            return
        shift, settings = turned[0], [point[turned[0].name] for point in points]
        chosen: tuple[SettingValue, ...] = tuple(settings)
        if len(turned) > 1:
            shift = grid_shift(turned, [[float(point[part.name]) for point in points] for part in turned])
            chosen = tuple({part.name: float(point[part.name]) for part in turned} for point in points)
        yield from self._with_shift(shift, chosen)

    def _with_shift(self, shift: Shift, chosen: tuple[SettingValue, ...]) -> Iterator[tuple[Plan, Shot]]:
        """Yield the images at settings of a shift, with a plan that has it."""
        plan = replace(
            self.plan,
            shifts={**self.plan.shifts, shift.name: shift},
            settings={**self.plan.settings, shift.name: chosen},
        )
        yield from ((plan, shot) for shot in shifted_shots(plan, self.sample, shift.name, chosen))

    def _answered(self, shots: Iterable[tuple[Plan, Shot]], models: Sequence[str]) -> Iterator[Turned]:
        for plan, shot in shots:
            predicted = predict(plan, [shot], 1, models=tuple(models))
            rows = [predictions.rows for predictions in predicted.values()]
            yield Turned(shot, pl.concat(rows) if rows else pl.DataFrame())


def _check_range(shift: Shift, severity: float) -> None:
    if not 0 <= severity <= shift.top:
        raise SoritesError(f"{shift.name}: expected a severity from 0 to {shift.top:g}, got {severity:g}")


def _failing(model: str, first: Turned) -> Callable[[Turned], bool]:
    """Return whether an answer of a model is a failure, given its answer at severity 0."""
    if first.correct(model) is not None:
        return lambda turned: turned.correct(model) is not True
    if first.is_detector(model):
        expected = first.found(model)
        if expected is None:
            raise SoritesError(f"{model} is a detector, and without ground-truth boxes no object can be lost")
        return lambda turned: not expected or not expected <= (turned.found(model) or frozenset())
    return lambda turned: turned.answer(model) != first.answer(model)


def dial(plan: Plan, sample: str | Sample) -> Dial:
    """Return a dial for a clean sample of a plan, by id, or for an image that is not in it.

    Raises:
        SoritesError: The plan has no clean image of this id.
    """
    if isinstance(sample, str):
        if sample not in plan.clean_samples:
            raise SoritesError(f"the source has no clean image of {sample}")
        return Dial(plan, plan.clean_samples[sample])
    samples = as_packed([sample])
    framed = CleanImages(plan.suite, samples, MAX_FRAMED_BYTES)
    return Dial(replace(plan, groups={CLEAN: samples}, framed=framed), sample)
