"""The photographs for machines without apt-get: their table, when they are chosen, and, slowly, that they arrive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sorites.analysis.passport.battery import Request, load_battery, recipe_of
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, imagenet
from sorites.evaluation.options import RunOptions
from sorites.evaluation.run import recipe
from sorites.sources import stamps
from sorites.sources.foolbox import foolbox, instead_note, table


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose PATH has no apt-get, and whose cache is empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))


def test_the_table_agrees_with_the_file_names() -> None:
    ids = imagenet().ids
    assert len(table()) == len({row.sha256 for row in table()}) == 17
    for row in table():
        assert row.accept[0] == row.label == ids[int(row.file.removesuffix(".jpg").rpartition("_")[2])]
        assert set(row.accept) <= set(ids)
        assert len(bytes.fromhex(row.sha256)) == 32


@pytest.mark.usefixtures("bare")
def test_built_in_suites_use_them_without_apt_get_and_say_so() -> None:
    assert recipe(RunOptions(suite="demo")).source == "foolbox"
    assert recipe(RunOptions(suite="demo", source="folder:x")).source == "folder:x"
    assert recipe(RunOptions(suite="demo", source="stamps")).source == "stamps"
    assert "17 photographs" in instead_note("demo")
    assert "not comparable" in instead_note("demo")
    short = Request("lite0", load_battery("short"), Path("p"))
    assert recipe_of(short.battery.parts[0], short).source == "foolbox"


@pytest.mark.usefixtures("bare")
def test_stamps_that_are_asked_for_without_apt_get_name_the_alternative() -> None:
    with pytest.raises(SoritesError, match="from PyPI: source='foolbox'"):
        stamps.stamps(None, imagenet())


def test_the_stamps_stay_the_default_where_apt_get_is(
    bare: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    assert recipe(RunOptions(suite="demo")).source == "stamps"


def test_other_arguments_and_label_spaces_are_reported() -> None:
    with pytest.raises(SoritesError, match='expected "foolbox"'):
        foolbox("all", imagenet())
    with pytest.raises(SoritesError, match="labelled by WordNet id"):
        foolbox(None, Labels(("cat", "dog"), ("cat", "dog")))


@pytest.mark.slow
def test_the_demo_runs_where_no_apt_get_is(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", "demo", "--model", "lite0", "--shift", "jpeg", "--level", "5", "--out", str(out)]
    code = "from sorites.cli import main; main()"
    env = {**os.environ, "PATH": str(tmp_path), "SORITES_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "not the usual photographs of demo: this machine has no apt-get" in done.stderr
    assert "wrote 34 rows" in done.stdout  # 17 photographs, clean and at one level
    assert json.loads((out / "run.json").read_text())["suite"]["source"] == "foolbox"
    files = sorted(path.name for path in (tmp_path / "cache" / "foolbox").iterdir())
    assert [name for name in files if name.endswith(".jpg")] == [row.file for row in table()]


@pytest.mark.slow
@pytest.mark.usefixtures("bare")
def test_without_a_network_the_error_names_the_folder_to_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The only place where pip may look is an empty folder."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(SoritesError) as caught:
        foolbox(None, imagenet())
    assert str(tmp_path / "cache" / "foolbox") in caught.value.message
    assert "folder:PATH" in caught.value.message
