"""Comparing two detectors: numbers, rules, outputs, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from tests.reports.rectangles import CLASSES, detector, source, written
from typer.testing import CliRunner

import sorites
from sorites import metrics
from sorites.analysis.comparison.compare import compare
from sorites.analysis.comparison.detectors import BoxComparison
from sorites.analysis.comparison.gate import Gate, judge
from sorites.analysis.comparison.quantities import Quantity
from sorites.analysis.comparison.rules import parse
from sorites.cli.app import app
from sorites.core import Model, Outputs
from sorites.core.errors import InvalidOption, SoritesError, UnknownName
from sorites.suites import suite as suites

# Two runs of two detectors take half a minute.
pytestmark = pytest.mark.slow

SUITE = {"name": "boxes", "labels": list(CLASSES), "shifts": ["gaussian_noise", "brightness"]}


def blind(model: Model, name: str, label: int) -> Model:
    """Return the detector without the boxes of one class in the left half of the image."""

    def forward(images: list[np.ndarray]) -> Outputs:
        found = model.forward(images).boxes or []
        kept = [tuple(box for box in boxes if box.label != label or box.xyxy[0] > 80) for boxes in found]
        return Outputs(boxes=kept)

    return replace(model, name=name, forward=forward, version="2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs ``base``, ``blind`` (to a class on the left) and ``same``."""
    root, suite = tmp_path_factory.mktemp("detectors"), suites.parse(SUITE, "test")
    (root / "images").mkdir()
    given = {"source": written(root / "images", 40), "levels": [1, 3]}
    sorites.run(suite, **given, models=[detector("base")], out=root / "base")
    sorites.run(suite, **given, models=[blind(detector(), "blind", 1)], out=root / "blind")
    sorites.run(suite, **given, models=[replace(detector("same"), version="3")], out=root / "same")
    return root


@pytest.fixture(scope="module")
def worse(runs: Path) -> BoxComparison:
    found = compare(runs / "base", runs / "blind")
    assert isinstance(found, BoxComparison)
    return found


def test_values_are_those_of_the_metrics(worse: BoxComparison, runs: Path) -> None:
    for name, column in (("base", "base"), ("blind", "new")):
        table = sorites.read(runs / name)
        expected = dict(
            metrics.mean_map(table, by=("shift",), resamples=0).select("shift", "value").iter_rows()
        )
        clean = metrics.map(table.filter(pl.col("shift") == "clean"), by=("shift",), resamples=0)["value"][0]
        found = dict(worse.dials.select("dial", column).iter_rows())
        assert found["clean"] == pytest.approx(clean, abs=1e-12)
        for shift, value in expected.items():
            assert found[shift] == pytest.approx(value, abs=1e-12)
        assert found["all"] == pytest.approx(np.mean([*expected.values()]), abs=1e-12)


def test_objects_lost_are_those_of_the_blind_class(worse: BoxComparison) -> None:
    flips = worse.pairs.filter(pl.col("correct") != pl.col("correct_new"))
    assert set(flips["class"]) == {1}
    assert flips["correct"].all()
    assert worse.dials["gained"].sum() == 0
    assert worse.dials.filter(pl.col("dial") != "all")["lost"].sum() == flips.height
    assert worse.settings["lost"].sum() == flips.height
    assert worse.settings.select("shift", "severity").unique().height == 5


def test_the_gate_breaks_on_the_class_and_nowhere_else(worse: BoxComparison) -> None:
    verdicts = judge(worse, Gate(fail_if=("map_drop [class=*] > 0",)))
    broken = {verdict.dial for verdict in verdicts if verdict.broken}
    assert broken
    assert all("class=broccoli" in dial for dial in broken)
    assert {verdict.dial for verdict in verdicts if verdict.value} == {
        f"{shift} [class=broccoli]" for shift in ("clean", "gaussian_noise", "brightness")
    }
    for verdict in verdicts:
        assert verdict.bound is None or verdict.broken == (verdict.bound > 0) == (verdict.p <= 0.05)


