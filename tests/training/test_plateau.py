"""The rate on a plateau, against torch's scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.training import history
from sorites.training.loop import train
from sorites.training.optim import plateau_multiplier
from sorites.training.recipe import Schedule, parse


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
        shares.append(plateau_multiplier(losses[:count].tolist(), schedule))
        assert shares[-1] == pytest.approx(optimiser.param_groups[0]["lr"])
    assert len(set(shares)) > 3


def test_other_schedules_know_no_plateau_and_one_needs_a_validation_part() -> None:
    assert plateau_multiplier([1.0] * 50, Schedule(kind="cosine")) == 1
    with pytest.raises(SoritesError, match="plateau needs a validation part"):
        parse({"name": "a", "epochs": 1, "data": {"source": "cifar"}, "schedule": {"kind": "plateau"}}, "a")


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_at_the_rate_it_had(photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    recipe = parse(
        {
            "name": "flat",
            "epochs": 6,
            "head_only": True,
            "batch": 8,
            "data": {"source": f"folder:{photos}", "labels": "found", "validation": 0.2, "size": 32},
            "optimiser": {"lr": 1e-9},  # nothing is learnt, so that the loss stays where it is
            "schedule": {"kind": "plateau", "patience": 1, "factor": 0.5},
        },
        "flat",
    )
    whole = train(recipe, tmp_path / "whole", workers=1)

    class Stopped(Exception):
        pass

    def stopping(name: str, steps: int, done: int) -> Callable[[int, str], None]:
        left = iter(range(8))

        def tick(count: int, text: str) -> None:
            if next(left, None) is None:
                raise Stopped

        return tick

    with pytest.raises(Stopped):
        train(recipe, tmp_path / "stopped", workers=1, checkpoint_seconds=0, bar=stopping)
    train(recipe, tmp_path / "stopped", workers=1)
    rates = [
        [row["lr"] for row in history.read(tmp_path / name) if "lr" in row] for name in ("whole", "stopped")
    ]
    assert whole.exists()
    assert rates[0] == rates[1]
    assert set(rates[0]) == {1e-9, 5e-10, 2.5e-10}
