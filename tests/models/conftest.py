"""A cache of their own for the tests' models, real photographs, and each lite model loaded once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.core import ImageU8, Model
from sorites.core.compute.torch_tools import one_thread

USERS_CACHE = os.environ.get("SORITES_CACHE", "")


def users_cache(patch: pytest.MonkeyPatch) -> None:
    """Use the user's own cache, for slow tests that fetch what is large and stays."""
    patch.setenv("SORITES_CACHE", USERS_CACHE)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("SORITES_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Torch's threads spin while they wait, which makes short tests long on a busy machine."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def photographs() -> dict[str, ImageU8]:
    """Photographs that scikit-image carries in its wheel."""
    from skimage import data

    return {name: getattr(data, name)() for name in ("chelsea", "coffee", "astronaut")}


@pytest.fixture(scope="session")
def lite() -> Callable[[int], Model]:
    return functools.cache(lambda which: core.model(f"lite{which}"))


@pytest.fixture(scope="session")
def noise() -> list[ImageU8]:
    """Nine images of nine sizes."""
    rng = np.random.default_rng(5)
    return [rng.integers(0, 256, (40 + 30 * i, 200 - 15 * i, 3), np.uint8) for i in range(9)]
