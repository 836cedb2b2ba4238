from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Command

import sorites


def test_a_run_ends_with_what_to_type_next(command: Command) -> None:
    code, out, err = command("run", "s.toml", "--out", "r")
    assert code == 0, err
    assert "python:means:logits" in out
    assert "wrote 18 rows to r/predictions" in out
    assert "next: sorites report r" in out


def test_a_run_with_nothing_left_to_do_says_so(command: Command) -> None:
    assert "wrote 18 rows to r/predictions" in command("run", "s.toml", "--out", "r")[1]
    out = command("run", "s.toml", "--out", "r")[1]
    assert "nothing to do; 18 rows in r/predictions" in out
    assert "wrote" not in out


@pytest.mark.slow
def test_a_fit_on_the_images_under_test_is_noted(command: Command, photos: Path) -> None:
    note = "note: 3 of 20 training images are also in the test set; their OOD scores are biased low"
    for scorer, noted in (("knn(k=2)", True), ("energy", False)):
        code, _, err = command(
            "run",
            "s.toml",
            "--model",
            "lite0",
            "--scorer",
            scorer,
            "--fit",
            f"folder:{photos}",
            "--level",
            "1",
        )
        assert code == 0, err
        assert (note in err.splitlines()) is noted


def test_overrides_reach_the_run(command: Command, photos: Path, home: Path) -> None:
    words = [
        "--shift",
        "contrast",
        "--severity",
        "0.5",
        "--limit",
        "2",
        "--seed",
        "4",
        "--batch",
        "1",
        "--refine",
        "0.25",
    ]
    code, _, err = command(
        "run", "s.toml", *words, "--scorer", "msp", "--keep-features", "--out", "r", "--workers", "1"
    )
    assert code == 0, err
    assert "features will take 0.0 MB" in err
    held = sorites.read("r").collect()
    assert set(held["shift"]) == {"clean", "contrast"}
    assert set(held["severity"]) >= {0.0, 0.5}
    assert (held["sample_id"].n_unique(), held["seed"].unique().to_list()) == (2, [4])
    assert set(held["scorer"].drop_nulls()) == {"msp"}
    assert list((home / "r" / "features").iterdir())


@pytest.mark.slow
def test_the_same_command_finds_its_own_folder(command: Command, home: Path) -> None:
    for _ in range(2):
        assert command("run", "s.toml")[0] == 0
    assert command("run", "s.toml", "--seed", "1")[0] == 0
    assert len(list((home / "runs").iterdir())) == 2


@pytest.mark.slow
def test_a_suites_limit_goes_with_its_own_source(command: Command, photos: Path) -> None:
    _, _, err = command("run", "s.toml", "--out", "own")
    assert "used 3 of 20 samples of folder" in err
    assert sorites.read("own").collect()["sample_id"].n_unique() == 3
    _, _, err = command("run", "s.toml", "--source", f"folder:{photos}/", "--out", "other")
    assert "were taken" not in err
    assert sorites.read("other").collect()["sample_id"].n_unique() == 20
    _, _, err = command("run", "s.toml", "--source", f"folder:{photos}/", "--limit", "4", "--out", "both")
    assert "used 4 of 20 samples of folder" in err
    assert sorites.read("both").collect()["sample_id"].n_unique() == 4
