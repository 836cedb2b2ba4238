"""``sorites train run`` and ``sorites list recipes``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sorites.cli import app
from sorites.core.errors import SoritesError
from sorites.core.messages import in_shell

SHORT = ["--labels", "found", "--validation", "0.2", "--batch", "4", "--set", "validate_every=1.0"]


def test_a_training_from_the_command_line(photos: Path, tmp_path: Path) -> None:
    command = [
        "train",
        "run",
        "cifar_optics",
        "--source",
        f"folder:{photos}",
        *SHORT,
        "--steps",
        "3",
        "--augment",
        "optics",
    ]
    command += ["--set", "optimiser.lr=0.02", "--seed", "4", "--out", str(tmp_path / "m")]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    assert "n = 4" in result.stdout
    assert f"wrote the model trained:{tmp_path / 'm'}" in result.stdout
    recipe = json.loads((tmp_path / "m/model.json").read_text())["recipe"]
    assert (recipe["optimiser"]["lr"], recipe["seed"], recipe["augment"]["names"]) == (0.02, 4, "optics")
    assert recipe["data"]["validation"]["share"] == 0.2
    page = (tmp_path / "m/train.html").read_text()
    assert "Sorites · training · cifar_optics" in page
    assert {path.name for path in (tmp_path / "m").iterdir()} - {".sorites.lock"} == {
        "data.parquet",
        "history.jsonl",
        "labels.txt",
        "model.json",
        "model.safetensors",
        "train.html",
        "train.json",
    }
    again = CliRunner().invoke(app, command, catch_exceptions=False)
    assert again.exit_code == 0
    with pytest.raises(SoritesError, match="seed is 4 there and 5 now"):
        CliRunner().invoke(app, [*command, "--seed", "5"], catch_exceptions=False)


def test_recipes_are_listed() -> None:
    result = CliRunner().invoke(app, ["list", "recipes"])
    assert "cifar_optics" in result.stdout
    assert "optics_augment" in result.stdout


def test_set_wants_a_key_and_a_value(tmp_path: Path) -> None:
    with pytest.raises(SoritesError) as raised:
        CliRunner().invoke(
            app,
            ["train", "run", "cifar_optics", "--set", "lr", "--out", str(tmp_path)],
            catch_exceptions=False,
        )
    assert in_shell(raised.value.message).startswith("--set expects KEY=VALUE")


def test_a_wrong_key_is_answered_with_near_ones(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="Did you mean lr"):
        CliRunner().invoke(
            app,
            ["train", "run", "cifar_optics", "--set", "optimiser.lrr=1", "--out", str(tmp_path)],
            catch_exceptions=False,
        )
