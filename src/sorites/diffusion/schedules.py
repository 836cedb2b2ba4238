"""The noise steps of a drawing, and which of them come before the sliders."""

from __future__ import annotations

from typing import Any

from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.requests import Drawing
from sorites.errors import SoritesError

SHAREABLE = ("DDIMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler")
"""Schedulers whose step follows from the step itself; others remember earlier answers of the network."""


def scheduler_of(pipe: Pipe, drawing: Drawing) -> Any:
    """Return a scheduler of its own for one drawing, with its noise steps set."""
    import diffusers

    own = pipe.parts.scheduler
    if drawing.scheduler == "ddim":
        scheduler = diffusers.DDIMScheduler.from_config(own.config)
    elif type(own).__name__ in SHAREABLE:
        scheduler = type(own).from_config(own.config)
    else:
        raise SoritesError(
            f"the pipeline's scheduler {type(own).__name__} remembers earlier steps; wanted {', '.join(SHAREABLE)}, or ddim"
        )
    scheduler.set_timesteps(drawing.steps, device=pipe.device)
    return scheduler


def early_and_late(scheduler: Any, drawing: Drawing) -> tuple[list[Any], list[Any]]:
    """Return the noise steps before the sliders are switched on, and those after."""
    times = list(scheduler.timesteps)
    first = next((place for place, time in enumerate(times) if float(time) <= drawing.start), len(times))
    return times[:first], times[first:]


def passes(steps: int, early: int, severities: int, shared: bool = True) -> int:
    """Return how many passes of the network a trajectory takes, without those for guidance."""
    return (early if shared else early * severities) + (steps - early) * severities
