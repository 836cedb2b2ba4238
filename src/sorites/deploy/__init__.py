"""The runtime of a guard: a model, its OOD scorer and a threshold. Needs numpy, Pillow and ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sorites.deploy.guard import Guard, Verdict

if TYPE_CHECKING:
    from sorites.deploy.record import GuardRecord

__all__ = ["Guard", "GuardRecord", "Verdict"]


def __getattr__(name: str) -> Any:
    if name == "GuardRecord":  # a guard imports it when it is read
        from sorites.deploy.record import GuardRecord

        return GuardRecord
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
