from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sorites.core import Image, Picture, to_image, to_picture


@pytest.fixture(scope="session")
def photo() -> Image:
    """Discs laid over one another under uneven light, with fine texture: 8 bits, 96 x 128, read-only."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:96, :128].astype(np.float32)
    scene = np.full((96, 128, 3), 0.5, np.float32)
    for _ in range(60):
        inside = np.hypot(y - rng.uniform(0, 96), x - rng.uniform(0, 128)) < 6 / rng.uniform(0.12, 1)
        scene[inside] = rng.uniform(0, 1, 3) * (0.8 + 0.2 * rng.random((int(inside.sum()), 1)))
    scene *= (0.7 + 0.3 * x / 128)[..., None]
    made = to_image(to_picture(scene))
    made.flags.writeable = False
    return made


@pytest.fixture(scope="session")
def peer() -> Callable[[Picture, str, int], Picture]:
    """The package imagecorruptions as ``corrupt(picture, name, level)``, through the loader that the bench uses."""
    path = Path(__file__).parents[2] / "bench" / "shifts.py"
    spec = importlib.util.spec_from_file_location("bench_shifts", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    found: Callable[[Picture, str, int], Picture] | None = bench.peer()
    if found is None:
        pytest.skip("needs: pip install --no-deps imagecorruptions, opencv-python-headless and scikit-image")
    return found
