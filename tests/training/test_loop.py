"""Trainings on twenty small images: what a stopped one ends with, and what ends one early."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.small_recipe import recipe, same, weights

from sorites.core.errors import SoritesError
from sorites.models import trained
from sorites.models.trained import small_input
from sorites.training import history, session, steps
from sorites.training.loop import train

CODE = """
import sys
from sorites.training.loop import train
from sorites.training.recipe import load
def bar(name, steps, done):
    def tick(count, words):
        print("step", flush=True)
    return tick
train(sys.argv[1], sys.argv[2], checkpoint_seconds=0, bar=bar)
"""
RECIPE = """
model = "small"
epochs = 12
batch = 4
augment = "optics"
[data]
source = "folder:PHOTOS"
labels = "found"
validation = 0.2
[optimiser]
lr = 0.05
nesterov = true
[schedule]
kind = "one_cycle"
"""


@pytest.mark.slow
def test_a_killed_training_ends_with_the_same_weights(photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(RECIPE.replace("PHOTOS", str(photos)))
    command = [sys.executable, "-c", CODE, str(path), str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(15):
            assert process.stdout.readline() == "step\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed/model.json").exists()
    assert [*(tmp_path / "killed").glob("checkpoint-*.safetensors")]
    said: list[str] = []
    train(path, tmp_path / "killed", say=said.append)
    assert said[0].startswith("resuming after step ")
    assert int(said[0].split()[3]) >= 14
    train(path, tmp_path / "whole")
    assert same(tmp_path / "killed", tmp_path / "whole")
    rows = [history.read(tmp_path / name) for name in ("killed", "whole")]
    for one in rows:
        for row in one:
            row.pop("images_per_second", None)
    assert rows[0] == rows[1]
    assert not [*(tmp_path / "killed").glob("checkpoint-*")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [{"optimiser": {"kind": "adamw", "lr": 0.01}}, {"accumulate": 2}], ids=["adamw", "accumulate"]
)
def test_a_stopped_training_goes_on_exactly(
    photos: Path, tmp_path: Path, keys: dict[str, Any], monkeypatch: Any
) -> None:
    made = recipe(photos, **keys)
    train(made, tmp_path / "whole")
    real = steps.Steps.take

    def setting(self: steps.Steps, batch: Any) -> Any:
        if batch.step == 4:
            raise KeyboardInterrupt
        return real(self, batch)

    monkeypatch.setattr(steps.Steps, "take", setting)
    with pytest.raises(KeyboardInterrupt):
        train(made, tmp_path / "stopped", checkpoint_seconds=0)
    monkeypatch.undo()
    train(made, tmp_path / "stopped")
    assert same(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_stages_follow_one_another_and_a_stop_between_changes_nothing(
    photos: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    stages = [
        {"steps": 3, "head_only": True},
        {"steps": 3, "optimiser": {"lr": 0.01}, "schedule": {"kind": "cosine"}},
    ]
    made = recipe(photos, stages=stages)
    train(made, tmp_path / "whole")
    rates = [row["lr"] for row in history.read(tmp_path / "whole")]
    assert rates == pytest.approx([0.05, 0.05, 0.05, 0.01, 0.0075, 0.0025])
    real = steps.Steps.take
    monkeypatch.setattr(
        steps.Steps, "take", lambda self, batch: real(self, batch) if batch.step < 3 else 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        train(made, tmp_path / "stopped", checkpoint_seconds=0)
    monkeypatch.undo()
    train(made, tmp_path / "stopped")
    assert same(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_the_seed_decides_the_weights_and_workers_do_not(photos: Path, tmp_path: Path) -> None:
    folders = [
        train(recipe(photos), tmp_path / "one", workers=1),
        train(recipe(photos), tmp_path / "same", workers=3),
        train(recipe(photos), tmp_path / "other", seed=1),
    ]
    assert same(folders[0], folders[1])
    assert not same(folders[0], folders[2])


@pytest.mark.slow
def test_a_head_alone_leaves_all_other_layers_as_they_were(photos: Path, tmp_path: Path) -> None:
    made = recipe(photos, model="timm:resnet18@random", head_only=True, steps=2, data={"size": 32})
    folder = train(made, tmp_path / "head")
    before = trained.start("timm:resnet18@random", [str(i) for i in range(4)], 32, 0).module.state_dict()
    changed = {name for name, value in weights(folder).items() if not torch.equal(value, before[name])}
    assert changed == {"network.fc.weight", "network.fc.bias"}


def test_accumulated_batches_are_one_batch(photos: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Without batch normalisation, which sees each batch by itself, and in double precision, two of
    4 are one of 8.
    """

    def plain(spec: str, classes: Any, *more: Any, **named: Any) -> trained.Network:
        torch.manual_seed(0)
        layers = [
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
        ]
        module = torch.nn.Sequential(*layers, torch.nn.Linear(4, len(classes)))
        return trained.Network("small", module, small_input(), ("4",), {"spec": spec, "weights": None})

    monkeypatch.setattr(session, "start", plain)
    keys: dict[str, Any] = {"steps": 6, "label_smoothing": 0.1}
    one = train(recipe(photos, batch=8, **keys), tmp_path / "one")
    two = train(recipe(photos, batch=4, accumulate=2, **keys), tmp_path / "two")
    for name, value in weights(one).items():
        torch.testing.assert_close(weights(two)[name], value, rtol=1e-5, atol=1e-6)
    losses = [[row["loss"] for row in history.read(folder)] for folder in (one, two)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_it_stops_when_validation_no_longer_rises_and_keeps_the_best(photos: Path, tmp_path: Path) -> None:
    made = recipe(
        photos, epochs=40, optimiser={"lr": 1e-9}, early_stopping={"patience": 3}, data={"validation": 0.25}
    )
    said: list[str] = []
    folder = train(made, tmp_path / "r", say=said.append)
    record = json.loads((folder / "model.json").read_text())
    judged = [row for row in history.read(folder) if "validation_accuracy" in row]
    best = max(judged, key=lambda row: (row["validation_accuracy"], -row["step"]))
    assert (record["steps"], record["validation"]["accuracy"]) == (best["step"], best["validation_accuracy"])
    assert judged[-1]["step"] == best["step"] + 3 * 3 < 40 * 3
    assert "no longer rises" in said[-1]
    assert record["validation"]["n"] == 5
    assert not [*folder.glob("best-*")]


def test_the_global_generator_of_torch_is_as_before(photos: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(recipe(photos, steps=1), tmp_path / "r")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_bar_advances_with_words(photos: Path, tmp_path: Path) -> None:
    ticks: list[tuple[int, str]] = []

    def bar(name: str, total: int, done: int) -> Any:
        assert (name, total, done) == ("training", 4, 0)
        return lambda count, words: ticks.append((count, words))

    train(recipe(photos, steps=4, data={"validation": 0.25}), tmp_path / "r", bar=bar)
    assert [count for count, _ in ticks] == [1] * 4
    assert all(part in ticks[-1][1] for part in ("loss ", "accuracy ", " images/s", "validation "))


def test_three_views_and_their_divergence(photos: Path, tmp_path: Path) -> None:
    folder = train(recipe(photos, steps=2, augment={"names": "augmix", "jsd": True}), tmp_path / "r")
    assert np.isfinite([row["loss"] for row in history.read(folder)]).all()
    with pytest.raises(SoritesError, match="augment.jsd"):
        train(recipe(photos, steps=2, augment={"names": "optics", "jsd": True}), tmp_path / "other")


@pytest.mark.slow
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_mixed_precision_learns_and_goes_on_exactly(
    photos: Path, tmp_path: Path, half: torch.dtype, monkeypatch: Any
) -> None:
    """As on a GPU, with the same types and the same scaling of gradients, but on a CPU, because
    there is no GPU here.
    """

    def mixed(*_: Any) -> tuple[torch.dtype, torch.amp.GradScaler | None]:
        return half, torch.amp.GradScaler("cpu", growth_interval=2) if half is torch.float16 else None

    monkeypatch.setattr(steps, "precision", mixed)
    made = recipe(photos, epochs=2, batch=8)
    train(made, tmp_path / "whole")
    real = steps.Steps.take
    monkeypatch.setattr(
        steps.Steps, "take", lambda self, batch: real(self, batch) if batch.step < 3 else 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        train(made, tmp_path / "stopped", checkpoint_seconds=0)
    monkeypatch.setattr(steps.Steps, "take", real)
    train(made, tmp_path / "stopped")
    assert same(tmp_path / "whole", tmp_path / "stopped")
    monkeypatch.undo()
    train(made, tmp_path / "plain")
    assert not same(tmp_path / "whole", tmp_path / "plain")
    losses = [[row["loss"] for row in history.read(tmp_path / name)] for name in ("whole", "plain")]
    np.testing.assert_allclose(losses[0][0], losses[1][0], rtol=0.02)
