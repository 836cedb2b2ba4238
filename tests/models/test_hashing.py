"""Weights are hashed once per process, and again only after their file has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from tests.models.test_onnx import build
from tests.models.test_timm import network, saved

from sorites import core
from sorites.models import onnx, torch_module


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets an entry for each hash over the weights of a torch module."""
    calls: list[object] = []
    compute = torch_module.weights_hash

    def counted(module: torch.nn.Module, start: bytes) -> str:
        calls.append(module)
        return compute(module, start)

    monkeypatch.setattr(torch_module, "weights_hash", counted)
    return calls


def test_weights_of_a_file_are_hashed_once(tmp_path: Path, hashed: list[object]) -> None:
    net = network("test_resnet")
    spec = f"timm:test_resnet@{saved(net, tmp_path / 'w.safetensors')}"
    first = core.model(spec).version
    assert core.model(spec).version == first
    assert len(hashed) == 1
    with torch.no_grad():
        next(net.parameters()).view(-1)[0] += 1e-3
    saved(net, tmp_path / "w.safetensors")
    assert core.model(spec).version != first
    assert len(hashed) == 2


def test_the_key_of_caches_is_hashed_once(tmp_path: Path, hashed: list[object]) -> None:
    model = core.model(f"timm:test_resnet@{saved(network('test_resnet'), tmp_path / 'w.safetensors')}")
    assert model.cache_key() == model.cache_key()
    assert len(hashed) == 2, "once for the version, once for the key"


def test_an_onnx_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(build(tmp_path / "m.onnx"))
    onnx._hash_files.cache_clear()
    first = onnx.version_of(path)
    assert first == hashlib.sha256(path.read_bytes()).hexdigest()
    assert core.model(f"onnx:{path}").version == first
    assert onnx._hash_files.cache_info().misses == 1
    Path(f"{path}.json").write_text('{"crop_pct": 1}')
    assert onnx.version_of(path) != first
