"""The message about a missing library of an extra has the command that installs it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.evaluation.engines import ray
from sorites.io import stores
from sorites.io.stores import to_path
from sorites.measures.neighbours import Index


@pytest.fixture(autouse=True)
def anew() -> None:
    stores._store.cache_clear()


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ray")
    with pytest.raises(SoritesError, match=r"Type: pip install 'sorites\[ray\]'"):
        list(ray.ray_units([1], abs, 1))


@pytest.mark.parametrize("gone", ["fsspec", "s3fs"])
def test_a_store(monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    without(monkeypatch, gone)
    with pytest.raises(SoritesError, match=r"s3://.*Type: pip install 'sorites\[remote\]'"):
        to_path("s3://bucket/run").exists()


def test_a_store_of_another_library() -> None:
    with pytest.raises(SoritesError, match=r"gs://.*Type: pip install gcsfs"):
        to_path("gs://bucket/run").exists()


def test_an_index_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "faiss")
    with pytest.raises(SoritesError, match=r"Type: pip install 'sorites\[faiss\]'"):
        Index.build(np.eye(20, dtype=np.float32), "ivf", 3)
