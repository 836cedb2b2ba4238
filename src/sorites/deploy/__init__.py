"""The runtime of a guard: a model, its OOD scorer and a threshold. Needs numpy, Pillow and ONNX Runtime."""

from __future__ import annotations

from sorites.deploy.guard import Guard, Verdict
from sorites.deploy.record import GuardRecord

__all__ = ["Guard", "GuardRecord", "Verdict"]
