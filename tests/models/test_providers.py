"""Providers of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.models.test_onnx import build

import sorites
from sorites.core.errors import SoritesError, UnknownName

IMAGES = [np.random.default_rng(i).integers(0, 256, (60 + i, 80, 3), np.uint8) for i in range(5)]


def test_a_provider_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    path = build(tmp_path / "m.onnx")
    plain, on_cpu = sorites.model(f"onnx:{path}"), sorites.model(f"onnx:{path}?provider=cpu")
    assert np.array_equal(plain(IMAGES).logits, on_cpu(IMAGES).logits)  # type: ignore[arg-type]
    assert (plain.version, plain.backend) == (on_cpu.version, on_cpu.backend)
    with pytest.raises(SoritesError, match="provider coreml"):
        sorites.model(f"onnx:{path}?provider=coreml")
    with pytest.raises(UnknownName, match="qnn"):
        sorites.model(f"onnx:{path}?provider=qnn")
