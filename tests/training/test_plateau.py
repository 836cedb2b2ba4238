"""The rate on a plateau, against torch's scheduler."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.errors import SoritesError
from sorites.training.plateau import share
from sorites.training.recipe import parse
from sorites.training.recipe_parts import Schedule


@pytest.mark.parametrize(("patience", "factor", "seed"), [(2, 0.5, 0), (0, 0.1, 1), (3, 0.9, 2)])
def test_the_share_after_each_loss_is_torchs(patience: int, factor: float, seed: int) -> None:
    torch = pytest.importorskip("torch")
    losses = 2 - 0.1 * np.log1p(np.arange(60)) + np.random.default_rng(seed).normal(0, 0.05, 60)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, patience=patience, factor=factor, eps=0)
    schedule = Schedule(kind="plateau", patience=patience, factor=factor)
    shares = []
    for count in range(1, 61):
        theirs.step(losses[count - 1])
        shares.append(share(losses[:count].tolist(), schedule))
        assert shares[-1] == pytest.approx(optimiser.param_groups[0]["lr"])
    assert len(set(shares)) > 3


def test_other_schedules_know_no_plateau_and_one_needs_a_validation_part() -> None:
    assert share([1.0] * 50, Schedule(kind="cosine")) == 1
    with pytest.raises(SoritesError, match="the schedule plateau goes by a validation part"):
        parse({"name": "a", "epochs": 1, "data": {"source": "cifar"}, "schedule": {"kind": "plateau"}}, "a")
