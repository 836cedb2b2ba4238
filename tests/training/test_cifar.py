"""A short training on CIFAR-10: what the small network reaches, and the same model in a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import sorites
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.models.trained import read_record
from sorites.sources.cifar import CLASSES
from sorites.suites.suite import Suite
from sorites.training.loop import train


@pytest.mark.slow
def test_four_hundred_steps_reach_58_percent(tmp_path: Path) -> None:
    """A first trial reached 64 % in 400 steps; a seed moves that by about two points."""
    try:
        sorites.source("cifar", labels(CLASSES))
    except SoritesError as error:
        pytest.skip(str(error))
    folder = train("cifar_optics", tmp_path / "m", steps=400, augment="none", validate_every=10.0)
    record = read_record(folder)
    assert record.validation is not None
    assert record.validation["n"] == 2000
    assert record.validation["accuracy"] >= 0.58
    names = str(folder / "labels.txt")
    suite = Suite(name="s", source="cifar", labels=names, limit=500)
    table = sorites.run(suite, models=[f"trained:{folder}"], out=tmp_path / "run", shifts=["contrast"])
    clean = sorites.accuracy(table, by=["shift"]).filter(shift="clean")
    assert abs(clean["value"].item() - record.validation["accuracy"]) < 0.07
