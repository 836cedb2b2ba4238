"""The inputs of ``examples``, each made once per session."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contracts import examples

from sorites.core.compute.torch_tools import one_thread

Example = Callable[[str, str], tuple[str, Path]]


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """Return the spec of a plug-in, by its kind and name, and the folder that holds its input."""

    @functools.cache
    def made(kind: str, name: str) -> tuple[str, Path]:
        folder = tmp_path_factory.mktemp(f"{kind}-{name}")
        make = {"model": examples.MODELS, "source": examples.SOURCES}[kind].get(name)
        if make is None:
            return name, folder
        with pytest.MonkeyPatch.context() as patch, one_thread():
            patch.setenv("SORITES_CACHE", str(folder / "cache"))
            return make(folder), folder

    return made
