"""A document is verified by recomputing it: changed files, changed numbers and missing folders are told apart."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.reports.passport.conftest import BATTERY, MODEL, SUITE
from typer.testing import CliRunner

import sorites
from sorites.analysis.comparison.compare import compare
from sorites.analysis.comparison.document import hashed
from sorites.analysis.comparison.gate import Gate, judge
from sorites.analysis.passport.document import read_passport, sealed, write_json
from sorites.cli import app
from sorites.core import Model
from sorites.core.errors import InvalidOption, MissingFile, SoritesError
from sorites.io.digests import digest_in, stem_of, write_shard
from sorites.reports.comparison import write_page
from sorites.reports.page import DATA
from sorites.reports.passport.passport import passport
from sorites.reports.verify import _read_page
from sorites.suites.suite import parse

LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]
GATE = Gate(fail_if=("drop > 2", "half_accuracy_severity < 0.9 * base"))


@pytest.fixture(scope="module")
def compared(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs and the page of their comparison, made with a gate."""
    root = tmp_path_factory.mktemp("compared")
    suite = parse({"name": "s", "labels": LABELS, "shifts": ["contrast", "jpeg"]}, "test")
    good = tiny("good")
    bad = replace(
        good, name="bad", version="2", forward=lambda images: good.forward([p[..., ::-1] for p in images])
    )
    for model in (good, bad):
        sorites.run(suite, source=f"folder:{photos}", models=[model], out=root / model.name)
    comparison = compare(root / "good", root / "bad", rate=GATE.error_rate)
    write_page(comparison, judge(comparison, GATE), root / "page.html", GATE)
    return root


@pytest.fixture
def copied(compared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compared, tmp_path / "moved"))


def altered(folder: Path) -> str:
    """Make one wrong answer of a run right, in a file that is valid in itself, and return its name."""
    for path in sorted((folder / "predictions").iterdir()):
        rows = pl.read_parquet(path)
        wrong = rows.with_row_index().filter(~pl.col("correct"))["index"]
        if len(wrong):
            changed = rows.with_columns(correct=pl.col("correct") | (pl.int_range(pl.len()) == wrong[0]))
            replace_shard(path, changed)
            return stem_of(path.name) or path.name
    raise AssertionError("every answer is right")


def replace_shard(path: Path, rows: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd")
    stem = stem_of(path.name)
    if stem is None or digest_in(path.name) is None:
        path.write_bytes(buffer.getvalue())
        return
    path.unlink()
    write_shard(path.parent, stem, ".parquet", buffer.getvalue())


@pytest.mark.slow
def test_a_comparison_follows_from_its_runs_wherever_both_are(compared: Path, copied: Path) -> None:
    for root in (compared, copied):
        result = sorites.verify(root / "page.html")
        assert result
        assert (result.runs, result.differences) == (2, ())
        assert result.numbers > 50
        assert str(result).count("\n") == 0
    shutil.move(copied / "page.html", copied.parent / "page.html")
    with pytest.raises(MissingFile, match="folders"):
        sorites.verify(copied.parent / "page.html")
    assert sorites.verify(copied.parent / "page.html", [copied / "good", copied / "bad"])
    with pytest.raises(InvalidOption):
        sorites.verify(copied.parent / "page.html", [copied / "good"])


def test_changed_predictions_are_named_with_the_numbers_they_change(copied: Path) -> None:
    name = altered(copied / "bad")
    result = sorites.verify(copied / "page.html")
    assert not result
    assert any(name in text and "has changed" in text for text in result.differences)
    assert any(text.startswith("dials[") and ".new is" in text for text in result.differences)


def test_a_number_that_was_edited_is_named_even_if_the_hash_was_too(copied: Path) -> None:
    page, path = (copied / "page.html").read_text(), copied / "page.html"
    document = _read_page(path)
    first = document.dials[0]
    path.write_text(page.replace(f'"new": {first["new"]}', '"new": 0.999', 1))
    edited = sorites.verify(path)
    assert not edited
    assert "its hash differs" in str(edited)
    forged = hashed(document.model_copy(update={"dials": ({**first, "new": 0.999}, *document.dials[1:])}))
    start = page.index(f'id="{DATA}">') + len(f'id="{DATA}">')
    end = page.index("</script>", start)
    path.write_text(page[:start] + forged.model_dump_json(by_alias=True) + page[end:])
    result = sorites.verify(path)
    assert [text.partition(" is ")[0] for text in result.differences] == ["dials[clean].new"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        sorites.verify(tmp_path / "none.html")
    (tmp_path / "page.html").write_text("<p>hello</p>")
    with pytest.raises(SoritesError, match="no document"):
        sorites.verify(tmp_path / "page.html")


def test_the_command_exits_with_0_1_or_2(copied: Path) -> None:
    typed = ["verify", str(copied / "page.html")]
    followed = CliRunner().invoke(app, typed, catch_exceptions=False)
    assert (followed.exit_code, followed.stdout.count("\n")) == (0, 1)
    assert "follows from its folders" in followed.stdout
    altered(copied / "good")
    differs = CliRunner().invoke(app, typed, catch_exceptions=False)
    assert differs.exit_code == 1
    assert "does not follow" in differs.stdout
    shutil.rmtree(copied / "good")
    with pytest.raises(MissingFile):  # which the command line turns into exit code 2
        CliRunner().invoke(app, typed, catch_exceptions=False)


@pytest.fixture
def home(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "noisy.toml").write_text(SUITE.format(photos=photos, shifts='"jpeg"'))
    (tmp_path / "light.toml").write_text(SUITE.format(photos=photos, shifts='"contrast"'))
    (tmp_path / "mine.toml").write_text(BATTERY)
    (tmp_path / "guessing.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    passport("python:guessing:logits", battery="mine.toml", out="p", limit=6)
    return tmp_path


@pytest.mark.slow
def test_a_passport_follows_from_its_runs(home: Path) -> None:
    result = sorites.verify(home / "p")
    assert result
    assert result.runs == 2
    shutil.copytree(home / "p", home / "elsewhere")
    shutil.rmtree(home / "elsewhere/runs")
    with pytest.raises(MissingFile):
        sorites.verify(home / "elsewhere/passport.json")
    assert sorites.verify(home / "elsewhere/passport.json", ["p"])
    name = altered(home / "p/runs/noise")
    changed = sorites.verify(home / "elsewhere/passport.json", ["p"])
    assert any(name in text for text in changed.differences)
    assert any("recomputed" in text for text in changed.differences)


@pytest.mark.slow
def test_a_passport_that_was_edited_does_not_follow(home: Path) -> None:
    found = read_passport(home / "p")
    better = found.model_copy(update={"clean": found.clean.model_copy(update={"value": 0.99})})
    write_json(sealed(better), home / "p")
    result = sorites.verify(home / "p")
    assert [text.partition(" is ")[0] for text in result.differences] == ["clean.value"]
    (home / "p/passport.json").write_text("{}")
    assert "passport.json" in str(sorites.verify(home / "p"))
    assert not sorites.verify(home / "p")


def test_a_page_that_shows_something_else_than_its_document_does_not_follow(copied: Path) -> None:
    page = copied / "page.html"
    assert sorites.verify(page)
    whole = page.read_bytes()
    heading = whole.index(b"<h1>") + len(b"<h1>")
    page.write_bytes(whole[:heading] + b"much better than " + whole[heading:])
    verified = sorites.verify(page)
    assert not verified
    assert "the page was changed" in str(verified)
