from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command
from typer.testing import CliRunner

from sorites.cli import app

runner = CliRunner()

ENCODER = """
import numpy as np
NAMES = "cat dog photo sketch tench goldfish great tiger".split()
WORDS = dict(zip(NAMES, np.random.default_rng(0).standard_normal((8, 12))))
class Colours:
    version = "1"
    labels = ("cat", "dog")
    styles = (("a photo of a {}",), ("a sketch of a {}",))
    def images(self, images):
        rows = [
            np.concatenate([p.mean((0, 1)), p.std((0, 1)), p[::2].mean((0, 1)), p[:, ::2].mean((0, 1))])
            for p in images
        ]
        return np.array(rows) - 100
    def texts(self, sentences):
        return np.array([sum(WORDS[w] for w in s.split() if w in WORDS) for s in sentences])
"""


@pytest.fixture
def encoder(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (home / "colours.py").write_text(ENCODER, encoding="utf-8")
    monkeypatch.setenv("SORITES_CACHE", str(home / "cache"))
    return "python:colours:Colours"


def test_a_decomposition_is_learnt_and_measured_with(
    command: Command, home: Path, photos: Path, encoder: str
) -> None:
    code, out, err = command(
        "decompose", "train", "--encoder", encoder, "--epochs", "2", "--out", "w.safetensors"
    )
    assert code == 0, err
    assert out.endswith(
        "next: sorites distance SOURCE --against IN-DISTRIBUTION --decomposition w.safetensors\n"
    )
    words = [f"folder:{photos}", "--against", f"folder:{photos}", "--encoder", encoder, "--k", "2"]
    code, out, err = command("distance", *words, "--decomposition", "w.safetensors")
    assert code == 0, err
    assert out.splitlines()[0] == "images per level: covariate (appearance) down, semantic (meaning) across"
    assert out.splitlines()[-1] == "wrote 20 images to distance.parquet"


def test_texts_are_measured_and_templates_and_labels_come_from_files(
    command: Command, home: Path, photos: Path, encoder: str
) -> None:
    (home / "labels.txt").write_text("n02121808 cat, domestic_cat\ndog\n")
    (home / "templates.txt").write_text("a photo of a {c}\n'a sketch of a {}',\n")
    named = ["--labels", "labels.txt", "--templates", "templates.txt"]
    (home / "classes.txt").write_text("\n".join(entry.name for entry in photos.iterdir()))
    checked = ["--check", f"folder:{photos}", "--check-labels", "classes.txt"]
    code, out, err = command(
        "decompose",
        "train",
        "--encoder",
        encoder,
        *named,
        *checked,
        "--epochs",
        "2",
        "--out",
        "w.safetensors",
    )
    assert code == 0, err
    assert {"value", "top5", "chance"} <= set(out.split())
    (home / "prompts.txt").write_text("a photo of a cat\n\na sketch of a dog\n")
    words = [
        "--against",
        f"folder:{photos}",
        "--encoder",
        encoder,
        "--k",
        "2",
        "--decomposition",
        "w.safetensors",
    ]
    code, out, err = command(
        "distance",
        "--texts",
        "prompts.txt",
        *words,
        "--sem-edges",
        "0.5",
        "--cov-edges",
        "0.5",
        "--out",
        "t.parquet",
    )
    assert code == 0, err
    assert out.splitlines()[0].startswith("texts per level: ")
    assert out.splitlines()[-1] == "wrote 2 texts to t.parquet"
    held = pl.read_parquet(home / "t.parquet")
    assert held["text"].to_list() == ["a photo of a cat", "a sketch of a dog"]
    assert held.columns == ["text", "semantic", "covariate", "sem_level", "cov_level"]
    for wrong in ([], [f"folder:{photos}", "--texts", "prompts.txt"]):
        code, _, err = command("distance", *wrong, *words)
        assert code == 2
        assert "or --texts FILE" in err


def test_the_default_encoder_says_what_it_knows(command: Command, photos: Path) -> None:
    words = ["distance", f"folder:{photos}", "--against", f"folder:{photos}", "--encoder", "cifar:12"]
    _, _, err = command(*words)
    assert "has ten classes at 32 px (airplane, " in err
    assert "pass --encoder open_clip:NAME@WEIGHTS" in err


def test_labels_may_be_imagenet() -> None:
    for verb in (["distance"], ["decompose", "train"]):
        assert "FILE|imagenet" in runner.invoke(app, [*verb, "--help"], env={"COLUMNS": "160"}).stdout
