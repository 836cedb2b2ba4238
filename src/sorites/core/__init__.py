"""Core types, plug-in registries and look-ups.

Names are loaded on first use, so that ``sorites --help`` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sorites.core.plugins import (
        ENCODERS,
        MEASURES,
        METRICS,
        MODELS,
        SCORERS,
        SHIFTS,
        SOURCES,
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
        scorer_candidates,
        scorer_name,
        scorer_params,
        scorer_version,
        shift,
        source,
    )
    from sorites.core.refs import ArrayRef, BytesRef, FileRef, Generated, ImageRef
    from sorites.core.samples import (
        CLEAN,
        Attr,
        Box,
        ImageF32,
        ImageU8,
        OwnDial,
        Sample,
        Setting,
        Source,
        read_only,
        to_float,
        to_uint8,
    )
    from sorites.core.specs import named_spec, split_spec
    from sorites.core.types import (
        Apply,
        Backend,
        Batches,
        Encoder,
        Examples,
        Features,
        Graph,
        Head,
        Measure,
        Metric,
        Model,
        Outputs,
        Scorer,
        SettingValue,
        Shift,
        Sweep,
    )

_HOMES = ("plugins", "refs", "samples", "specs", "types")


def __getattr__(name: str) -> Any:
    if name in __all__:
        homes = (importlib.import_module(f"sorites.core.{home}") for home in _HOMES)
        return next(getattr(home, name) for home in homes if hasattr(home, name))
    raise AttributeError(f"module 'sorites.core' has no attribute {name!r}")


__all__ = [
    "CLEAN",
    "ENCODERS",
    "MEASURES",
    "METRICS",
    "MODELS",
    "SCORERS",
    "SHIFTS",
    "SOURCES",
    "Apply",
    "ArrayRef",
    "Attr",
    "Backend",
    "Batches",
    "Box",
    "BytesRef",
    "Encoder",
    "Examples",
    "Features",
    "FileRef",
    "Generated",
    "Graph",
    "Head",
    "ImageF32",
    "ImageRef",
    "ImageU8",
    "Measure",
    "Metric",
    "Model",
    "Outputs",
    "OwnDial",
    "Sample",
    "Scorer",
    "Setting",
    "SettingValue",
    "Shift",
    "Source",
    "Sweep",
    "add_encoder",
    "add_measure",
    "add_metric",
    "add_model",
    "add_scorer",
    "add_shift",
    "add_source",
    "encoder",
    "measure",
    "model",
    "named_spec",
    "read_only",
    "scorer",
    "scorer_candidates",
    "scorer_name",
    "scorer_params",
    "scorer_version",
    "shift",
    "source",
    "split_spec",
    "to_float",
    "to_uint8",
]
