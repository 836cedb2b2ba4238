"""The verbs of generated shifts: what they say when something is wrong, and the whole path on the
toy world.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from sorites import metrics
from sorites.cli import app
from sorites.core import table
from sorites.core.errors import SoritesError

runner = CliRunner()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["sliders", "--pipeline", "/nowhere", "--out", "OUT"],
            "/nowhere does not exist or is not a folder",
        ),
        (["sliders", "--class", "dics", "--out", "OUT"], "no class named 'dics'. Did you mean disc"),
        (["sliders", "--eta", "0", "--out", "OUT"], "eta must be a number above 0"),
        (["sliders", "--recipe", "toi", "--out", "OUT"], "no slider recipe named 'toi'. Did you mean toy"),
        (
            ["sliders", "--layers", "cross", "--out", "OUT"],
            "joint, got 'cross'",
        ),
        (["sliders", "--active", "750", "--out", "OUT"], "--active must be a percentage"),
        (
            ["sliders", "--dtype", "int8", "--out", "OUT"],
            "float32, bfloat16, float16",
        ),
        (["images", "--sliders", "OUT", "--out", "OUT"], "no finished slider"),
        (["images", "--seeds", "9..3", "--out", "OUT"], "--seeds expects a number"),
        (["images", "--severity", "0,much", "--out", "OUT"], "--severity: expected numbers"),
        (["images", "--slider", "snow", "--out", "OUT"], "--slider expects NAME=SEVERITY"),
        (["images", "--shift", "fog", "--out", "OUT"], "no slider named 'fog'"),
        (["images", "--workers", "2", "--out", "OUT"], "--workers requires --engine"),
        (["images", "--engine", "rai", "--out", "OUT"], "no engine named 'rai'. Did you mean ray"),
        (
            ["images", "--slider", "snow=1", "--slider", "night=1", "--severity", "1", "--out", "OUT"],
            "--severity",
        ),
        (["images", "--format", "gif", "--pipeline", "/nowhere", "--out", "OUT"], "jpg or png"),
        (["images", "--class", "n01440764", "--out", "OUT"], "no class with a slider named 'n01440764'"),
        (["sliders", "--side", "-16", "--out", "OUT"], "side must be pixels from 8"),
        (["words", "--source", "toy:plain", "--pipeline", "/nowhere", "--out", "OUT"], "toy"),
        (["check", "OUT"], "has no manifest.parquet"),
        (["sliders", "--shift", "fog", "--class", "disc", "--out", "OUT/x"], "vocabulary named 'fog'"),
        (["images", "--scheduler", "dpm", "--out", "OUT"], "scheduler: expected ddim"),
        (["images", "--seeding", "none", "--out", "OUT"], "seeding: expected prompt"),
        (["words", "--class", "dics", "--source", "folder:OUT", "--out", "OUT"], "Did you mean disc"),
        (
            ["words", "--pipeline", "/nowhere", "--source", "folder:/missing", "--out", "OUT"],
            "/missing",
        ),
    ],
)
def test_what_cannot_be_is_said(words: list[str], said: str, tmp_path: Path) -> None:
    done = runner.invoke(app, ["generate", *(word.replace("OUT", str(tmp_path)) for word in words)])
    assert not list(tmp_path.iterdir()), "nothing is claimed"
    assert isinstance(done.exception, SoritesError), done.output
    assert said in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["images", "--batch", "0"], "--batch expects a number from 1"),
        (["images", "--engine", "rai"], "Did you mean ray"),
        (["images", "--safety", "mine"], "safety must be own"),
        (["images", "--safety", "python:nowhere_at_all:f"], "no Python module named"),
        (["images", "--control", "IN"], "it has no config.json"),
        (["images", "--words", "IN/none"], "is not a folder"),
        (["sliders", "--class", "disc", "--words", "IN/none"], "is not a folder"),
        (["styles", "--format", "gif"], "jpg or png"),
        (["styles", "--safety", "own"], "no folders safety_checker"),
        pytest.param(["styles", "--decomposition", "IN/none"], "cannot read", marks=pytest.mark.slow),
        pytest.param(["styles", "--k", "2"], "exceeds the 1 in-distribution", marks=pytest.mark.slow),
        pytest.param(["styles", "--encoder", "toi"], "Did you mean toy", marks=pytest.mark.slow),
    ],
)
def test_mistakes_are_found_before_a_pipeline_is_loaded(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("a pipeline was loaded")

    monkeypatch.setattr("sorites.diffusion.pipeline.load", loaded)
    monkeypatch.setattr("sorites.apps.generation.spread.open_pipe", loaded)
    given, out = tmp_path / "in", tmp_path / "out"
    given.mkdir()
    (given / "labels.txt").write_text("disc\n")
    Image.new("RGB", (16, 16)).save(given / "one.png")
    if words[0] == "styles":
        words = [*words, "--labels", "IN/labels.txt", "--against", "folder:IN"]
    typed = [word.replace("IN", str(given)) for word in words]
    done = runner.invoke(app, ["generate", *typed, "--out", str(out)])
    assert isinstance(done.exception, SoritesError), done.output
    assert said in str(done.exception)
    assert not out.exists(), "nothing is claimed"


@pytest.mark.slow
def test_the_whole_path_on_the_toy_world(tmp_path: Path) -> None:
    sliders, images = str(tmp_path / "sliders"), str(tmp_path / "images")
    done = runner.invoke(
        app, ["generate", "sliders", "--class", "disc", "--shift", "snow", "--steps", "2", "--out", sliders]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "sliders" / "snow" / "000_disc" / "strip.png").is_file()
    assert "next: sorites generate images" in done.output
    for kept in (sliders, "toy"):
        out = images + kept[-3:]
        words = [
            "--sliders",
            kept,
            "--seeds",
            "2",
            "--severity",
            "0,1,2",
            "--class",
            "disc",
            "--shift",
            "snow",
            "--out",
            out,
        ]
        done = runner.invoke(app, ["generate", "images", *words])
        assert done.exit_code == 0, done.output
    assert len(pl.read_parquet(f"{images}toy/manifest.parquet")) == 6
    done = runner.invoke(
        app, ["generate", "check", f"{images}toy", "--format", "csv", "--real", f"{images}ers"]
    )
    assert done.exit_code == 0, done.output
    assert "rises" in done.output
    assert (tmp_path / "imagestoy" / "nearest.parquet").is_file()
    done = runner.invoke(
        app,
        [
            "generate",
            "images",
            "--slider",
            "snow=1",
            "--slider",
            "night=1",
            "--class",
            "disc",
            "--seeds",
            "1",
            "--out",
            images,
        ],
    )
    assert done.exit_code == 0, done.output
    assert "wrote 9 images" in done.output
    words = ["--source", f"cns_bench:{images}", "--labels", f"{images}/labels.txt", "--model", "toy:plain"]
    done = runner.invoke(app, ["run", "cns_bench", *words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    surface = metrics.grid_accuracy(table.read(tmp_path / "run"))
    assert surface.select("shift", "first", "second", "n").rows() == [
        ("snow x night", first, second, 1) for first in (0.0, 0.5, 1.0) for second in (0.0, 0.5, 1.0)
    ]
