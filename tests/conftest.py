"""Small real objects that every room's tests share: a folder of images, a model that is quick and
not silly, a browser.
"""

from __future__ import annotations

import tests.one_thread  # noqa: F401

# isort: split
import functools
import gc
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer.main
import typer.testing
from filelock import FileLock
from PIL import Image as Pillow

from sorites.core import SOURCES, ImageF32, ImageU8, Model, Outputs, to_float, to_uint8
from sorites.core.table import write_shard

CLASSES = ("n01440764", "n01443537", "n01484850", "n01491361")
# Typer reads the type hints of every verb for each command that is typed: a fifth of a second, once
# per process for a user.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)
# The longest wait for a browser, ms: pages are seconds behind where other programs take the processor.
BROWSER_MS = 180_000
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start files with a test that is marked ``long`` first: a worker that gets one last works on alone."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """Search the many objects of tests and libraries for garbage less often.

    Half of the time to parse the package went into such searches. What exists now is never garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


def pytest_sessionfinish() -> None:
    """Let Python end as usual; some libraries report what is not collected at the end as leaks."""
    gc.unfreeze()


def scene(seed: int, height: int = 60, width: int = 80) -> ImageU8:
    """An image with smooth ground, edges and texture: something for a shift to act on."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [np.sin(rng.uniform(2, 30) * x + rng.uniform(2, 30) * y + rng.uniform(0, 6)) for _ in range(3)]
    ground = np.stack(waves, axis=-1) * 60 + rng.uniform(60, 190, 3)
    disk = (x - rng.uniform(0.2, 0.8)) ** 2 + (y - rng.uniform(0.2, 0.6)) ** 2 < 0.03
    ground[disk] = rng.uniform(0, 255, 3)
    return np.clip(ground + rng.normal(0, 4, ground.shape), 0, 255).astype(np.uint8)


@pytest.fixture
def two_torch_threads() -> Iterator[None]:
    """Give torch two threads, so that a test can see whether a function takes one and gives two back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def photo() -> ImageF32:
    """Discs laid over one another under uneven light, with fine texture: 8 bits, 96 x 128, read-only."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:96, :128].astype(np.float32)
    scene = np.full((96, 128, 3), 0.5, np.float32)
    for _ in range(60):
        inside = np.hypot(y - rng.uniform(0, 96), x - rng.uniform(0, 128)) < 6 / rng.uniform(0.12, 1)
        scene[inside] = rng.uniform(0, 1, 3) * (0.8 + 0.2 * rng.random((int(inside.sum()), 1)))
    scene *= (0.7 + 0.3 * x / 128)[..., None]
    made = to_float(to_uint8(scene))
    made.flags.writeable = False
    return made


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty images in four class folders named by WordNet id."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(20):
        folder = root / CLASSES[i % 4]
        folder.mkdir(exist_ok=True)
        Pillow.fromarray(scene(i, 60 + 3 * i, 80)).save(folder / f"p{i:02d}.png")
    return root


def blocks(image: ImageU8) -> np.ndarray:
    """Mean and spread of each block of a 6 x 6 grid: enough to tell scenes apart until they are
    blurred or drowned.
    """
    rows = np.array_split(image.astype(np.float32) / 255, 6, axis=0)
    cells = [cell for row in rows for cell in np.array_split(row, 6, axis=1)]
    return (
        np.concatenate([[c.mean(axis=(0, 1)), c.std(axis=(0, 1))] for c in cells]).ravel().astype(np.float32)
    )


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Model]:
    """A model of the four classes: the nearest of the twenty scenes it knows by heart decides."""
    known = np.stack([blocks(scene(i, 60 + 3 * i, 80)) for i in range(20)])

    def make(name: str = "tiny") -> Model:
        def forward(images: list[np.ndarray]) -> Outputs:
            features = np.stack([blocks(p) for p in images])
            near = -np.linalg.norm(features[:, None] - known[None], axis=2)
            logits = np.stack([near[:, c::4].max(axis=1) for c in range(4)], axis=1)
            return Outputs(logits.astype(np.float32) * 10, features)

        return Model(name, forward, labels=CLASSES, version="1")

    return make


@pytest.fixture
def fading_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let suites name the source ``fading``, whose samples have dials of their own."""
    from tests.evaluation.fading import fading

    SOURCES.names()
    monkeypatch.setitem(SOURCES._objects, "fading", fading)


@pytest.fixture(scope="session")
def tracer() -> None:
    """Skip where the ray tracer is not installed; its import takes seconds and warns."""
    pytest.importorskip("finufft", reason="needs: pip install 'sorites[lens]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("optiland", reason="needs: pip install 'sorites[lens]'")


def debian_program(package: str, program: str) -> Path:
    """Return a program of a Debian package, installed when it is missing; a machine that cannot have it fails here."""
    with FileLock(
        Path(tempfile.gettempdir(), "sorites-apt.lock"), timeout=1800
    ):  # dpkg has one user at a time
        if shutil.which(program) is None:
            assert shutil.which("apt-get"), (
                f"the tests need {program}, and there is no apt-get to install it with"
            )
            wait = ["-o", "DPkg::Lock::Timeout=300"]
            for words in (["update"], ["install", "-y", "--no-install-recommends", package]):
                done = subprocess.run(["apt-get", *wait, *words], timeout=900, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
    found = shutil.which(program)
    assert found is not None, f"Debian's package {package} has no {program}"
    return Path(found)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Debian's Chromium."""
    return debian_program("chromium", "chromium")


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Any]:
    """A browser for the tests of one file.

    Playwright's event loop runs as long as it is open, and a process has room for one.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=str(chromium), args=[*QUIET, "--no-first-run"], timeout=BROWSER_MS
        )
        yield opened
        opened.close()


def one_shard_per_model(run: Path) -> None:
    """Split the shards of a run, as if tasks had been done for one model at a time."""
    for path in list((run / "predictions").iterdir()):
        unit, _, _ = path.name.rpartition("--")
        for (model,), rows in pl.read_parquet(path).group_by("model"):
            write_shard(rows, run, f"{unit}--{model}")
        path.unlink()
