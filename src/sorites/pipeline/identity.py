"""The causes of a run's numbers, and the id that is their hash.

A key of the suite enters the hash only where it is set to other than its default, so that a key added later moves no id. The
versions of shifts, scorers, models and of the libraries that change numbers are in it; the version of this package is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sorites import core
from sorites.core import Sample
from sorites.pipeline.plan import Plan
from sorites.rng import digest

LIBRARIES = ("numpy", "scipy", "pillow", "onnxruntime", "torch")
"""Libraries whose version can change a pixel or a prediction."""

ASIDE = ("about", "refine", "reference", "distance", "lpips_below", "lpips_measure", "similarity")
"""Keys of a suite that may change from one command to the next in the same run folder."""

Info = dict[str, Any]


def describe(plan: Plan) -> Info:
    """Return what the run's numbers follow from. Batch and workers change no row, the keys ``ASIDE`` no grid row."""
    suite = plan.suite.model_dump(mode="json", exclude=set(ASIDE), exclude_defaults=True)
    scorers = {name: core.scorer_version(name) for name in plan.scorers}
    causes = {
        "suite": {**suite, "name": plan.suite.name, "source": plan.suite.source},
        **_training(plan),
        "labels": digest(*plan.labels.ids, size=8).hex(),
        "stops": {name: list(stops) for name, stops in plan.stops.items()},
        "shifts": {name: shift.version for name, shift in plan.shifts.items()},
        **({"dials": {name: dial.shared for name, dial in plan.own.items()}} if plan.own else {}),
        **({"scorers": scorers} if scorers else {}),
        "models": {name: model.version for name, model in plan.models.items()},
        "versions": versions(),
    }
    whole = plan.suite.model_dump(mode="json")
    return {"run_id": _hash(causes), **causes, "suite": whole}


def versions() -> dict[str, str]:
    """Return the installed versions of the libraries that numbers depend on."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _training(plan: Plan) -> Info:
    """The training pictures by id and label, where the suite has some, and what a search of parameters follows from."""
    if plan.suite.fit is None:
        return {}

    def told(samples: Sequence[Sample]) -> str:
        return digest(*(f"{s.id} {s.label}" for s in samples), size=8).hex()

    searched = {name: list(tried) for name in plan.scorers if (tried := core.scorer_candidates(name))}
    search = {"validation": told(plan.validation), "strange": told(plan.strange), "search": searched}
    return {"fit": told(plan.fit), **(search if plan.suite.fit.search else {})}


def _hash(causes: Mapping[str, Any]) -> str:
    return digest(json.dumps(causes, sort_keys=True), size=8).hex()
