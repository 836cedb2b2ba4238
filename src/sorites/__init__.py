"""Sorites: how far can the world shift before a vision model fails, and does the model know?

import sorites

table = sorites.run("demo", limit=20)
print(sorites.accuracy(table, by=["model", "shift"]))
sorites.report(table, "report.html")
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sorites.comparisons.compare import compare
    from sorites.core import (
        add_measure,
        add_metric,
        add_model,
        add_referee,
        add_scorer,
        add_shift,
        add_source,
        measure,
        model,
        referee,
        scorer,
        shift,
        source,
    )
    from sorites.datasets.build import build
    from sorites.drawings.show import show
    from sorites.errors import SoritesError
    from sorites.passports.passport import passport
    from sorites.pipeline.check import check
    from sorites.pipeline.distance import distance
    from sorites.pipeline.rescore import score
    from sorites.pipeline.run import run
    from sorites.pipeline.similarity import similarity
    from sorites.pipeline.together import read
    from sorites.reports.report import report
    from sorites.training.explain import explain
    from sorites.training.loop import train

__version__ = "0.2.0"

_HOMES = {
    "sorites.core": (
        "Attr", "Box", "Measure", "Model", "Outputs", "OwnDial", "Referee", "Sample", "Setting", "Shift", "Source",
        "add_measure", "add_metric", "add_model", "add_referee", "add_scorer", "add_shift", "add_source",
        "measure", "model", "referee", "scorer", "shift", "source",
    ),
    "sorites.comparisons.compare": ("compare",),
    "sorites.datasets.build": ("build",),
    "sorites.drawings.show": ("show",),
    "sorites.errors": ("SoritesError",),
    "sorites.passports.passport": ("passport",),
    "sorites.pipeline.check": ("check",),
    "sorites.pipeline.distance": ("distance",),
    "sorites.pipeline.rescore": ("score",),
    "sorites.pipeline.run": ("run",),
    "sorites.pipeline.similarity": ("similarity",),
    "sorites.pipeline.together": ("read",),
    "sorites.reports.report": ("report",),
    "sorites.training.explain": ("explain",),
    "sorites.training.loop": ("train",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


_MOVED: dict[str, tuple[str, dict[str, str]]] = {
    "sorites.nouns": ("sorites.types", {}),
    "sorites.runner": ("sorites.pipeline.run", {}),
    "sorites.plan": ("sorites.pipeline.plan", {}),
    "sorites.dataset": ("sorites.datasets.build", {}),
    "sorites.context": ("sorites.datasets.context", {}),
    "sorites.views": ("sorites.reports.report", {}),
    "sorites.degrees": ("sorites.pipeline.similarity", {"degrees": "similarity"}),
    "sorites.measuring": ("sorites.pipeline.distance", {"measure": "distance"}),
    "sorites.cache": ("sorites.files", {}),
    "sorites.metrics.rows": ("sorites.metrics", {"ask": "select_rows", "judged": "judged_rows", "answer": "answer_frame"}),
    "sorites.metrics.intervals": ("sorites.metrics", {"wilson": "wilson_interval", "normal": "normal_interval"}),
    "sorites.measures.out_of_class": ("sorites.pipeline.out_of_class", {}),
}
"""Modules of release 0.2 that others may import: where they are now, and what is called otherwise there."""


class _Moved:
    """Finds modules under the names they had, and warns; asked last, when no other finder knows the name."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _MOVED:
            return None
        from importlib.machinery import ModuleSpec

        warnings.warn(f"{name} has moved: import {_MOVED[name][0]} instead", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, _Moved)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: Any) -> None:
        return None

    @staticmethod
    def exec_module(module: Any) -> None:
        home, renamed = _MOVED[module.__name__]
        moved = importlib.import_module(home)

        def forwarded(name: str) -> Any:
            return getattr(moved, renamed.get(name, name))

        module.__getattr__ = forwarded


sys.meta_path.append(_Moved)


def __getattr__(name: str) -> Any:
    """Names are fetched when first used, so that ``import sorites`` and ``sorites --help`` stay fast; metrics by their names."""
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    if not name.startswith("_"):
        metrics = importlib.import_module("sorites.core").METRICS
        if name in metrics.names():
            return metrics.get(name)
    raise AttributeError(f"module 'sorites' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOME_OF, "__version__", *importlib.import_module("sorites.core").METRICS.names()])


__all__ = [
    "SoritesError", "__version__", "add_measure", "add_metric", "add_model", "add_referee", "add_scorer", "add_shift",
    "add_source", "build", "check", "compare", "distance", "explain", "measure", "model", "passport", "read", "referee",
    "report", "run", "score", "scorer", "shift", "show", "similarity", "source", "train",
]  # fmt: skip
