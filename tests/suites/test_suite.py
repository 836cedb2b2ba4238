from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sorites import core
from sorites.core import ImageF32
from sorites.core.errors import BadImage, SoritesError
from sorites.suites.suite import Dial, Frame, Suite, builtin_suites, load, parse


def read(tmp_path: Path, text: str, name: str = "s.toml") -> Suite:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load(path)


WHOLE = """
about = "all keys"
source = "folder:photos"
labels = ["cat", "dog"]
models = ["lite0", "onnx:a.onnx"]
shifts = ["jpeg", {name = "contrast", levels = [1, 3]}, {name = "defocus_disk", severities = [2, 0.5]}]
scorers = ["msp"]
reference = "lite0"
refine = 0.02
limit = 10
seed = 7
[frame]
resize = 256
crop = 224
filter = "bilinear"
"""


def test_every_key_is_read(tmp_path: Path) -> None:
    suite = read(tmp_path, WHOLE)
    assert suite.name == "s"
    assert suite.labels == ("cat", "dog")
    assert suite.frame == Frame(resize=256, crop=224, filter="bilinear")
    assert [dial.name for dial in suite.shifts] == ["jpeg", "contrast", "defocus_disk"]
    assert [dial.setting_values() for dial in suite.shifts] == [(75, 82, 85, 90, 93), (0.6, 0.8), (0.5, 2.0)]
    assert (suite.reference, suite.refine, suite.limit, suite.seed) == ("lite0", 0.02, 10, 7)
    assert parse(suite.model_dump(), "again") == suite
    assert parse(suite.model_dump(mode="json"), "run.json") == suite


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('shfits = ["jpeg"]', "unknown key 'shfits': no key named 'shfits'. Did you mean shifts"),
        (
            "[frame]\nresize = 9\ncorp = 8",
            "unknown key 'frame.corp': no key named 'corp'. Did you mean crop?",
        ),
        (
            'shifts = [{name = "jpeg", level = [1]}]',
            "unknown key 'shifts.0.level': no key named 'level'. Did you mean levels",
        ),
        ("[frame]\nresize = 9\ncrop = 10", r"frame: crop \(10\) must not be larger than resize \(9\)"),
        ("[frame]\ncrop = 10", "frame.resize is missing"),
        ("[frame]\nresize = 0", "frame.resize: expected a number above 0, got 0"),
        ('[frame]\nresize = 9\nfilter = "box"', "frame.filter: .*bicubic.*got 'box'"),
        ("limit = 0", "limit: expected a number above 0, got 0"),
        ('limit = "ten"', "limit: expected a whole number, got 'ten'"),
        ("limit = true", "limit: expected a whole number, got True"),
        ('seed = "3"', "seed: expected a whole number, got '3'"),
        ("seed = 1e30", "seed: "),
        ("seed = 99999999999999999999", "seed: "),
        ("refine = 1.0", "refine: expected a number below 1, got 1.0"),
        ("refine = 0", "refine: expected a number above 0, got 0"),
        ("refine = nan", "refine: "),
        ('shifts = "jpeg"', "shifts: expected a list, got 'jpeg'"),
        ("shifts = [5]", r"shifts\.0: expected a table with keys name, levels, .*, got 5"),
        ("shifts = [{levels = [1]}]", r"shifts\.0\.name is missing"),
        ('models = ["a", "a"]', "model 'a' is listed twice"),
        ('shifts = ["jpeg", "jpeg"]', "shift 'jpeg' is listed twice"),
        ("labels = 5", r"labels: .*\(got 5\)"),
        ('name = "a/b"', "name: .*got 'a/b'"),
        ("limit = 3\nlimit = 4", "not valid TOML"),
        ("limit = ", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SoritesError, match=rf"s(\.toml)?: {said}") as caught:
        read(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 1


def test_each_mistake_has_a_line(tmp_path: Path) -> None:
    with pytest.raises(SoritesError) as caught:
        read(tmp_path, "limit = 0\nsede = 1\n[frame]\nresize = 9\ncorp = 8")
    assert len(str(caught.value).splitlines()) == 3


def test_files_that_are_not_suites(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(SoritesError, match=r"\.toml: Is a directory"):
        load(tmp_path / "d.toml")
    (tmp_path / "b.toml").write_bytes(b"about = '\xff'")
    with pytest.raises(SoritesError, match="it is not UTF-8"):
        load(tmp_path / "b.toml")
    with pytest.raises(SoritesError, match="'dmeo'.*demo.*toml"):
        load("dmeo")


def test_every_built_in_suite_is_sound() -> None:
    assert "demo" in builtin_suites()
    for name in builtin_suites():
        suite = load(name)
        assert suite.about
        assert all(dial.setting_values() for dial in suite.dials)
        assert suite.reference is None or not suite.models or suite.reference in suite.models


DIALS = {"decentre": 500.0, "tilt": 5000.0, "jpeg": 100.0, "coma": 5.5, "fog": 6.0, "exposure_stops": 17.0}
"""Severities that each of these refuses."""


@pytest.mark.parametrize("name", DIALS)
def test_a_severity_that_a_dial_refuses_is_refused_before_any_work(name: str) -> None:
    with pytest.raises(SoritesError, match=rf"^{name}: .*got {DIALS[name]:g}"):
        Dial(name=name, severities=(1.0, DIALS[name])).setting_values()


def test_a_severity_beyond_the_levels_that_a_dial_takes_is_kept() -> None:
    assert Dial(name="gaussian_blur", severities=(9.0, 0.5)).setting_values() == (0.5, 9.0)


def test_what_only_the_small_image_of_the_trial_breaks_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        raise BadImage("too small") if severity > 3 else ValueError("too small")

    monkeypatch.setattr(core.SHIFTS.get("jpeg"), "apply", apply)
    monkeypatch.setattr(core.SHIFTS.get("jpeg"), "levels", (1.0,))
    assert Dial(name="jpeg", severities=(2.0, 4.0)).setting_values() == (2.0, 4.0)


# ---- overrides


@pytest.fixture
def suite() -> Suite:
    return parse(
        {"name": "s", "shifts": ["jpeg", {"name": "contrast", "severities": [0.3]}], "models": ["a"]}, "test"
    )


def test_nothing_said_changes_nothing(suite: Suite) -> None:
    assert suite.override() == suite
    assert suite.override(models=(), limit=None, source=None, scorers=()) == suite


def test_named_shifts_keep_the_stops_that_the_suite_gives_them(suite: Suite) -> None:
    changed = suite.override(shifts=["contrast", "brightness"])
    assert [dial.setting_values() for dial in changed.shifts] == [(0.3,), (0.1, 0.2, 0.3, 0.4, 0.5)]


def test_levels_go_to_every_shift_and_severities_to_the_one(suite: Suite) -> None:
    assert [dial.setting_values() for dial in suite.override(levels=[5, 1]).shifts] == [(75, 93), (0.6, 0.95)]
    assert [
        dial.setting_values() for dial in suite.override(shifts=["jpeg"], severities=[40, 10, 40]).shifts
    ] == [(10, 40)]


def test_plain_keys_are_replaced_and_checked(suite: Suite) -> None:
    changed = suite.override(models=("b", "c"), limit=3, seed=0, source="folder:x", refine=0.1)
    assert (changed.models, changed.limit, changed.seed, changed.source, changed.refine) == (
        ("b", "c"),
        3,
        0,
        "folder:x",
        0.1,
    )
    with pytest.raises(SoritesError, match="a number above 0, got 0"):
        suite.override(limit=0)
    with pytest.raises(SoritesError, match="model 'b' is listed twice"):
        suite.override(models=("b", "b"))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"severities": [1]}, "needs exactly one"),
        ({"severities": [1], "shifts": ["jpeg", "contrast"]}, "needs exactly one"),
        ({"severities": [1], "shifts": ["jpeg"], "levels": [1]}, "not both"),
    ],
)
def test_severities_need_one_unit(suite: Suite, said: dict[str, Any], error: str) -> None:
    with pytest.raises(SoritesError, match=error):
        suite.override(**said)


