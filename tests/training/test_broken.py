"""What breaks a training is said by name, and nothing is lost by it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.small_recipe import recipe, same

from sorites.core.errors import Damaged, SoritesError
from sorites.io.digests import read_sealed, write_sealed
from sorites.training import steps
from sorites.training.loop import train


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_and_says_where(
    photos: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    made = recipe(photos)
    real = steps.Steps.images

    def poisoned(self: steps.Steps, images: Any) -> Any:
        given = real(self, images)
        return given * float("nan") if poisoned_steps.pop(0) else given

    poisoned_steps = [False, False, False, True]
    monkeypatch.setattr(steps.Steps, "images", poisoned)
    with pytest.raises(SoritesError) as caught:
        train(made, tmp_path / "r", checkpoint_seconds=0)
    monkeypatch.undo()
    said = str(caught.value)
    assert said.startswith("the loss is nan at step 4 of 15 (images n0")
    assert "checkpoint-000000003." in said
    assert sum(part.endswith(".png") for part in said.split("(images ")[1].split(";")[0].split(", ")) == 4
    broken = json.loads((tmp_path / "r/broken.json").read_text())
    assert (broken["step"], len(broken["images"])) == (4, 4)
    train(made, tmp_path / "r")
    train(made, tmp_path / "whole")
    assert same(tmp_path / "r", tmp_path / "whole")


@pytest.mark.slow
def test_a_gradient_that_is_no_number_changes_no_weight(
    photos: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    made = recipe(photos)
    real = steps.Steps._loss

    def broken(self: steps.Steps, views: Any, labels: Any) -> Any:
        loss, right = real(self, views, labels)
        return (loss + 0 * torch.sqrt(loss - loss), right) if poisoned_steps.pop(0) else (loss, right)

    poisoned_steps = [False, False, True]
    monkeypatch.setattr(steps.Steps, "_loss", broken)
    with pytest.raises(SoritesError, match=r"at step 3 of 15 \(images n0"):
        train(made, tmp_path / "r", checkpoint_seconds=0)
    monkeypatch.undo()
    train(made, tmp_path / "r")
    train(made, tmp_path / "whole")
    assert same(tmp_path / "r", tmp_path / "whole")


def test_weights_that_are_no_numbers_never_become_a_checkpoint_or_a_model(
    photos: Path, tmp_path: Path
) -> None:
    made = recipe(photos, steps=1, optimiser={"lr": 1e38, "weight_decay": 10.0})
    with pytest.raises(SoritesError, match="finite at step 1 of 1"):
        train(made, tmp_path / "r", checkpoint_seconds=0)
    assert not [*(tmp_path / "r").glob("checkpoint-*")]
    assert not (tmp_path / "r/model.json").exists()


def test_another_recipe_in_an_old_folder_is_refused_by_its_first_key(photos: Path, tmp_path: Path) -> None:
    train(recipe(photos), tmp_path / "r")
    with pytest.raises(SoritesError, match="is 0.05 there and 0.5 now"):
        train(recipe(photos, optimiser={"lr": 0.5}), tmp_path / "r")
    said: list[str] = []
    before = (tmp_path / "r/model.safetensors").stat().st_mtime_ns
    train(recipe(photos), tmp_path / "r", say=said.append)
    assert said == [f"{tmp_path / 'r'} already has this trained model; nothing to do"]
    assert (tmp_path / "r/model.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_full_disk_loses_nothing(photos: Path, tmp_path: Path, monkeypatch: Any) -> None:
    made, written = recipe(photos), []

    def full(number: int) -> None:
        written.append(number)
        if len(written) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        SoritesError, match=r"No space left on device. Finished work is kept; free some space"
    ):
        train(made, tmp_path / "r", checkpoint_seconds=0)
    monkeypatch.undo()
    said: list[str] = []
    train(made, tmp_path / "r", say=said.append)
    assert "resuming after step" in said[0]
    train(made, tmp_path / "whole")
    assert same(tmp_path / "r", tmp_path / "whole")


def test_a_damaged_checkpoint_is_named(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / f"checkpoint-000000003.{32 * '0'}.safetensors").write_bytes(b"no")
    with pytest.raises(Damaged, match="checkpoint-000000003"):
        train(recipe(photos), folder)


def test_two_trainings_do_not_share_a_folder(photos: Path, tmp_path: Path) -> None:
    from sorites.io.files import locked

    with (
        locked(tmp_path / "r", "training", ".sorites.lock"),
        pytest.raises(SoritesError, match="another process is writing"),
    ):
        train(recipe(photos), tmp_path / "r")


def test_a_device_that_is_not_there_is_said(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="cdua"):
        train(recipe(photos), tmp_path / "r", device="cdua")


def test_going_on_with_another_library_is_said(photos: Path, tmp_path: Path) -> None:
    train(recipe(photos, steps=1), tmp_path / "r")
    (tmp_path / "r/model.json").unlink()
    held = read_sealed(tmp_path / "r/train.json", "")
    write_sealed({**held, "versions": {**held["versions"], "torch": "1.0"}}, tmp_path / "r/train.json")
    said: list[str] = []
    train(recipe(photos, steps=1), tmp_path / "r", say=said.append)
    assert said[0].startswith("torch was 1.0 when this training started")


def test_changed_images_are_refused_by_name(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    made = recipe(tmp_path / "photos", steps=1)
    train(made, tmp_path / "r")
    (tmp_path / "r/model.json").unlink()
    changed = tmp_path / "photos/n01440764/p00.png"
    changed.write_bytes((tmp_path / "photos/n01440764/p04.png").read_bytes())
    with pytest.raises(SoritesError, match="images: n01440764/p00.png"):
        train(made, tmp_path / "r")
    changed.unlink()
    with pytest.raises(SoritesError, match="20 images at the start"):
        train(made, tmp_path / "r")


def test_a_mistake_before_the_first_step_claims_no_folder(photos: Path, tmp_path: Path) -> None:
    for mistake in ({"augment": {"names": "optix"}}, {"model": "timm:resnet_nine"}):
        with pytest.raises(SoritesError, match="optix|resnet_nine"):
            train(recipe(photos, **mistake), tmp_path / "out")
    train(recipe(photos, epochs=1), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").exists()
