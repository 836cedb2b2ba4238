"""OpenOOD's search of scorers' parameters: every combination of a scorer's ranges is tried on validation pictures, and the one
with the largest AUROC between familiar and strange ones is taken (Zhang et al. 2023; of equal ones the first, as released)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sorites import core
from sorites.core import Outputs, Scorer
from sorites.errors import SoritesError
from sorites.metrics._separation import auroc, pair
from sorites.pipeline.plan import Plan

Told = dict[str, Any]
"""The result of a search, as it is kept in ``fits/fitted.json``."""


@dataclass(frozen=True)
class Pools:
    """The outputs of familiar and of strange validation pictures of one model, as one scorer needs them."""

    familiar: Outputs
    strange: Outputs


def searched(plan: Plan) -> dict[str, dict[str, dict[str, Any]]]:
    """The plan's scorers whose parameters are to be searched, each with its candidates; none without ``search = true``."""
    if plan.suite.fit is None or not plan.suite.fit.search:
        return {}
    return {name: tried for name in plan.scorers if (tried := core.scorer_candidates(name))}


def every(plan: Plan) -> dict[str, Scorer]:
    """All scorers that are asked before a run begins: the candidates in the place of those that are searched."""
    found: dict[str, Scorer] = {}
    for name, scorer in plan.scorers.items():
        found |= {other: core.scorer(other) for other in searched(plan).get(name, ())} or {name: scorer}
    return found


def best(spec: str, model: str, ready: Callable[[str], Scorer], pools: Callable[[str], Pools]) -> tuple[Scorer, Told]:
    """Return the candidate with the largest AUROC, ready to be called, and what was tried.

    ``ready`` fits a candidate by name and ``pools`` gives the validation pictures as it needs them. A candidate that cannot be
    fitted (there may be too few training pictures for its k) or cannot score them is left out, with the reason; if all are,
    that is an error.
    """
    kept: tuple[float, Scorer, Mapping[str, Any]] | None = None
    told: list[Told] = []
    for name, params in core.scorer_candidates(spec).items():
        shown = pools(name)
        try:
            scorer = ready(name)
            value = _separates(scorer, shown)
        except SoritesError as error:
            told.append({"params": params, "left_out": str(error)})
            continue
        told.append({"params": params, "auroc": value})
        if kept is None or value > kept[0]:
            kept = value, scorer, params
    if kept is None:
        raise SoritesError(f"search: no parameters of {spec} can be tried with {model}: {told[0]['left_out']}")
    return kept[1], {"chosen": dict(kept[2]), "auroc": kept[0], "tried": told}


def _separates(scorer: Scorer, pools: Pools) -> float:
    familiar, strange = (np.asarray(scorer(part), np.float64) for part in (pools.familiar, pools.strange))
    wrong = int((~np.isfinite(familiar)).sum() + (~np.isfinite(strange)).sum())
    if wrong:
        raise SoritesError(f"scorer {scorer.name} gave {wrong} scores that are not finite")
    return auroc(pair(familiar, strange))


def chosen_name(spec: str, told: Mapping[str, Any]) -> str:
    """Return the name of the candidate that a kept search chose."""
    return next(name for name, params in core.scorer_candidates(spec).items() if params == told["chosen"])
