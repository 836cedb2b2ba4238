"""What a run takes, counted before: the counts are those of the run itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sorites
from sorites.cli.app import app
from sorites.core import Model, table
from sorites.core.errors import SoritesError
from sorites.evaluation.estimate import Calibration, Costs, costs, read_calibration
from sorites.suites.suite import parse

KNOWN = Calibration(
    machine="m", date="2026-11-16", samples=4, decode=0.5, shifts={"clean": 0.0, "contrast": 0.25}, models={"a": 1.0, "b": 2.0},
    write=0.125, speedup={1: 1.0, 2: 1.6},
)  # fmt: skip


def test_the_counts_are_those_of_the_run(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    suite = parse(
        {
            "name": "s",
            "source": f"folder:{photos}",
            "shifts": ["contrast", "jpeg"],
            "scorers": ["msp"],
            "limit": 7,
        },
        "test",
    )
    sorites.run(suite, models=[tiny()], out=tmp_path / "r")
    rows = table.read(tmp_path / "r").collect()
    found = costs(suite.model_copy(update={"models": ("tiny",)}))
    assert found.rows == rows.height
    assert found.passes == rows["image_id"].n_unique()
    assert found.samples == 7
    assert found.units * len(found.models) == len(list((tmp_path / "r" / "predictions").glob("*.parquet")))


def test_time_is_the_sum_of_what_was_measured() -> None:
    found = Costs(10, {"clean": 10, "contrast": 40}, ("a", "b"), 0, 100, 2, 16)
    alone = 10 * 0.5 + 40 * 0.25 + 50 * 3.0 + 100 * 0.125
    assert found.seconds(KNOWN, 1) == (alone, True)
    assert found.seconds(KNOWN, 2) == (alone / 1.6, True)
    assert found.seconds(KNOWN, 20) == (alone / 16, False)
    with pytest.raises(SoritesError, match="no model c"):
        Costs(10, {"clean": 10}, ("c",), 0, 100, 2, 16).seconds(KNOWN, 1)


def test_a_refinement_is_counted_at_its_most(photos: Path) -> None:
    base = {
        "name": "s",
        "source": f"folder:{photos}",
        "shifts": [{"name": "contrast", "severities": [0.4, 0.8]}],
        "limit": 5,
    }
    top = max(sorites.shift("contrast").levels)
    found = costs(parse({**base, "refine": 0.1 / top}, "test"))
    assert found.probes == 5 * 2  # a bracket of 0.4 is halved twice until it is no wider than 0.1


@pytest.mark.slow
def test_the_verb_measures_and_tells(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "by_mean.py").write_text(
        "import numpy as np\ndef logits(images):\n    return np.stack([np.full(1000, p.mean()) for p in"
        " images])\n"
    )
    words = [
        "demo",
        "--source",
        f"folder:{photos}",
        "--model",
        "python:by_mean:logits",
        "--shift",
        "contrast",
    ]
    done = CliRunner().invoke(app, ["plan", "calibrate", *words, "--out", "c.json"])
    assert done.exit_code == 0, done.output
    assert set(read_calibration(tmp_path / "c.json").shifts) == {"clean", "contrast"}
    done = CliRunner().invoke(
        app, ["plan", *words, "--calibration", "c.json", "--price", "2.5", "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["passes"] == 20 * 6
    assert told["price"] == pytest.approx(told["seconds"] / 3600 * 2.5)
    plain = CliRunner().invoke(app, ["plan", *words])
    assert "time       unknown" in plain.output


@pytest.mark.parametrize(
    "words", ["calibrate", "demo demo", "demo --price 3", "demo --calibration none.json"]
)
def test_bad_words_are_errors_in_words(words: str, photos: Path) -> None:
    done = CliRunner().invoke(app, ["plan", *words.split(), "--source", f"folder:{photos}"])
    assert isinstance(done.exception, SoritesError), done.output
