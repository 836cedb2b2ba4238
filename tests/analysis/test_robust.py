"""``assert_robust``: the statistics of the gate, and the plug-in of pytest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from scipy import stats

import sorites
from sorites.analysis.robust import judged
from sorites.apps import pytest_plugin
from sorites.core import Model
from sorites.core.errors import InvalidOption
from sorites.suites.suite import Suite

LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]


@pytest.mark.slow
def test_the_verdict_is_that_of_the_rows_of_a_run(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    source, severity = f"folder:{photos}", 1.0
    suite = Suite(name="s", source=source, shifts=("gaussian_noise",), models=(), labels=tuple(LABELS))
    shifts = ["gaussian_noise"]
    run = sorites.run(suite, models=[tiny()], shifts=shifts, severities=[severity], out=tmp_path / "run")
    rows = run.collect()
    hits = rows.filter((rows["shift"] == "gaussian_noise") & (rows["output"] == "label"))["correct"].sum()
    given = {"shift": "gaussian_noise", "at": severity, "source": source, "labels": LABELS}
    met = sorites.assert_robust(tiny(), accuracy_at_least=0.5, **given)
    assert (met.value, met.n) == (hits / 20, 20)
    with pytest.raises(AssertionError, match="broken: gaussian_noise at 1:"):
        sorites.assert_robust(tiny(), accuracy_at_least=0.9, **given)
    with pytest.raises(AssertionError, match="not judged"):
        sorites.assert_robust(tiny(), accuracy_at_least=0.5, limit=2, **given)
    with pytest.raises(InvalidOption):
        sorites.assert_robust(tiny(), accuracy_at_least=70, **given)


def test_p_and_bound_are_those_of_the_exact_test() -> None:
    for hits, n, limit in ((4, 16, 0.45), (30, 40, 0.9), (0, 9, 0.5), (9, 9, 0.5)):
        found = judged([True] * hits + [False] * (n - hits), "fog", limit, 0.05, "bound")
        exact = stats.binomtest(hits, n, limit, alternative="less")
        assert found.p == pytest.approx(exact.pvalue)
        assert found.bound == pytest.approx(exact.proportion_ci(0.95, "exact").high)
        assert found.broken == (exact.pvalue <= 0.05) == (found.bound < limit)


def test_a_model_at_the_limit_seldom_fails_and_a_bad_one_does() -> None:
    for n, limit in ((12, 0.7), (16, 0.45), (40, 0.5), (40, 0.9), (40, 0.1)):
        hits = range(n + 1)
        broken = [judged([True] * k + [False] * (n - k), "fog", limit, 0.05, "bound").broken for k in hits]
        rate = sum(stats.binom.pmf(k, n, limit) for k in hits if broken[k])
        assert rate <= 0.05
        assert broken[0] == ((1 - limit) ** n <= 0.05)
    assert judged([True] * 7 + [False] * 9, "fog", 0.45, 0.05, "estimate").broken
    assert not judged([False] * 3, "fog", 0.0, 0.05, "bound").broken
    assert judged([True] * 9 + [False], "fog", 1.0, 0.05, "bound").broken


TEST = """
def test_survives(assert_robust):
    assert_robust("python:always:first", shift="contrast", at=0.1, accuracy_at_least={least})
"""
MODEL = """
import numpy as np
def first(images):
    return np.tile(np.float32([9, 0, 0, 0]), (len(images), 1))
"""


@dataclass
class Project:
    """The settings of a project as pytest has them."""

    home: Path
    settings: dict[str, str]

    @property
    def rootpath(self) -> Path:
        return self.home

    @property
    def inipath(self) -> Path:
        return self.home / "pytest.ini"

    def getini(self, name: str) -> str | None:
        return self.settings.get(name)


def test_settings_are_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "names.txt").touch()
    settings = {
        "sorites_source": "folder:images?a=b",
        "sorites_labels": "names.txt",
        "sorites_limit": "16",
    }
    found = pytest_plugin.defaults(Project(tmp_path, settings))  # type: ignore[arg-type]
    names = str(tmp_path / "names.txt")
    assert found == {"source": f"folder:{tmp_path / 'images'}?a=b", "labels": names, "limit": 16}
    others = {"sorites_source": "stamps", "sorites_labels": "imagenet-r"}
    found = pytest_plugin.defaults(Project(tmp_path, others))  # type: ignore[arg-type]
    assert found == {"source": "stamps", "labels": "imagenet-r"}
    with pytest.raises(pytest.UsageError, match="whole number"):
        pytest_plugin.defaults(Project(tmp_path, {"sorites_limit": "some"}))  # type: ignore[arg-type]


class Reports:
    """Keeps what the tests of another session reported."""

    def __init__(self) -> None:
        self.kept: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.kept[report.nodeid.partition("::")[0]] = report


@pytest.mark.slow
def test_the_plug_in_judges_in_a_project_of_its_own(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that always answers the first of four classes has an accuracy of one quarter."""
    (tmp_path / "always.py").write_text(MODEL)
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nsorites_source = folder:{photos}\nsorites_labels = labels.txt\nsorites_limit = 16\n"
    )
    for name, least in (("met", 0.45), ("broken", 0.9)):
        (tmp_path / f"test_{name}.py").write_text(TEST.format(least=least))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    reports = Reports()
    words = ["-q", "-p", "sorites.apps.pytest_plugin", "-p", "no:cacheprovider", str(tmp_path)]
    assert pytest.main(words, plugins=[reports]) == 1
    assert reports.kept["test_met.py"].passed
    said = str(reports.kept["test_broken.py"].longrepr)
    assert "broken: contrast at 0.1" in said
    assert "n = 16" in said


def test_a_rate_or_judge_that_is_none_is_refused() -> None:
    given = {"shift": "fog", "at": 1, "accuracy_at_least": 0.5}
    for rate in (0.0, 0.5, 5.0):
        with pytest.raises(InvalidOption, match="a rate above 0"):
            sorites.assert_robust("lite0", error_rate=rate, **given)
    with pytest.raises(InvalidOption, match="bound or estimate"):
        sorites.assert_robust("lite0", judge="estimates", **given)
