"""The verbs about people's answers, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from tests.apps.annotation.conftest import labelling
from tests.apps.annotation.test_clicks import KNOWN, Worker
from typer.testing import CliRunner

from sorites.apps.annotation.store import open_labelling
from sorites.cli import app
from sorites.core.errors import SoritesError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A labelling of forty images that two people answered; they differ on every third."""
    path = labelling(tmp_path / "l.sqlite", n=40, known=KNOWN, people=3)
    with open_labelling(path, write=True) as database:
        Worker(database, 1).work()
        other = Worker(database, 2)
        while items := other.items():
            for item in items:
                role = database.execute(
                    "SELECT role FROM assignments WHERE id = ?", (item["id"],)
                ).fetchone()[0]
                other.send(item["id"], "partly" if role == "work" and item["id"] % 3 == 0 else "class")
    return path


def typed(*words: str | Path) -> str:
    found = CliRunner().invoke(app, ["annotate", *map(str, words)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_status_counts_and_admits(file: Path) -> None:
    said = typed("status", file, "--refuse", "annotator 3", "--pay")
    assert "images 26, known 14, begun 26, done 26" in said
    assert "refused" in said
    assert "has no pay" in said
    assert "working" in typed("status", file, "--admit", "annotator 3").splitlines()[-2]
    with pytest.raises(SoritesError, match="no annotator 'nobody'"):
        typed("status", file, "--admit", "nobody")


def test_agreement_has_intervals_and_people_against_known_ones(file: Path) -> None:
    said = typed("agreement", file)
    assert all(word in said for word in ("alpha_low", "kappa_high", "on known images", "annotator 2"))
    row = json.loads(typed("agreement", file, "--format", "json"))[0]
    assert row["n"] == 26
    assert 0 < row["same"] < 1


def test_an_export_is_imported_again(file: Path, tmp_path: Path) -> None:
    typed("export", file, "--as", "csv", "--all", "--out", tmp_path / "a.csv")
    assert pl.read_csv(tmp_path / "a.csv").height == 52
    typed(
        "import",
        tmp_path / "a.csv",
        "--as",
        "csv",
        "--task",
        "in_class",
        "--out",
        tmp_path / "again.sqlite",
    )
    assert "begun 26" in typed("status", tmp_path / "again.sqlite")
    assert typed("agreement", tmp_path / "again.sqlite", "--format", "csv") == typed(
        "agreement", file, "--format", "csv"
    )


def test_mistakes_are_named(file: Path, tmp_path: Path) -> None:
    for words, said in (
        (("export", file, "--as", "xml", "--out", tmp_path / "x"), "no format named 'xml'"),
        (("import", file, "--as", "csv", "--out", tmp_path / "new.sqlite"), "task=TASK"),
        (("import", tmp_path / "none", "--as", "csv", "--out", tmp_path / "new.sqlite"), "not found"),
        (("serve", "in_class", "--out", tmp_path / "x.sqlite"), "expected --source SPEC"),
        (("serve", "in_clas", "--source", "stamps", "--out", tmp_path / "x.sqlite"), "Did you mean in_class"),
    ):
        with pytest.raises(SoritesError, match=said):
            typed(*words)
    assert not (tmp_path / "new.sqlite").exists()
    assert not (tmp_path / "x.sqlite").exists()
