from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from sorites.core import ImageU8


@pytest.fixture(scope="session")
def peer() -> Callable[[ImageU8, str, int], ImageU8]:
    """The package imagecorruptions as ``corrupt(image, name, level)``, through the loader that
    the bench uses.
    """
    path = Path(__file__).parents[2] / "bench" / "shifts.py"
    spec = importlib.util.spec_from_file_location("bench_shifts", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    found: Callable[[ImageU8, str, int], ImageU8] | None = bench.peer()
    if found is None:
        pytest.skip("needs: pip install --no-deps imagecorruptions, opencv-python-headless and scikit-image")
    return found
