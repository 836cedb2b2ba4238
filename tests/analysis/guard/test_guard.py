"""A guard from run to runtime: equal scores, honest rates, sealed files, and a check on new images."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import polars as pl
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from scipy import stats
from tests.schemas import problems
from typer.testing import CliRunner

import sorites
from sorites.analysis.guard.rates import scored_images
from sorites.cli.app import app
from sorites.core import Model, Outputs
from sorites.core.errors import Damaged, IncompatibleRun, InvalidOption, Notice, SoritesError, UnknownName
from sorites.deploy import Guard
from sorites.deploy.record import GRAPH, dump, read
from sorites.evaluation.run import Run
from sorites.evaluation.storage.shards import write_metadata
from sorites.suites.suite import parse

CLASSES = ("red", "green", "blue", "grey")
COLOURS = np.array([[150, 90, 90], [90, 150, 90], [90, 90, 150], [120, 120, 120]], np.float64)


def write_images(root: Path, seed: int, count: int, brightness: float = 0.0) -> str:
    """Write noisy images of four colours in class folders, of sizes that a model has to resize."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        label = i % 4
        colour = COLOURS[label] + rng.normal(0, 16, 3) + brightness
        pixels = colour + rng.normal(0, 12, (18 + i % 5, 20, 3))
        path = root / CLASSES[label] / f"i{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)
    return f"folder:{root}"


def write_model(path: Path, shape: tuple[Any, ...] = ("n", 3, 8, 8), softmax: bool = False) -> str:
    """Mean colour, then the logarithm of the density of each class, up to a constant."""
    scaled = COLOURS / 255
    weight = (scaled * 40).astype(np.float32)
    bias = (-20 * (scaled**2).sum(axis=1)).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["features"], axes=[2, 3], keepdims=0),
        # A scaled layer is not read as a head, so the probabilities themselves are the outputs.
        helper.make_node("Gemm", ["features", "w", "b"], ["inner"], transB=1, alpha=2.0 if softmax else 1.0),
        helper.make_node("Softmax" if softmax else "Identity", ["inner"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, (shape[0], width))
            for name, width in (("logits", 4), ("features", 3))
        ],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    config = {"mean": [0, 0, 0], "std": [1, 1, 1], "labels": list(CLASSES), "filter": "bilinear"}
    helper.set_model_props(model, {key: json.dumps(value) for key, value in config.items()})
    onnx.save_model(model, str(path))
    return f"onnx:{path}"


