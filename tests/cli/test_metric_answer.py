from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sorites
from sorites.analysis.answers import answer_metric, parse_options
from sorites.core import Model
from sorites.core.errors import InvalidOption, SoritesError
from sorites.core.messages import in_python, in_shell, parameter
from sorites.suites.suite import parse


def test_a_question_takes_the_suites_reference(run: Path) -> None:
    asked = answer_metric(run, "corruption_error")
    assert asked.filter(pl.col("model") == "one")["value"].drop_nulls().to_list() == pytest.approx([1, 1])
    assert answer_metric(run, "corruption_error", ["model"], "two").equals(
        sorites.corruption_error(sorites.read(run), ["model"], "two")
    )
    with pytest.raises(InvalidOption) as refused:
        answer_metric(run, "accuracy", None, "one")
    assert refused.value.fields == {"name": "reference"}


def test_a_metrics_own_options_are_typed_as_text(run: Path) -> None:
    typed = answer_metric(run, "calibration_error", ["model"], None, parse_options(["bins=5"]))
    assert typed.equals(sorites.calibration_error(sorites.read(run), ["model"], 5))
    assert answer_metric(run, "failure_severity", ["model"], None, {"relative": "true"}).height == 2
    assert answer_metric(run, "auroc", None, None, {"framework": "model-specific"}).height == 0
    with pytest.raises(SoritesError, match="Did you mean bins"):
        answer_metric(run, "calibration_error", None, None, {"bin": "5"})
    with pytest.raises(SoritesError, match="must be an integer, got 'five'"):
        answer_metric(run, "calibration_error", None, None, {"bins": "five"})
    with pytest.raises(SoritesError, match="option expects NAME=VALUE"):
        parse_options(["bins"])


def test_a_question_without_any_reference_says_what_to_add(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    suite = parse({"name": "s", "shifts": ["jpeg"]}, "test")
    sorites.run(suite, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=2)
    with pytest.raises(SoritesError, match="needs a reference model"):
        answer_metric(tmp_path / "run", "corruption_error")


@pytest.mark.parametrize(
    ("name", "value", "typed", "python"),
    [
        ("by", None, "--by", "by"),
        ("relative", True, "--option relative=true", "relative=True"),
        ("bins", None, "--option bins", "bins"),
        ("facts", "FILE", "--option facts=FILE", "facts=FILE"),
        ("reference", "NAME", "--reference NAME", "reference=NAME"),
    ],
)
def test_parameters_of_a_metric_suit_the_interface(name: str, value: object, typed: str, python: str) -> None:
    assert in_shell(parameter(name, value)) == typed
    assert in_python(parameter(name, value)) == python


def test_python_says_them_as_python_types_them(run: Path) -> None:
    with pytest.raises(SoritesError, match="or set relative=True"):
        sorites.metrics.failure_severity(sorites.read(run), by=("model",))
    with pytest.raises(SoritesError) as raised:
        answer_metric(run, "failure_severity", by=["model"])
    assert "or set --option relative=true" in in_shell(raised.value.message)
