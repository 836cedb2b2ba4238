"""Runs of two models on the same twenty scenes: a good one, and the same with red and blue swapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sorites
from sorites.core import Model, Outputs
from sorites.suites.suite import parse

SUITE = {
    "name": "two",
    "labels": ["n01440764", "n01443537", "n01484850", "n01491361"],
    "shifts": ["gaussian_noise", "jpeg"],
}


def weakened(model: Model) -> Model:
    """Return the model with red and blue swapped in its input."""

    def forward(images: list[np.ndarray]) -> Outputs:
        return model.forward([image[..., ::-1] for image in images])

    return replace(model, name="weak", forward=forward, version="2")


@pytest.fixture(scope="session")
def runs(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs ``base``, ``weak``, ``few`` (eight samples) and ``both``."""
    root, suite = tmp_path_factory.mktemp("runs"), parse(SUITE, "test")
    given = {"source": f"folder:{photos}"}
    sorites.run(suite, **given, models=[tiny("base")], out=root / "base")
    sorites.run(suite, **given, models=[weakened(tiny())], out=root / "weak")
    sorites.run(suite, **given, models=[tiny("base")], out=root / "few", limit=8)
    sorites.run(suite, **given, models=[tiny("base"), weakened(tiny())], out=root / "both")
    return root
