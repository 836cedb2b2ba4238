"""Refined failure points: bisect the dial inside each trajectory's first failing bracket.

On the grid a picture is right at one stop and wrong at the next; the crossing lies between. Halving that bracket
until it is narrower than the tolerance costs one model pass a halving and trajectory, the least that a yes-or-no
answer allows. What is found is a crossing inside the first failing bracket; a trajectory that recovers and fails
again elsewhere keeps its first bracket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from sorites.core import CLEAN
from sorites.pipeline.pictures import Shot, turned
from sorites.pipeline.plan import Plan, Unit
from sorites.pipeline.predict import predict


@dataclass
class Bracket:
    """Right at ``low``, wrong at ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def wider(self, step: float) -> bool:
        """Return whether halving it again makes sense: rounding in the stops costs no pass, and floats have an end."""
        return self.high - self.low > step * (1 + 1e-9) and self.low < self.middle < self.high


Brackets = dict[tuple[str, str], Bracket]
"""(model, sample) to its bracket."""


def brackets(grid: pl.DataFrame, shift: str) -> Brackets:
    """Return the first failing bracket of each trajectory that has one; a missing verdict below it leaves the trajectory out."""
    rows = grid.filter(pl.col("output") == "label", pl.col("shift").is_in([CLEAN, shift]), ~pl.col("probe"))
    found: Brackets = {}
    for (model, sample), steps in rows.sort("severity").group_by("model", "sample_id", maintain_order=True):
        low = None
        for severity, correct in steps.select("severity", "correct").iter_rows():
            if correct and (low is not None or severity == 0):
                low = severity
                continue
            if correct is False and low is not None:
                found[str(model), str(sample)] = Bracket(low, severity)
            break
    return found


def refine(
    plan: Plan, unit: Unit, grid: pl.DataFrame, tolerance: float, batch: int, models: Sequence[str]
) -> dict[str, list[pl.DataFrame]]:
    """Return the probe rows of one slice along one dial, by model. ``tolerance`` is a fraction of the top level."""
    step = tolerance * plan.shifts[unit.shift].top
    open_: Brackets = {key: bracket for key, bracket in brackets(grid, unit.shift).items() if bracket.wider(step)}
    rows: dict[str, list[pl.DataFrame]] = {name: [] for name in models}
    while open_:
        verdicts = _round(plan, unit, open_, batch, rows)
        for key, bracket in list(open_.items()):
            correct = verdicts.get(key)
            if correct is None:
                del open_[key]
                continue
            bracket.low, bracket.high = (bracket.middle, bracket.high) if correct else (bracket.low, bracket.middle)
            if not bracket.wider(step):
                del open_[key]
    return rows


def _round(
    plan: Plan, unit: Unit, open_: Brackets, batch: int, rows: dict[str, list[pl.DataFrame]]
) -> dict[tuple[str, str], bool | None]:
    """Show every open trajectory its middle, batched over samples; a model sees only its own."""
    verdicts: dict[tuple[str, str], bool | None] = {}
    for name in rows:
        wanted = {sample: bracket.middle for (model, sample), bracket in open_.items() if model == name}
        found = predict(plan, _middles(plan, unit, wanted), batch, models=[name])[name].rows
        rows[name].append(found)
        labels = found.filter(pl.col("output") == "label").select("sample_id", "correct")
        verdicts |= {(name, sample): correct for sample, correct in labels.iter_rows()}
    return verdicts


def _middles(plan: Plan, unit: Unit, wanted: Mapping[str, float]) -> Iterator[Shot]:
    for sample in plan.groups[unit.shift][unit.start : unit.stop]:
        if sample.id in wanted:
            yield from turned(plan, sample, unit.shift, [wanted[sample.id]], probe=True)