def test_levels_need_a_shift() -> None:
    with pytest.raises(SoritesError, match="needs a shift"):
        Suite(name="s").override(levels=[1])


@pytest.mark.parametrize(
    ("dial", "error"),
    [
        (Dial(name="jpeg", levels=(6,)), "jpeg has levels 1 to 5, got 6"),
        (Dial(name="jpeg", levels=(0,)), "jpeg has levels 1 to 5, got 0"),
        (
            Dial(name="jpeg", severities=(0.0,)),
            r"0 \(in 100 - quality\), got 0\.0",
        ),
        (Dial(name="jpeg", severities=(float("nan"),)), "above 0 .* got nan"),
        (Dial(name="jpeg", severities=(float("inf"),)), "above 0 .* got inf"),
        (Dial(name="jpge"), "no shift named 'jpge'. Did you mean jpeg"),
        (Dial(name="jpeg", settings=({"iso": 1},)), "give levels or severities"),
        (Dial(name="jpeg", options={"x": 1}), "jpeg has no options, got x"),
    ],
)
def test_stops_that_do_not_exist(dial: Dial, error: str) -> None:
    with pytest.raises(SoritesError, match=error):
        dial.setting_values()


def test_an_option_nobody_has_is_refused(suite: Suite) -> None:
    assert suite.override(options={"padding": None}) == suite
    with pytest.raises(SoritesError, match="option 'paddin': jpeg has none"):
        suite.override(options={"paddin": "zeros"})


