"""A finished run of two models, and a workbench that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import CLASSES

import sorites
from sorites.apps.serving import Server
from sorites.apps.workbench.library import Library
from sorites.apps.workbench.server import Workbench, workbench_app

TOY = "tests.apps.workbench.toy"


@pytest.fixture(scope="session")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workbench") / "finished"
    sorites.run(
        "demo",
        source=f"folder:{photos}",
        labels=list(CLASSES),
        models=[f"classify=python:{TOY}:classify", f"coarse=python:{TOY}:coarse"],
        shifts=["defocus_disk", "gaussian_noise"],
        scorers=["msp"],
        limit=8,
        keep_features=True,
        out=folder,
    )
    return folder


@pytest.fixture(scope="session")
def detected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a detector on images with exact boxes, in a folder of its own."""
    folder = tmp_path_factory.mktemp("detected") / "boxes"
    sorites.run(
        "demo",
        source="composites:3?size=128",
        labels="coco",
        models=[f"find=python:{TOY}:find"],
        shifts=["gaussian_noise"],
        out=folder,
    )
    return folder


@pytest.fixture(scope="session")
def workbench(finished: Path) -> Workbench:
    return Workbench(Library([finished.parent]), finished.parent / "selections")


@pytest.fixture(scope="session")
def served(workbench: Workbench) -> Iterator[str]:
    """The address of the page."""
    server = Server(workbench_app(workbench))
    yield f"{server.url}/{workbench.token}/"
    server.stop()
