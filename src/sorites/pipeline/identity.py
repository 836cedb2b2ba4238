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
from sorites.suite import Suite

LIBRARIES = ("numpy", "scipy", "pillow", "onnxruntime", "torch")
"""Libraries whose version can change a pixel or a prediction."""

ASIDE = ("about", "refine", "reference", "distance", "lpips_below", "lpips_measure", "similarity")
"""Keys of a suite that may change from one command to the next in the same run folder."""

FORMER_RELEASES = ("0.2.0", "0.1.0")
"""Releases whose run ids held all keys of the suite, as they were then, and the release itself."""

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


def describe_formerly(plan: Plan, release: str) -> Info:
    """Return the same as release 0.1 or 0.2 described it, with the id it gave: folders of those releases are still accepted."""
    causes = {
        "suite": _former_suite(plan.suite),
        **_training(plan),
        "labels": digest(*plan.labels.ids, size=8).hex(),
        "stops": {name: list(stops) for name, stops in plan.stops.items()},
        "shifts": {name: shift.version for name, shift in plan.shifts.items()},
        "models": {name: model.first_version() for name, model in plan.models.items()},
        "versions": {"sorites": release, **versions()},
    }
    return {"run_id": _hash(causes) if _was_possible(plan) else "", **causes}


_FORMER_KEYS: Mapping[str, tuple[str, ...]] = {
    "suite": ("name", "source", "labels", "frame", "models", "shifts", "scorers", "limit", "seed"),
    "frame": ("resize", "crop", "filter"),
    "shifts": ("name", "levels", "severities", "settings", "options"),
    "fit": ("source", "split", "limit"),
}
"""The keys that suites had up to release 0.2, the ones set aside left out."""


def _former_suite(suite: Suite) -> Info:
    dumped = suite.model_dump(mode="json")
    former = {key: dumped[key] for key in _FORMER_KEYS["suite"]}
    former["frame"] = dumped["frame"] and {key: dumped["frame"][key] for key in _FORMER_KEYS["frame"]}
    former["shifts"] = [{key: dial[key] for key in _FORMER_KEYS["shifts"]} for dial in dumped["shifts"]]
    return former | ({"fit": {key: dumped["fit"][key] for key in _FORMER_KEYS["fit"]}} if suite.fit else {})


def _was_possible(plan: Plan) -> bool:
    """Return whether releases up to 0.2 would have given the same numbers.

    They had fewer keys of a suite, no dials of samples' own, and let scorers see classes that the suite does not ask about.
    """
    suite = plan.suite
    if plan.own or (plan.restricted and plan.scorers):
        return False
    given = suite.model_dump(mode="json", exclude=set(ASIDE), exclude_defaults=True)
    parts = [(given, (*_FORMER_KEYS["suite"], "fit"))]
    parts += [(given.get(key) or {}, _FORMER_KEYS[key]) for key in ("frame", "fit")]
    parts += [(dial, _FORMER_KEYS["shifts"]) for dial in given.get("shifts", ())]
    return all(set(part) <= set(keys) for part, keys in parts)


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