def test_only_scorers_take_the_place_of_all_scorers_of_the_suite() -> None:
    suite = load("imagenet_es")
    assert suite.scorers_if_fitted == ("react", "vim", "ash_b")
    changed = suite.override(only_scorers=("vim(dim=4)", "ash_b"))
    assert (changed.scorers, changed.scorers_if_fitted) == (("vim(dim=4)", "ash_b"), ())
    assert suite.override(limit=3).scorers_if_fitted == suite.scorers_if_fitted


def test_scorers_are_added_to_those_of_the_suite() -> None:
    suite = load("imagenet_es")
    changed = suite.override(scorers=("odin", "msp"))
    assert (changed.scorers, changed.scorers_if_fitted) == (("msp", "odin"), suite.scorers_if_fitted)
    asked = suite.override(scorers=("vim",))
    assert (asked.scorers, asked.scorers_if_fitted) == (("msp", "vim"), ("react", "ash_b"))
    with pytest.raises(SoritesError, match="one of the two"):
        suite.override(scorers=("odin",), only_scorers=("msp",))


def test_a_suite_names_scorers_with_parameters() -> None:
    tables = [{"name": "knn", "k": 10}, "energy", {"name": "vim", "dim": 256}, "ash_b(percentile=65)"]
    made = parse({"name": "s", "scorers": tables}, "test")
    assert made.scorers == ("knn(k=10)", "energy", "vim", "ash_b(percentile=65)")
    with pytest.raises(SoritesError, match="scorer 'knn'"):
        parse({"name": "s", "scorers": ["knn", {"name": "knn", "k": 50}]}, "test")
    with pytest.raises(SoritesError, match="knn named 'kk'.*k, bank"):
        parse({"name": "s", "scorers": [{"name": "knn", "kk": 10}]}, "test")
    with pytest.raises(SoritesError, match="a scorer is a name or a table"):
        parse({"name": "s", "scorers": [{"k": 10}]}, "test")
    with pytest.raises(SoritesError, match="a name with parameters"):
        parse({"name": "s", "scorers": ["knn(10)"]}, "test")
    with pytest.raises(SoritesError, match="unknown key 'fit.sauce'"):
        parse({"name": "s", "fit": {"sauce": "stamps"}}, "test")
