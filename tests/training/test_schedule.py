"""Learning rates against torch's own schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from sorites.training.optim import rate
from sorites.training.recipe import Schedule

STEPS, PER_EPOCH = 120, 10


def of_torch(make: Callable[[torch.optim.Optimizer], Any], steps: int = STEPS) -> list[float]:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler, found = make(optimiser), []
    for _ in range(steps):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


def after_warm_up(make: Callable[[torch.optim.Optimizer], Any]) -> Callable[[torch.optim.Optimizer], Any]:
    def both(optimiser: torch.optim.Optimizer) -> Any:
        warm = lr_scheduler.LinearLR(optimiser, start_factor=0.01, total_iters=20)
        return lr_scheduler.SequentialLR(optimiser, [warm, make(optimiser)], [20])

    return both


@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        (Schedule(kind="constant"), lambda o: lr_scheduler.ConstantLR(o, factor=1)),
        (Schedule(kind="step", every=3), lambda o: lr_scheduler.StepLR(o, 3 * PER_EPOCH, 0.1)),
        (Schedule(kind="cosine", floor=1e-6), lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS, 1e-6)),
        (
            Schedule(kind="one_cycle", rise=0.25),
            lambda o: lr_scheduler.OneCycleLR(o, 0.1, STEPS, pct_start=0.25, cycle_momentum=False),
        ),
        (
            Schedule(kind="cosine", floor=1e-6, warm_up=2),
            after_warm_up(lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS - 20, 1e-6)),
        ),
        (
            Schedule(kind="step", every=3, warm_up=2),
            after_warm_up(lambda o: lr_scheduler.StepLR(o, 3 * PER_EPOCH, 0.1)),
        ),
    ],
    ids=lambda part: f"{part.kind}{'-warm' if part.warm_up else ''}" if isinstance(part, Schedule) else "",
)
def test_rates_are_torchs(schedule: Schedule, make: Callable[[torch.optim.Optimizer], Any]) -> None:
    ours = [rate(schedule, 0.1, step, STEPS, PER_EPOCH) for step in range(STEPS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **more: None)  # torch warns of its own SequentialLR
        theirs = of_torch(make)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)


def test_a_training_shorter_than_its_warm_up_only_warms_up() -> None:
    assert [rate(Schedule(warm_up=5), 1.0, step, 3, PER_EPOCH) for step in range(3)] == pytest.approx(
        [0.01, 0.34, 0.67]
    )
