"""Torch modules on ONNX Runtime: one export, a cache that heals itself, and torch where the two disagree."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sorites.models.preprocess import Input
from sorites.models.torch_module import cache_fingerprint, fingerprint, linear_head, torch_model
from sorites.models.trial import trial_images

WANTS = Input(size=(20, 16))


class Small(nn.Module):
    """A convolution and a linear layer, with seeded weights."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.drop, self.fc = nn.Conv2d(3, 8, 3, stride=2), nn.Dropout(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.drop(self.conv(x).relu().mean((2, 3)))
        return self.fc(features), features


class Louder(Small):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits, features = super().forward(x)
        return 2 * logits, features


class Restless(Small):
    """Never the same twice, so that no export can agree with it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits, features = super().forward(x)
        return logits + torch.rand_like(logits), features


def by_hand(module: nn.Module, images: list[np.ndarray]) -> list[np.ndarray]:
    x = torch.from_numpy(np.stack(images)).double() / 255
    x = (x - torch.tensor(WANTS.mean).double()) / torch.tensor(WANTS.std).double()
    with torch.inference_mode():
        return [part.numpy() for part in module.eval()(x.permute(0, 3, 1, 2).float())]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path))
    return tmp_path / "onnx"


def test_normalises_and_runs_as_torch_does(folder: Path) -> None:
    module, images = Small(), trial_images(WANTS.size)
    outputs = torch_model("small", module, WANTS)(images)
    logits, features = by_hand(module, images)
    np.testing.assert_allclose(outputs.logits, logits, atol=1e-5)
    np.testing.assert_allclose(outputs.features, features, atol=1e-5)
    assert len(list(folder.glob("*.onnx"))) == 1


def test_is_exported_once(folder: Path) -> None:
    torch_model("small", Small(), WANTS)
    (path,) = folder.glob("*.onnx")
    written = path.stat().st_mtime_ns
    torch_model("small", Small(), WANTS)
    assert path.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", [b"", b"not a graph", None])
def test_a_damaged_file_is_written_again(folder: Path, damage: bytes | None) -> None:
    torch_model("small", Small(), WANTS)
    (path,) = folder.glob("*.onnx")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    outputs = torch_model("small", Small(), WANTS)(trial_images(WANTS.size))
    np.testing.assert_allclose(outputs.logits, by_hand(Small(), trial_images(WANTS.size))[0], atol=1e-5)
    assert path.read_bytes() == whole
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_a_stale_graph_is_written_again(folder: Path) -> None:
    """The code changed under the same weights, layers and best labels: only the comparison with
    torch can tell.
    """
    torch_model("small", Small(), WANTS)
    (path,) = folder.glob("*.onnx")
    outputs = torch_model("small", Louder(), WANTS)(trial_images(WANTS.size))
    assert [p.name for p in folder.iterdir()] == [path.name]
    np.testing.assert_allclose(outputs.logits, 2 * by_hand(Small(), trial_images(WANTS.size))[0], atol=1e-5)


def test_falls_back_to_torch_with_one_warning(folder: Path) -> None:
    with pytest.warns(UserWarning, match="model restless runs") as caught:
        model = torch_model("restless", Restless(), WANTS)
    assert len(caught) == 1
    outputs, (logits, features) = (
        model(trial_images(WANTS.size)),
        by_hand(Small(), trial_images(WANTS.size)),
    )
    assert outputs.logits is not None
    assert (outputs.logits - logits >= -1e-5).all()
    np.testing.assert_allclose(outputs.features, features, atol=1e-5)
    assert not list(folder.glob("*"))


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "file"))
    assert torch_model("small", Small(), WANTS)(trial_images(WANTS.size)).logits is not None


def test_threads_may_load_the_same_model_together(folder: Path) -> None:
    alike = [Small() for _ in range(4)]  # torch's seed is one for all threads, so they are drawn before
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda module: torch_model("small", module, WANTS), alike))
    assert len({model.version for model in models}) == 1
    assert len(list(folder.iterdir())) == 1


def test_the_fingerprint_sees_weights_layers_and_preprocessing() -> None:
    prints = [
        fingerprint(Small(), WANTS),
        fingerprint(Small(1), WANTS),
        fingerprint(nn.Sequential(Small()), WANTS),
        fingerprint(Small(), Input()),
    ]
    assert len(set(prints)) == 4
    assert fingerprint(Small(), WANTS) == prints[0]


def test_a_renamed_class_is_the_same_model_and_another_function_is_not(folder: Path) -> None:
    class Squash(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(20 * x)

    class Renamed(Squash):
        pass

    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -x

    torch.manual_seed(0)
    last = nn.Linear(3, 9)

    def version(layer: nn.Module) -> str:
        return torch_model(
            "m", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), layer, last), WANTS
        ).version

    assert version(Squash()) == version(Renamed())
    assert version(Squash()) != version(Turned())
    assert version(nn.ReLU()) != version(nn.Sigmoid())


def test_the_key_of_caches_stays_the_same() -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten())
    for weights in network.parameters():
        nn.init.constant_(weights, 0.5)
    assert cache_fingerprint(network, WANTS) == "b2bf0304cf0630ed68bd67304ffb3a5a"
    assert torch_model("m", Small(), WANTS).cache_key() == cache_fingerprint(Small(), WANTS)


def test_a_module_may_give_logits_alone(folder: Path) -> None:
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    outputs = torch_model("alone", module, WANTS)(trial_images(WANTS.size))
    assert outputs.features is None
    assert outputs.logits is not None
    assert outputs.logits.shape == (3, 4)


def test_head_of_a_linear_layer_only() -> None:
    head = linear_head(nn.Linear(3, 4, bias=False))
    assert head is not None
    assert head[0].shape == (4, 3)
    assert not head[1].any()
    assert linear_head(nn.Identity()) is None


QUIET = """
import torch
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model
from sorites.models.trial import trial_images
class Small(torch.nn.Module):
    def forward(self, x):
        return x.mean((2, 3))
model = torch_model("small", Small().eval(), Input(size=(16, 16)))
print(model(trial_images((16, 16)), False).logits.shape)
"""


@pytest.mark.slow
def test_onnx_runtime_reports_nothing_to_its_makers(tmp_path: Path) -> None:
    """It keeps an id and a list of events below the user's cache folder where it does."""
    homes = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SORITES_CACHE": str(tmp_path / "sorites"),
        "HOME": str(tmp_path / "home"),
    }
    env = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"} | homes
    (tmp_path / "cache").mkdir()
    subprocess.run([sys.executable, "-c", QUIET], env=env, check=True, timeout=120)
    assert list((tmp_path / "cache").iterdir()) == []
