"""Damaged files of a training are named by ``check``, and no verb trains on or answers with other weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.faults.mutations import DAMAGES, damage, duplicate
from tests.training.small_recipe import recipe, same

import sorites
from sorites.core import model
from sorites.core.errors import Damaged, SoritesError
from sorites.training import steps
from sorites.training.loop import train

FINISHED = ("model.json", "model.safetensors", "history.jsonl", "data.parquet", "labels.txt", "train.json")
UNFINISHED = ("checkpoint-*", "train.json", "data.parquet", "labels.txt")


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(photos, steps=2), tmp_path_factory.mktemp("trainings") / "finished")


@pytest.fixture(scope="module")
def stopped(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a training that failed after its second checkpoint."""
    folder, take = tmp_path_factory.mktemp("trainings") / "stopped", steps.Steps.take

    def fail(self: steps.Steps, batch: object) -> object:
        if batch.step == 2:  # type: ignore[attr-defined]
            raise SoritesError("stopped")
        return take(self, batch)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.Steps, "take", fail)
        with pytest.raises(SoritesError, match="stopped"):
            train(recipe(photos, steps=4), folder, checkpoint_seconds=0)
    return folder


def check_names(folder: Path, path: Path) -> None:
    with pytest.raises(Damaged) as caught:
        sorites.check(folder)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("name", FINISHED)
def test_damage_of_a_finished_training_is_named(finished: Path, name: str, damage_kind: str) -> None:
    rng, version = np.random.default_rng(3), model(f"trained:{finished}").version
    for _ in range(3 if damage_kind in ("flip", "truncate") else 1):
        with damage(finished / name, damage_kind, rng, b"foreign content"):
            check_names(finished, finished / name)
            if name.startswith("model."):
                with pytest.raises(Damaged, match=name):
                    model(f"trained:{finished}")
    assert "unchanged" in sorites.check(finished)
    assert model(f"trained:{finished}").version == version


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("name", UNFINISHED)
def test_damage_of_an_unfinished_training_is_named_and_not_trained_on(
    stopped: Path, photos: Path, tmp_path: Path, name: str, damage_kind: str
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "r"))
    path = next(folder.glob(name))
    with damage(path, damage_kind, np.random.default_rng(4), b"foreign content"):
        check_names(folder, path)
        if name == "labels.txt":  # for users; nothing reads it again
            return
        with pytest.raises(Damaged, match=path.name):
            train(recipe(photos, steps=4), folder)


def test_a_damaged_checkpoint_can_be_deleted_and_the_weights_are_the_same(
    stopped: Path, photos: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "r"))
    for name in ("checkpoint-*", "data.parquet"):
        next(folder.glob(name)).unlink()
    train(recipe(photos, steps=4), folder)
    resumed = Path(shutil.copytree(stopped, tmp_path / "resumed"))
    train(recipe(photos, steps=4), resumed)
    assert same(folder, resumed)
    assert "unchanged" in sorites.check(folder)


def test_a_checkpoint_of_another_training_is_refused(stopped: Path, photos: Path, tmp_path: Path) -> None:
    other = recipe(photos, steps=4, seed=1)
    train(other, tmp_path / "r")
    (tmp_path / "r/model.json").unlink()
    shutil.copy(next(stopped.glob("checkpoint-*")), tmp_path / "r")
    with pytest.raises(Damaged, match="belongs to another training"):
        train(other, tmp_path / "r")


def test_a_copy_is_named_and_not_read(finished: Path) -> None:
    version = model(f"trained:{finished}").version
    for name in FINISHED:
        with duplicate(finished / name) as copy:
            assert str(copy) in sorites.check(finished)
            assert model(f"trained:{finished}").version == version


@pytest.mark.slow
def test_no_flip_goes_unnoticed(finished: Path) -> None:
    rng, count = np.random.default_rng(5), 0
    for name in FINISHED:
        for _ in range(50):
            with damage(finished / name, "flip", rng, b""):
                check_names(finished, finished / name)
                count += 1
    print(f"{count} flips in a training, {count} named")
