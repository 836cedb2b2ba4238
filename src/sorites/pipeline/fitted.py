"""Scorers fitted from what ``fits/`` keeps, their parameters searched where the suite asks for it, and the record of both."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sorites import core
from sorites.core import Head, Outputs, Scorer
from sorites.errors import SoritesError
from sorites.files import read_json, write_bytes
from sorites.frame import Fit
from sorites.pipeline.fit import STRANGE, VALIDATION, fit_on, kept_files, kept_outputs, kept_slices
from sorites.pipeline.plan import Plan
from sorites.pipeline.running import Running
from sorites.pipeline.scoring import for_model
from sorites.pipeline.search import Pools, Told, best, chosen_name, searched

RECORD = "fits/fitted.json"


def ready(folder: Path, running: Running) -> Plan:
    """Return the plan with every model's own scorers, fitted once per process from what ``fits/`` keeps."""

    def fitted(plan: Plan) -> Plan:
        own: dict[str, dict[str, Scorer]] = {name: {} for name in plan.models}
        searches: dict[str, dict[str, Told]] = {name: {} for name in plan.models if searched(plan)}
        before = read_record(folder)
        for name, model in plan.models.items():
            fits = Fits(folder, name, model.head, plan.suite.fit, before.get(name, {}).get("search", {}))
            for spec, scorer in plan.scorers.items():
                own[name][spec], told = fits.scorer(spec, scorer)
                if told is not None:
                    searches[name][spec] = told
        return replace(plan, fitted=own, searches=searches)

    return running.once("fitted", fitted)


@dataclass(frozen=True)
class Fits:
    """The files that a run folder keeps for the scorers of one model; ``before`` are searches that were made already."""

    folder: Path
    model: str
    head: Head | None
    fit: Fit | None = None
    before: Mapping[str, Told] = field(default_factory=dict)

    def scorer(self, spec: str, scorer: Scorer) -> tuple[Scorer, Told | None]:
        """Return a scorer fitted for this model, and what a search of its parameters found where the suite asks for one."""
        if self.fit is None or not self.fit.search or not core.scorer_candidates(spec):
            return self._fitted(scorer), None
        told = self.before.get(spec)
        if told is not None:
            found = self._candidate(chosen_name(spec, told))
        else:
            found, told = best(spec, self.model, self._candidate, functools.cache(self._pools))
        found.name = spec
        return found, told

    def _candidate(self, name: str) -> Scorer:
        return self._fitted(core.scorer(name))

    def _fitted(self, scorer: Scorer) -> Scorer:
        ready = for_model(scorer, self.head)
        if "training" in scorer.needs:
            fit_on(ready, self.folder, kept_slices(self.folder, self.model), self.model, self.head)
        return ready

    def _pools(self, name: str) -> Pools:
        """The validation pictures as the candidate ``name`` needs them: familiar to this model, and strange."""
        fit = self.fit
        assert fit is not None
        assert fit.validation is not None
        own, familiar, strange = fit.validation.strange is None, list[Outputs](), list[Outputs]()
        for about, outputs in kept_outputs(self.folder, kept_slices(self.folder, self.model, VALIDATION), self.model, name):
            right = np.array([{True: 1, False: 0}.get(known, -1) for known in about["right"]])
            familiar.append(outputs[np.flatnonzero(right == 1)] if own or fit.only else outputs)
            strange += [outputs[np.flatnonzero(right == 0)]] if own else []
        shown = kept_outputs(self.folder, kept_slices(self.folder, self.model, STRANGE), self.model, name)
        pools = Pools(Outputs.join(familiar), Outputs.join([*strange, *(outputs for _, outputs in shown)]))
        if not len(pools.familiar) or not len(pools.strange):
            raise SoritesError(
                f"search: {self.model} has {len(pools.familiar)} familiar and {len(pools.strange)} strange validation pictures. "
                'Give more of them, or strange ones: [fit.validation] strange = "folder:PATH"'
            )
        return pools


def read_record(folder: Path) -> dict[str, Any]:
    """Return what a run folder says of its fitted scorers by model; nothing where none were fitted."""
    try:
        found = read_json(folder / RECORD)
    except SoritesError:
        return {}
    return {name: about for name, about in found.items() if _is_record(about)} if isinstance(found, dict) else {}


def _is_record(about: Any) -> bool:
    searches = about.get("search", {}) if isinstance(about, dict) else None
    return isinstance(searches, dict) and all(isinstance(told, dict) and "chosen" in told for told in searches.values())


def chosen_parameters(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the parameters that searches of a run chose, by model and scorer; nothing where there was no search."""
    told = {name: about.get("search", {}) for name, about in read_record(folder).items()}
    return {name: {spec: found["chosen"] for spec, found in searches.items()} for name, searches in told.items() if searches}


def record(plan: Plan, folder: Path) -> None:
    """Keep what a fitted plan's scorers were fitted on, how many training pictures were left out, and what searches chose."""
    found = {name: _about(folder, name, scorers) for name, scorers in plan.fitted.items()}
    for name, searches in plan.searches.items():
        found[name]["search"] = dict(searches)
    write_bytes(json.dumps(found, indent=1).encode(), folder / RECORD)


def _about(folder: Path, model: str, scorers: Mapping[str, Scorer]) -> dict[str, Any]:
    told = [about for about, _ in kept_files(folder, kept_slices(folder, model), model, ())]
    fits = {name: scorer.fitted for name, scorer in scorers.items() if getattr(scorer, "fitted", None) is not None}
    wrong = {"wrong": sum(about["wrong"] for about in told)} if any("wrong" in about for about in told) else {}
    return {"left_out": sum(about["left"] for about in told), **wrong, "scorers": fits}
