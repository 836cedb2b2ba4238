"""Trainings on several processes: the same images and augmentations as on one, and the same loss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.small_recipe import weights

from sorites.core.errors import SoritesError
from sorites.training import history
from sorites.training import processes as module
from sorites.training.batches import Batches
from sorites.training.processes import ALONE, Processes, default_workers, device_for, joined, requested

# Trains, and keeps what every step of this process sees.
CODE = """
import sys, os
import numpy as np
from sorites.training.loop import train
from sorites.training.steps import Steps
made, real = {}, Steps._views

def views(self, batch):
    seen = real(self, batch)
    made[f"{batch.step}"] = np.stack([view.numpy() for view in seen])
    made[f"{batch.step} labels"] = batch.labels
    return seen

Steps._views = views
train(sys.argv[1], sys.argv[2], device="cpu", workers=1)
np.savez(f"{sys.argv[2]}/seen{os.environ.get('RANK', '0')}.npz", **made)
"""
RECIPE = """
model = "small"
steps = 6
batch = 8
augment = "AUGMENT"
head_only = true
[data]
source = "folder:PHOTOS"
labels = "found"
validation = 0.2
[optimiser]
lr = 0.05
clip = 1.0
"""


def trained(tmp_path: Path, photos: Path, name: str, world: int, augment: str) -> Path:
    script, recipe, out = tmp_path / "code.py", tmp_path / "r.toml", tmp_path / name
    script.write_text(CODE)
    recipe.write_text(RECIPE.replace("PHOTOS", str(photos)).replace("AUGMENT", augment))
    start = [sys.executable]
    if world > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    done = subprocess.run([*start, str(script), str(recipe), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
@pytest.mark.parametrize("augment", ["augmix,optics"])
def test_two_processes_see_what_one_sees(photos: Path, tmp_path: Path, augment: str) -> None:
    """Frozen batch normalisation does not depend on the share of a process, so that all numbers agree."""
    one = trained(tmp_path, photos, "one", 1, augment)
    two = trained(tmp_path, photos, "two", 2, augment)
    alone, (first, second) = np.load(one / "seen0.npz"), (np.load(two / f"seen{rank}.npz") for rank in (0, 1))
    assert set(alone.files) == set(first.files) == set(second.files)
    for step in range(6):
        labels = np.concatenate([part[f"{step} labels"] for part in (first, second)])
        np.testing.assert_array_equal(labels, alone[f"{step} labels"])
        together = np.concatenate([part[f"{step}"] for part in (first, second)], axis=1)
        np.testing.assert_allclose(together, alone[f"{step}"], rtol=0, atol=2e-6)
    rows = [history.read(folder) for folder in (one, two)]
    for ours, theirs in zip(*rows, strict=True):
        assert ours.keys() == theirs.keys()
        for key in ours.keys() - {"images_per_second"}:
            assert theirs[key] == pytest.approx(ours[key], rel=1e-4), key
    for name, value in weights(one).items():
        torch.testing.assert_close(weights(two)[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_shares_make_up_the_batch(world: int) -> None:
    rows = [Processes(rank, world).rows(8) for rank in range(world)]
    assert np.concatenate([np.arange(8)[share] for share in rows]).tolist() == list(range(8))


def test_a_batch_that_cannot_be_divided_is_refused(photos: Path) -> None:
    with pytest.raises(SoritesError, match="multiple of 3"):
        Processes(0, 3).rows(8)


class Numbered:
    """A stand-in for prepared images: their number."""

    def __len__(self) -> int:
        return 20


def test_the_order_does_not_depend_on_the_number_of_processes() -> None:
    whole = Batches(Numbered(), 8, 5, flip=True)  # type: ignore[arg-type]
    shares = [Batches(Numbered(), 8, 5, True, Processes(rank, 4)) for rank in range(4)]  # type: ignore[arg-type]
    for step in range(5):
        together = np.concatenate([share.indices(step) for share in shares])
        np.testing.assert_array_equal(together, whole.indices(step))
        tasks = [task for share in shares for task in share._tasks(step)]
        assert tasks == whole._tasks(step)


def test_torchrun_names_the_processes() -> None:
    assert requested({}) == ALONE
    assert requested({"WORLD_SIZE": "1", "RANK": "0"}) == ALONE
    assert requested({"WORLD_SIZE": "4", "RANK": "3"}) == Processes(3, 4)
    several = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}
    assert device_for("cuda", several) == "cuda:1"
    assert device_for("cpu", several) == "cpu"
    assert device_for("cuda:1", {}) == "cuda:1"
    with pytest.raises(SoritesError, match="its own GPU"):
        device_for("cuda:1", several)


def test_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 16)
    assert [default_workers({"LOCAL_WORLD_SIZE": count}) for count in ("1", "2", "4", "16")] == [8, 7, 3, 1]
    assert default_workers({}) == 8


def test_alone_nothing_is_joined_or_summed() -> None:
    module = torch.nn.Linear(2, 2)
    with joined("cpu") as processes:
        assert processes == ALONE
        assert processes.parallel(module, torch.device("cpu")) is module
        numbers = torch.ones(2)
        assert processes.summed(numbers) is numbers
        processes.wait()
