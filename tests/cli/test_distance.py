from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command
from typer.testing import CliRunner

from sorites.cli import app

runner = CliRunner()

REFEREE = """
import numpy as np
WORDS = dict(zip(["cat", "dog", "photo", "sketch"], np.eye(12)))
class Colours:
    version = "1"
    labels = ("cat", "dog")
    looks = (("a photo of a {}",), ("a sketch of a {}",))
    def images(self, pictures):
        rows = [np.concatenate([p.mean((0, 1)), p.std((0, 1)), p[::2].mean((0, 1)), p[:, ::2].mean((0, 1))]) for p in pictures]
        return np.array(rows) - 100
    def texts(self, sentences):
        return np.array([sum(WORDS[w] for w in s.split() if w in WORDS) for s in sentences])
"""


@pytest.fixture
def referee(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (home / "colours.py").write_text(REFEREE, encoding="utf-8")
    monkeypatch.setenv("SORITES_CACHE", str(home / "cache"))
    return "python:colours:Colours"


def test_a_decomposition_is_learnt_and_measured_with(command: Command, home: Path, photos: Path, referee: str) -> None:
    code, out, err = command("decompose", "train", "--referee", referee, "--epochs", "2", "--out", "w.safetensors")
    assert code == 0, err
    assert out.endswith("next: sorites distance SOURCE --against FAMILIAR --decomposition w.safetensors\n")
    words = [f"folder:{photos}", "--against", f"folder:{photos}", "--referee", referee, "--k", "2"]
    code, out, err = command("distance", *words, "--decomposition", "w.safetensors")
    assert code == 0, err
    assert out.splitlines()[0] == "pictures per level: appearance (covariate) down, meaning (semantic) across"
    assert out.splitlines()[-1] == "wrote 20 pictures to distance.parquet"
    code, out, err = command("measure", *words, "--split", "w.safetensors")
    assert (code, out.splitlines()[-1]) == (0, "wrote 20 pictures to degrees.parquet"), err
    assert pl.read_parquet(home / "distance.parquet").equals(pl.read_parquet(home / "degrees.parquet"))


def test_the_old_verb_says_that_it_is_deprecated() -> None:
    done = runner.invoke(app, ["measure", "--help"], env={"COLUMNS": "160"})
    assert 'Deprecated: type "sorites distance" instead; here --out is degrees.parquet.' in done.stdout


def test_the_default_referee_says_what_it_knows(photos: Path) -> None:
    done = runner.invoke(app, ["distance", f"folder:{photos}", "--against", f"folder:{photos}", "--referee", "cifar:12"])
    assert "knows ten kinds of things at 32 px (airplane, " in done.stderr
    assert "give --referee open_clip:NAME@WEIGHTS for others" in done.stderr


def test_labels_may_be_imagenet() -> None:
    for verb in (["distance"], ["decompose", "train"]):
        assert "FILE|imagenet" in runner.invoke(app, [*verb, "--help"], env={"COLUMNS": "160"}).stdout