def test_equal_detectors_pass_every_rule(runs: Path) -> None:
    same = compare(runs / "base", runs / "same")
    rules = (
        "map_drop > 0",
        "map < base",
        "recall@0.3 < base",
        "precision@0.3 < 0.9 * base",
        "box_failure_severity < base",
        "map_drop [size=*] > 0",
    )
    verdicts = judge(same, Gate(fail_if=rules))
    assert not [str(verdict) for verdict in verdicts if verdict.broken]
    assert {verdict.rule.text for verdict in verdicts} == {" ".join(rule.split()) for rule in rules}
    assert same.dials["p"].to_list() == [1.0] * 4


def test_recall_and_precision_at_a_confidence_by_hand(worse: BoxComparison, runs: Path) -> None:
    """Recall from the objects metric; precision from the definition, box by box."""
    for name, column in (("base", "base"), ("blind", "new")):
        rows = metrics.objects(sorites.read(runs / name), conf=0.4).filter(pl.col("shift") == "clean")
        cell = worse.cells(Quantity("recall", 0.4))[""]["clean", None]
        assert getattr(cell.draws, column) == pytest.approx(rows["correct"].mean(), abs=1e-12)
        boxes = sorites.read(runs / name).lazy().filter(pl.col("shift") == "clean").collect()["boxes"]
        predicted = sum(box["conf"] >= 0.4 for found in boxes for box in found)
        precision = worse.cells(Quantity("precision", 0.4))[""]["clean", None]
        expected = rows["correct"].sum() / predicted
        assert getattr(precision.draws, column) == pytest.approx(expected, abs=1e-12)


def test_swapping_all_samples_swaps_the_sides(runs: Path) -> None:
    """A swap of every sample is the comparison the other way round."""
    forth, back = compare(runs / "base", runs / "blind"), compare(runs / "blind", runs / "base")
    assert isinstance(forth, BoxComparison)
    assert isinstance(back, BoxComparison)
    one, two = (side.cells(Quantity("map"))[""]["clean", None].draws for side in (forth, back))
    assert one.drop == -two.drop
    assert np.allclose(one.swapped, -two.swapped, atol=2e-6)
    assert forth.dials["low"].to_numpy() == pytest.approx(-back.dials["high"].to_numpy(), abs=1e-5)


def test_absolute_limits_and_failure_severities(worse: BoxComparison) -> None:
    gate = Gate(
        fail_if=("recall@0.3.clean < 99.9", "map.clean < 1", "box_failure_severity@0.3.brightness < base")
    )
    recall, low, severity = judge(worse, gate)
    assert recall.broken
    assert not low.broken
    assert severity.value is not None
    expected = metrics.box_failure_severity(worse.table, by=("model", "shift"), conf=0.3)
    mine = expected.filter((pl.col("model") == "base") & (pl.col("shift") == "brightness"))["value"][0]
    points = worse.points(0.3, "brightness")
    assert points is not None
    assert points.base == pytest.approx(points.top if mine is None else mine)


@pytest.mark.parametrize(
    ("text", "metric", "conf", "dial", "label", "size"),
    [
        ("map_drop > 2", "map_drop", None, None, None, None),
        ("recall@0.5.fog < base - 3", "recall", 0.5, "fog", None, None),
        ("precision@.25 < 60", "precision", 0.25, None, None, None),
        ("map_drop.all [class=hot dog, size=small] > 5", "map_drop", None, "all", "hot dog", "small"),
        ("box_failure_severity@0.3.fog [size=*] < 0.9 * base", "box_failure_severity", 0.3, "fog", None, "*"),
        ("map[class=*]<base-1", "map", None, None, "*", None),
    ],
)
def test_rules_of_detectors_are_read(
    text: str, metric: str, conf: float | None, dial: str | None, label: str | None, size: str | None
) -> None:
    rule = parse(text)
    assert (rule.metric, rule.conf, rule.dial, rule.label, rule.size) == (metric, conf, dial, label, size)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recall < 60", "recall@0.5"),
        ("map_drop@0.5 > 2", "leave out @0.5"),
        ("recall@2 < 60", "from 0 to 1"),
        ("map_drop [size=huge] > 2", "'huge'"),
        ("map_drop [colour=red] > 2", "[class=NAME]"),
        ("drop [class=cup] > 2", "for detectors"),
        ("map_drop > 0.9 * base", "relative to the base already"),
        ("map_dorp > 2", "Did you mean map_drop"),
    ],
)
def test_invalid_rules_of_detectors_are_refused(text: str, message: str) -> None:
    with pytest.raises(SoritesError, match=re.escape(message)):
        parse(text)