def suite_of(folder: Path, model: str, **more: Any) -> Any:
    return parse(
        {
            "name": "colours",
            "source": write_images(folder / "test", 0, 120),
            "labels": list(CLASSES),
            "models": [model],
            "scorers": ["msp", "mds", "knn(k=5)"],
            "shifts": [{"name": "exposure_stops", "severities": [0.5, 1.0]}],
            "fit": {"source": write_images(folder / "fit", 1, 80)},
            **more,
        },
        "test",
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("guard")
    suite = suite_of(folder, f"m={write_model(folder / 'm.onnx')}")
    return sorites.run(suite, out=folder / "run", keep_features=True, engine="local", workers=1)


@pytest.fixture(scope="module")
def made(run: Run) -> Path:
    sorites.guard(run.folder, "mds", out=run.folder.parent / "made")
    return run.folder.parent / "made" / "guard.json"


def test_the_file_is_as_its_published_schema_says(made: Path) -> None:
    assert problems(made, "guard") == []


def files(run: Run) -> list[Path]:
    return sorted((run.folder.parent / "test").rglob("*.png"))


@pytest.mark.parametrize("scorer", ["msp", "mds", "knn(k=5)"])
def test_scores_of_the_runtime_are_those_of_the_run(scorer: str, run: Run, tmp_path: Path) -> None:
    record = sorites.guard(run, scorer, out=tmp_path)
    assert record.agreement.images == 32
    rows = run.table.filter(pl.col("scorer") == scorer, pl.col("shift") == "clean").collect()
    expected = dict(rows.select("sample_id", "score").iter_rows())
    predicted = dict(rows.select("sample_id", "pred").iter_rows())
    guard, root = Guard(tmp_path / "guard.json"), run.folder.parent / "test"
    for path, verdict in zip(files(run), guard.judge(files(run)), strict=True):
        name = str(path.relative_to(root))
        assert verdict.score == pytest.approx(expected[name], abs=1e-5, rel=1e-5)
        assert verdict.label == CLASSES[predicted[name]]
        assert verdict.alarm == (verdict.score > record.threshold)
    one = files(run)[0]
    assert (
        guard(one) == guard(one.read_bytes()) == guard(np.asarray(Image.open(one))) == guard(Image.open(one))
    )


def test_rates_are_those_of_samples_that_did_not_choose_the_threshold(run: Run, made: Path) -> None:
    record = read(made)
    rows = run.table.filter(pl.col("scorer") == "mds").collect()
    assert record.choice.samples + record.choice.held_out == 120
    clean = rows.filter(pl.col("shift") == "clean")["score"].to_numpy()
    below = np.sort(clean) <= record.threshold
    assert record.rates_of("clean").alarm.n == 60
    # The threshold is one of the clean scores, the 58th of 60 in its half.
    assert record.threshold in clean
    assert 58 <= below.sum() <= 118
    for rates in record.rates:
        n, value = rates.alarm.n, rates.alarm.value
        assert value is not None
        if rates.shift != "all":
            exact = stats.binomtest(round(value * n), n).proportion_ci(method="exact")
            assert (rates.alarm.low, rates.alarm.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    settings = [(rates.shift, rates.setting) for rates in record.rates]
    assert settings == [("all", ""), ("clean", ""), ("exposure_stops", "0.5"), ("exposure_stops", "1")]
    errors, caught, risk = (getattr(record.rates[0], part) for part in ("error", "caught", "risk"))
    assert caught.n == round(errors.value * errors.n)
    assert risk.n == errors.n - round(record.rates[0].alarm.value * record.rates[0].alarm.n)  # type: ignore[operator]


def test_prediction_sets_cover_the_class(run: Run, made: Path) -> None:
    guard = Guard(made)
    covered = [path.parent.name in (guard(path).set or ()) for path in files(run)]
    # Clean images chose the threshold of the sets: the share is at least 90 % and less than one rank more.
    assert 0.9 <= np.mean(covered) <= 0.9 + 2 / 121
    assert guard.record.coverage == 0.9
    assert Guard(made.parent).path == made


def test_a_changed_file_is_refused(made: Path, tmp_path: Path) -> None:
    for name in ("guard.json", "guard.onnx", "guard.npz"):
        (tmp_path / name).write_bytes((made.parent / name).read_bytes())
    record = read(made)
    assert dump(record) == made.read_bytes()
    text = (tmp_path / "guard.json").read_text()
    (tmp_path / "guard.json").write_text(text.replace('"threshold": ', '"threshold": 1'))
    with pytest.raises(Damaged):
        Guard(tmp_path / "guard.json")
    (tmp_path / "guard.json").write_bytes(dump(replace(record, files={GRAPH: "0" * 32})))
    with pytest.raises(Damaged):
        Guard(tmp_path / "guard.json")
    (tmp_path / "guard.json").write_bytes(dump(record).replace(b'"classes"', b'"kinds"'))
    with pytest.raises(Damaged):
        read(tmp_path / "guard.json")


def test_the_check_finds_a_change_and_is_silent_without_one(run: Run, made: Path, tmp_path: Path) -> None:
    same = sorites.check_guard(made, write_images(tmp_path / "same", 5, 100))
    assert same.holds
    assert [test.name for test in same.tests] == ["alarm rate", "risk", "scores", "features"]
    assert same.level == pytest.approx(0.01 / 4)
    assert (same.alarm.n, same.images) == (100, 100)
    darker = sorites.check_guard(made, write_images(tmp_path / "dark", 6, 100, brightness=-45))
    assert not darker.holds
    assert {test.name for test in darker.tests if test.changed} >= {"alarm rate", "scores", "features"}
    typed = CliRunner().invoke(
        app, ["guard", "check", str(made), "--source", f"folder:{tmp_path / 'dark'}", "--limit", "60"]
    )
    assert typed.exit_code == 1
    assert "60 images" in typed.output
    with pytest.raises(InvalidOption):
        sorites.check_guard(made, f"folder:{tmp_path / 'same'}", rate=1e-9)


def test_ood_images_are_errors_and_never_clean_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    (tmp_path / "ood").mkdir()
    for i in range(80):
        pixels = np.clip(rng.normal([150, 150, 90], 12, (18, 20, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "ood" / f"{i:02d}.png")
    suite = suite_of(tmp_path, f"m={write_model(tmp_path / 'm.onnx')}")
    unknown = {"purple": f"folder:{tmp_path / 'ood'}"}
    run = sorites.run(suite, out=tmp_path / "run", ood=unknown, engine="local", workers=1)
    rows = run.table.filter(pl.col("scorer") == "mds").collect()
    is_ood = pl.col("source") == "purple"
    known = rows.filter(~is_ood, pl.col("shift") == "clean")["score"].to_numpy()
    record = sorites.guard(run, "mds", out=tmp_path / "g")
    assert record.threshold in known
    # All clean images of known classes, of both halves, are compared later; OOD images are not.
    with np.load(tmp_path / "g" / "guard.npz") as reference:
        assert sorted(reference["scores"]) == sorted(known)
    settings = [(rates.shift, rates.setting) for rates in record.rates]
    shifted = [("exposure_stops", "0.5"), ("exposure_stops", "1")]
    ood = [("ood", ""), ("ood", "exposure_stops 0.5"), ("ood", "exposure_stops 1.0")]
    assert settings == [("all", ""), ("clean", ""), *shifted, *ood]
    found = record.rates_of("ood")
    assert record.rates_of("clean").alarm.n + found.alarm.n == record.choice.held_out == 100
    # Every OOD image is an error without an alarm, so the errors that are caught are the alarms.
    assert (found.error.value, found.caught) == (1.0, found.alarm)
    # Sources with their own OOD images (stamps_ood, openood) mark them by their split.
    marks = {"split": pl.lit("unknown"), "known": pl.lit(None, pl.Boolean)}
    marked = run.table.lazy().with_columns(
        **{name: pl.when(is_ood).then(mark).otherwise(name) for name, mark in marks.items()}
    )
    images = [scored_images(table, run.folder, "m", "mds") for table in (run.table, marked)]
    assert images[0].equals(images[1])
    assert images[0].filter(is_ood).select("wrong", "clean").unique().rows() == [(True, False)]
    # The single setting of a shift without severities, as of released images, has no name.
    is_shifted = pl.col("severity") > 0
    single = marked.filter(pl.col("severity") != 1).with_columns(
        severity=pl.when(~is_shifted).then("severity"),
        params=pl.when(is_shifted).then(pl.lit('{"set": "es"}')).otherwise("params"),
    )
    named = scored_images(single, run.folder, "m", "mds").select("shift", pl.col("setting").fill_null(""))
    assert sorted(set(named.rows())) == [
        ("clean", ""), ("exposure_stops", ""), ("ood", ""), ("ood", "exposure_stops"),
    ]  # fmt: skip
    # A rule for the risk counts them: without them, this risk needs no alarm at all.
    with pytest.raises(SoritesError, match="lowest"):
        sorites.guard(run, "msp", at="risk=0.05", out=tmp_path / "g")


def test_the_verb_writes_a_guard(run: Run, tmp_path: Path) -> None:
    words = ["guard", str(run.folder), "--scorer", "msp", "--at", "beyond=exposure_stops:1", "--power", "0.2"]
    typed = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "g"), "--format", "csv"])
    assert typed.exit_code == 0, typed.output
    record = read(tmp_path / "g" / "guard.json")
    assert record.rates_of("exposure_stops", "1").alarm.value > 0.2  # type: ignore[operator]
    assert record.choice.confidence == 0.95
    assert "exposure_stops" in typed.output


@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (4, 3, 8, 8)])
def test_probabilities_fixed_batches_frames_and_fewer_classes(shape: Any, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx", shape, softmax=True)
    suite = suite_of(
        tmp_path,
        model,
        labels=list(CLASSES[:3]),
        scorers=["energy"],
        shifts=[],
        frame={"resize": 16, "crop": 14},
    ).model_copy(update={"source": f"folder:{tmp_path / 'three'}", "fit": None})
    (tmp_path / "test").rename(tmp_path / "three")
    for path in (tmp_path / "three" / "grey").iterdir():
        path.unlink()
    (tmp_path / "three" / "grey").rmdir()
    with pytest.warns(Notice):
        run = sorites.run(suite, out=tmp_path / "run", engine="local", workers=1)
    with pytest.warns(Notice):
        record = sorites.guard(run.folder, "energy", "tpr=0.9", out=tmp_path / "g")
    assert record.agreement.images == 32
    assert record.agreement.difference < 1e-5  # type: ignore[operator]
    assert record.classes == CLASSES[:3]
    assert record.set_threshold is None  # no kept logits


def test_a_model_that_was_trained_on_images_of_the_run_is_named(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    write_metadata(folder, "overlap", {"m": [7, 120], "other": [3, 120]})
    with pytest.warns(Notice, match="m was trained on 7 of the 120 samples") as told:
        sorites.guard(folder, "msp", out=tmp_path / "g")
    assert len(told) == 1


def test_a_model_without_a_graph_gets_a_guard_of_its_outputs(tmp_path: Path) -> None:
    def forward(images: list[np.ndarray]) -> Outputs:
        colours = np.stack([image.mean(axis=(0, 1)) for image in images]).astype(np.float32) / 255
        return Outputs(colours @ (COLOURS.T / 8).astype(np.float32), colours)

    model = Model("plain", forward, labels=CLASSES, version="1")
    suite = suite_of(tmp_path, "plain", scorers=["mds"], shifts=[])
    run = sorites.run(suite, models=[model], out=tmp_path / "run", engine="local", workers=1)
    with pytest.warns(Notice):
        sorites.guard(run, "mds", out=tmp_path / "g")
    guard = Guard(tmp_path / "g" / "guard.json")
    path = sorted((tmp_path / "test").rglob("*.png"))[0]
    outputs = model([np.asarray(Image.open(path))])
    assert outputs.logits is not None
    rows = run.table.filter(
        pl.col("output") == "ood", pl.col("sample_id") == str(path.relative_to(tmp_path / "test"))
    )
    expected = rows.collect()["score"][0]
    assert guard.score_outputs(outputs.logits, outputs.features).scores[0] == pytest.approx(
        expected, rel=1e-5
    )
    with pytest.raises(SoritesError):
        guard(path)
    with pytest.raises(SoritesError):
        guard.score_outputs(outputs.logits)


def test_other_scorers_models_and_weights_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        sorites.guard(run, "energy", out=tmp_path)
    with pytest.raises(UnknownName):
        sorites.guard(run, "msp", model="other", out=tmp_path)
    with pytest.raises(InvalidOption):
        sorites.guard(run, "msp", power=2, out=tmp_path)
    path = run.folder.parent / "m.onnx"
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"\x72\x00")
        with pytest.raises((IncompatibleRun, SoritesError)):
            sorites.guard(run.folder, "msp", out=tmp_path)
    finally:
        path.write_bytes(before)


def test_the_runtime_imports_nothing_but_numpy_pillow_and_onnx_runtime() -> None:
    code = (
        "import sys, numpy, onnxruntime, PIL.Image\n"
        "before = {name.partition('.')[0] for name in sys.modules}\n"
        "import sorites.deploy\n"
        "after = {name.partition('.')[0] for name in sys.modules} - before - set(sys.stdlib_module_names)\n"
        "print(sorted(after))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['sorites']"
