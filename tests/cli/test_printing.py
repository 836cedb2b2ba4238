from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.cli.printing import ask, headline, listed, options, printed, said
from sorites.core import MEASURES, METRICS, MODELS, SCORERS, SHIFTS, SOURCES, Model, Sample, Setting, Source
from sorites.errors import SoritesError
from sorites.suite import builtin_suites, parse

FRAME = pl.DataFrame({"model": ["a,b", None], "value": [1 / 3, None], "n": [3, 0], "accept": [[1, 2], None]})


@pytest.fixture(scope="module")
def run(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("summary") / "run"
    suite = parse({"name": "s", "shifts": ["contrast", "brightness"], "reference": "one", "frame": {"resize": 40}}, "test")
    sorites.run(suite, source=f"folder:{photos}", models=[tiny("one"), tiny("two")], out=out, limit=8, refine=0.02)
    return out


def test_csv_and_json_are_whole_and_exact() -> None:
    rows = list(csv.DictReader(io.StringIO(printed(FRAME, "csv"))))
    assert float(rows[0]["value"]) == 1 / 3
    assert rows[0]["model"] == "a,b"
    assert (rows[1]["model"], rows[1]["value"]) == ("", "")
    assert json.loads(rows[0]["accept"]) == [1, 2]
    parsed = json.loads(printed(FRAME, "json"))
    assert parsed == [
        {"model": "a,b", "value": 1 / 3, "n": 3, "accept": [1, 2]},
        {"model": None, "value": None, "n": 0, "accept": None},
    ]


def test_the_table_is_for_the_eye() -> None:
    text = printed(FRAME, "table")
    assert "0.3333" in text
    assert "–" in text
    assert all(line == line.rstrip() for line in text.splitlines())
    long = "python:a_module_with_a_long_name:and_a_function_with_a_longer_one_that_goes_on_and_on_and_on"
    assert long in printed(pl.DataFrame({"model": [long], "other": ["x" * 80]}), "table")
    assert "[red]" in printed(pl.DataFrame({"model": ["[red]"]}), "table")


def test_other_formats_are_refused() -> None:
    with pytest.raises(SoritesError, match="--format wants table, csv or json, got 'yaml'"):
        printed(FRAME, "yaml")


def test_a_question_takes_the_suites_reference(run: Path) -> None:
    asked = ask(run, "corruption_error")
    assert asked.filter(pl.col("model") == "one")["value"].drop_nulls().to_list() == pytest.approx([1, 1])
    assert ask(run, "corruption_error", ["model"], "two").equals(sorites.corruption_error(sorites.read(run), ["model"], "two"))
    with pytest.raises(SoritesError, match="accuracy takes no reference model"):
        ask(run, "accuracy", None, "one")


def test_a_metrics_own_options_are_typed_as_text(run: Path) -> None:
    typed = ask(run, "calibration_error", ["model"], None, options(["bins=5"]))
    assert typed.equals(sorites.calibration_error(sorites.read(run), ["model"], 5))
    assert ask(run, "failure_point", ["model"], None, {"relative": "true"}).height == 2
    assert ask(run, "auroc", None, None, {"framework": "model-specific"}).height == 0
    with pytest.raises(SoritesError, match="no option of calibration_error named 'bin'. Did you mean bins"):
        ask(run, "calibration_error", None, None, {"bin": "5"})
    with pytest.raises(SoritesError, match="bins of calibration_error wants a whole number, got 'five'"):
        ask(run, "calibration_error", None, None, {"bins": "five"})
    with pytest.raises(SoritesError, match="--option wants NAME=VALUE, got 'bins'"):
        options(["bins"])


def test_a_question_without_any_reference_says_what_to_add(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    suite = parse({"name": "s", "shifts": ["jpeg"]}, "test")
    sorites.run(suite, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=2)
    with pytest.raises(SoritesError, match="relative to a reference model: add --reference MODEL"):
        ask(tmp_path / "run", "corruption_error")


def test_the_headline_is_the_metrics(run: Path) -> None:
    table = sorites.read(run)
    first = headline(run).row(0, named=True)
    assert (first["model"], first["n"]) == ("one", 8)
    mean = sorites.mean_accuracy(table).filter(pl.col("model") == "one").row(0, named=True)
    assert first["shifted"].startswith(f"{100 * mean['value']:.1f}")
    assert first["clean"].startswith("100.0  [")


def test_a_run_without_clean_or_without_shifts_still_has_a_headline(tiny: Callable[..., Model], tmp_path: Path) -> None:
    def picture() -> np.ndarray:
        return np.full((30, 30, 3), 90, np.uint8)

    captured = Source("mine", [Sample("a", picture, 0, shift="mist", setting=Setting(1.0, level=1))])
    clean = Source("mine", [Sample("a", picture, 0)])
    suite = parse({"name": "s"}, "test")
    for name, source in (("captured", captured), ("clean", clean)):
        sorites.run(suite, source=source, models=[tiny()], out=tmp_path / name)
        assert headline(tmp_path / name)["model"].to_list() == ["tiny"]


def test_how_a_run_went(run: Path) -> None:
    lines: list[str] = []
    said(run, lines.append)
    table = sorites.read(run).collect()
    assert f"wrote {table.height} rows to {run / 'predictions'}, {table['probe'].sum()} of them probes" in lines
    assert lines[-1].startswith(f"next: sorites report {run}")


def test_errors_are_counted_and_the_first_is_told(tiny: Callable[..., Model], tmp_path: Path) -> None:
    def broken() -> np.ndarray:
        raise SoritesError("x.png: truncated")

    samples = [Sample("bad", broken, 0), Sample("good", lambda: np.full((9, 9, 3), 5, np.uint8), 0)]
    sorites.run(parse({"name": "s"}, "test"), source=Source("mine", samples), models=[tiny()], out=tmp_path / "run")
    lines: list[str] = []
    said(tmp_path / "run", lines.append)
    assert any(line.startswith("1 rows are errors") and "the first, bad: x.png: truncated" in line for line in lines)


def test_lists_hold_every_name_with_a_line() -> None:
    for kind, names in {
        "shifts": SHIFTS.names(), "models": MODELS.names(), "sources": SOURCES.names(),
        "metrics": METRICS.names(), "scorers": SCORERS.names(), "measures": MEASURES.names(), "suites": builtin_suites(),
    }.items():  # fmt: skip
        lines = listed(kind).splitlines()
        assert [line.split()[0] for line in lines] == names
        assert all(len(line.split()) > 1 for line in lines), "each says what it is"
    for kind in ("models", "sources", "metrics", "scorers", "referees"):
        assert [line for line in listed(kind).splitlines() if not line.endswith(".")] == []
    directions = {line.split()[0]: line.split("[")[1].rstrip("]") for line in listed("measures").splitlines()}
    assert directions["lpips"] == "LPIPS; lower is nearer"
    assert directions["psnr"] == "dB; higher is nearer"
    with pytest.raises(SoritesError, match="no kind named 'modles'. Did you mean models"):
        listed("modles")