def test_rules_of_the_other_kind_unknown_shifts_and_classes_are_refused(worse: BoxComparison) -> None:
    with pytest.raises(SoritesError, match="these runs have detectors"):
        judge(worse, Gate(fail_if=("drop > 2",)))
    with pytest.raises(UnknownName, match="'fog'"):
        judge(worse, Gate(fail_if=("map_drop.fog > 2",)))
    with pytest.raises(UnknownName, match="broccoli"):
        judge(worse, Gate(fail_if=("map_drop [class=brocoli] > 2",)))
    with pytest.raises(UnknownName, match="'fog'"):
        judge(worse, Gate(fail_if=("box_failure_severity.fog < base",)))


def test_a_class_without_objects_or_a_size_without_objects(worse: BoxComparison) -> None:
    """Rectangles are at most 60 px, so there are no large objects: nothing could be judged."""
    with pytest.raises(SoritesError, match="no object of this class and size"):
        judge(worse, Gate(fail_if=("map_drop [size=large] > 2",)))


def test_the_command_writes_page_junit_and_markdown_and_verifies(runs: Path, tmp_path: Path) -> None:
    out, junit, markdown = (tmp_path / name for name in ("c.html", "c.xml", "c.md"))
    sides = [str(runs / "base"), str(runs / "blind")]
    rules = ["--fail-if", "map_drop [class=broccoli] > 2", "--fail-if", "precision@0.3 < base - 50"]
    files = ["--out", str(out), "--junit", str(junit), "--markdown", str(markdown)]
    done = CliRunner().invoke(app, ["compare", *sides, *rules, *files, "--conf", "0.4"])
    assert done.exit_code == 1, done.output
    assert "broken: map_drop [class=broccoli] > 2: map_drop.clean [class=broccoli] is" in done.output
    assert "gate: failed, 3 broken, 3 met" in done.output
    suite = ElementTree.parse(junit).getroot()[0]
    assert (int(suite.attrib["tests"]), int(suite.attrib["failures"])) == (6, 3)
    text = markdown.read_text()
    assert "The gate fails" in text
    assert "mAP in percent" in text
    page = out.read_text()
    assert page.count("not found</b>") >= 1
    assert "image not available" not in page
    assert "Which objects are lost or gained?" in page
    data = json.loads(re.search(r'id="sorites-document">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert data["conf"] == 0.4
    assert sorites.verify(out)
    checked = CliRunner().invoke(app, ["verify", str(out)])
    assert checked.exit_code == 0, checked.output


def test_a_detector_and_a_classifier_are_not_compared(runs: Path, tmp_path: Path) -> None:
    def labels(images: list[np.ndarray]) -> Outputs:
        return Outputs(logits=np.zeros((len(images), 3), np.float32))

    samples = [replace(sample, ground_truth=None, label=0) for sample in source(6).samples]
    plain = replace(source(1), samples=samples)
    model = Model("flat", labels, labels=CLASSES, version="1")
    sorites.run(suites.parse(SUITE, "test"), source=plain, models=[model], levels=[1], out=tmp_path / "flat")
    with pytest.raises(SoritesError, match="is a detector, but flat of .* is a classifier"):
        compare(runs / "base", tmp_path / "flat")
    with pytest.raises(InvalidOption, match="conf"):
        compare(tmp_path / "flat", tmp_path / "flat", conf=0.5)


def test_other_ground_truth_is_refused(worse: BoxComparison) -> None:
    """The same images with a box that only one run has: swaps would change the objects."""
    other = pl.when((pl.col("model") == "blind") & (pl.col("shift") == "clean"))
    table = worse.table.with_columns(
        ground_truth=other.then(pl.col("ground_truth").list.head(1)).otherwise("ground_truth")
    )
    with pytest.raises(SoritesError, match="clean differ between the two runs"):
        _ = BoxComparison(worse.base, worse.new, worse.names, (), table).dials
