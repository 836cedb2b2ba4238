"""The devices of a pipeline: the models are loaded once on each GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from sorites.core import Model
from sorites.core.errors import inform
from sorites.evaluation.plan import Plan, models_on


def models_by_device(plan: Plan) -> Sequence[Mapping[str, Model]]:
    """Return the models of a plan on each GPU that it may use; those of the plan if there is only one device.

    A plan that names a GPU (``cuda:1``) uses that one. Otherwise all GPUs of the same kind as the first are
    used, because others may compute other rows. Models that were passed as objects exist once.
    """
    gpus = gpu_names()
    if len(gpus) < 2 or plan.suite.device not in (None, "cuda"):
        return (plan.models,)
    if any(model.backend.kind != "cuda" for model in plan.models.values()):
        return (plan.models,)
    if objects := [name for name in plan.models if name in plan.objects]:
        inform(f"one of {len(gpus)} GPUs is used: {', '.join(objects)} was passed as an object")
        return (plan.models,)
    same = [number for number, name in enumerate(gpus) if name == gpus[0]]
    return (plan.models, *(models_on(plan, f"cuda:{number}") for number in same[1:]))


def gpu_names() -> list[str]:
    """Return the names of the GPUs that torch can use; empty before torch is imported."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
