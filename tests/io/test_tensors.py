"""Safetensors files: arrays with the texts of their header, or one error that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from sorites.core.errors import SoritesError
from sorites.io.tables import tensors


def test_arrays_and_header_come_back(tmp_path: Path) -> None:
    (tmp_path / "a[1]").write_bytes(save({"x": np.arange(3.0), "y": np.zeros(2)}, {"about": "it"}))
    arrays, header = tensors(tmp_path / "a[1]", ["x"])
    assert arrays["x"].tolist() == [0, 1, 2]
    assert (list(arrays), header) == (["x"], {"about": "it"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 9,
        b"\xff" * 64,
        (2).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b'{"x": [[[',
    ],
)
def test_what_is_none_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(SoritesError, match="a safetensors file"):
        tensors(tmp_path / "a", ["x"])
    with pytest.raises(SoritesError, match="there is no such file"):
        tensors(tmp_path)
