"""Sorites: how far can the world shift before a vision model fails, and does the model know?

import sorites

run = sorites.run("demo", limit=20)
print(sorites.accuracy(run, by=["model", "shift"]))
sorites.report(run, "report.html")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sorites.analysis.comparison.compare import compare
    from sorites.analysis.guard.check import check_guard
    from sorites.analysis.guard.write import guard
    from sorites.analysis.images import images
    from sorites.analysis.robust import assert_robust
    from sorites.analysis.slices import slices
    from sorites.analysis.uncertainty.conformal import conformal
    from sorites.analysis.uncertainty.recalibration import recalibrate
    from sorites.apps.asking import ask
    from sorites.apps.check import check
    from sorites.core import (
        add_encoder,
        add_measure,
        add_metric,
        add_model,
        add_scorer,
        add_shift,
        add_source,
        encoder,
        measure,
        model,
        scorer,
        shift,
        source,
    )
    from sorites.core.errors import SoritesError
    from sorites.datasets.build import build
    from sorites.evaluation.combine import read
    from sorites.evaluation.exports.write import export
    from sorites.evaluation.facts.distance import distance
    from sorites.evaluation.facts.similarity import similarity
    from sorites.evaluation.rescore import score
    from sorites.evaluation.run import Run, run
    from sorites.reports.figures.strips import show
    from sorites.reports.leaderboard import leaderboard
    from sorites.reports.log import log
    from sorites.reports.passport.passport import passport
    from sorites.reports.report import report
    from sorites.reports.verify import verify
    from sorites.training.attack import attack
    from sorites.training.explain import explain
    from sorites.training.loop import train

__version__ = "1.0.0"

_HOMES = {
    "sorites.core": (
        "ArrayRef", "Attr", "Box", "BytesRef", "FileRef", "Generated", "Measure", "Model", "Outputs",
        "OwnDial", "Encoder", "Sample", "Setting", "Shift", "Source",
        "add_measure", "add_metric", "add_model", "add_encoder", "add_scorer", "add_shift", "add_source",
        "measure", "model", "encoder", "scorer", "shift", "source",
    ),
    "sorites.analysis.comparison.compare": ("compare",),
    "sorites.analysis.guard.check": ("check_guard",),
    "sorites.analysis.guard.write": ("guard",),
    "sorites.analysis.images": ("images",),
    "sorites.analysis.robust": ("assert_robust",),
    "sorites.analysis.slices": ("slices",),
    "sorites.analysis.uncertainty.conformal": ("conformal",),
    "sorites.analysis.uncertainty.recalibration": ("recalibrate",),
    "sorites.apps.asking": ("ask",),
    "sorites.apps.check": ("check",),
    "sorites.datasets.build": ("build",),
    "sorites.reports.figures.strips": ("show",),
    "sorites.core.errors": ("SoritesError",),
    "sorites.reports.passport.passport": ("passport",),
    "sorites.evaluation.facts.distance": ("distance",),
    "sorites.evaluation.rescore": ("score",),
    "sorites.evaluation.run": ("Run", "run"),
    "sorites.evaluation.facts.similarity": ("similarity",),
    "sorites.evaluation.combine": ("read",),
    "sorites.evaluation.exports.write": ("export",),
    "sorites.reports.report": ("report",),
    "sorites.reports.verify": ("verify",),
    "sorites.reports.leaderboard": ("leaderboard",),
    "sorites.reports.log": ("log",),
    "sorites.training.attack": ("attack",),
    "sorites.training.explain": ("explain",),
    "sorites.training.loop": ("train",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names are fetched when first used, so that ``import sorites`` and ``sorites --help`` stay
    fast; metrics by their names.
    """
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    if not name.startswith("_"):
        metrics = importlib.import_module("sorites.core").METRICS
        if name in metrics.names():
            with_chart = importlib.import_module("sorites.reports.figures.metric_frame").with_chart
            return with_chart(metrics.get(name))
    raise AttributeError(f"module 'sorites' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOME_OF, "__version__", *importlib.import_module("sorites.core").METRICS.names()])


__all__ = [
    "Run",
    "SoritesError",
    "__version__",
    "add_encoder",
    "add_measure",
    "add_metric",
    "add_model",
    "add_scorer",
    "add_shift",
    "add_source",
    "ask",
    "assert_robust",
    "attack",
    "build",
    "check",
    "check_guard",
    "compare",
    "conformal",
    "distance",
    "encoder",
    "explain",
    "export",
    "guard",
    "images",
    "leaderboard",
    "log",
    "measure",
    "model",
    "passport",
    "read",
    "recalibrate",
    "report",
    "run",
    "score",
    "scorer",
    "shift",
    "show",
    "similarity",
    "slices",
    "source",
    "train",
    "verify",
]  # fmt: skip
