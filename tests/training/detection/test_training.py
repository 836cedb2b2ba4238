"""A small detector: trained, killed and resumed, loaded and evaluated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.detection import scenes
from tests.training.small_recipe import same

from sorites import core
from sorites.core.errors import SoritesError
from sorites.evaluation.estimate import input_words
from sorites.evaluation.run import run
from sorites.metrics.detection.mean_ap import map as mean_average_precision
from sorites.metrics.detection.tide import tide
from sorites.models.detectors.fcos import blank, decoded, detector, locations
from sorites.models.trained import start
from sorites.training.data import images
from sorites.training.detection.start import start_detector
from sorites.training.detection.steps import DetectorSteps
from sorites.training.detection.targets import GroundTruth, targets_of
from sorites.training.loop import train
from sorites.training.processes import ALONE
from sorites.training.recipe import parse
from sorites.training.session import _started

CODE = """
import sys
from sorites.training.loop import train
def bar(name, steps, done):
    def tick(count, words):
        print("step", flush=True)
    return tick
train(sys.argv[1], sys.argv[2], checkpoint_seconds=0, bar=bar)
"""
RECIPE = """
task = "boxes"
model = "small"
steps = 24
batch = 8
validate_every = 2.0
[augment]
names = "optics"
[augment.options.optics]
scaled = 2
[data]
source = "coco:FILE"
labels = "found"
validation = 0.2
size = 64
crop = [0.6, 1.0]
[optimiser]
kind = "adamw"
lr = 3e-3
clip = 5.0
"""
SUITE = """
source = "coco:FILE"
labels = ["red", "green"]
shifts = [{ name = "coma", levels = [3], options = { scaled = 2, padding = "reflect" } }]
"""


def test_a_trained_detector_says_how_it_prepares_images(capsys: pytest.CaptureFixture[str]) -> None:
    network, wants = blank("fcos:small", 2)
    words = input_words(detector("mine", network, wants, ["a", "b"]).input)
    assert words.startswith("128 x 128: letterbox, filled with 114, antialiased bilinear, RGB")
    assert f"mine: {words}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_killed_detector_ends_with_the_same_weights_and_is_evaluated(tmp_path: Path) -> None:
    file = scenes.write(tmp_path / "images", 40)
    recipe, suite = tmp_path / "r.toml", tmp_path / "s.toml"
    recipe.write_text(RECIPE.replace("FILE", str(file)))
    suite.write_text(SUITE.replace("FILE", str(scenes.write(tmp_path / "others", 12, seed=1))))
    command = [sys.executable, "-c", CODE, str(recipe), str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(9):
            assert process.stdout.readline() == "step\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed/model.json").exists()
    said: list[str] = []
    train(recipe, tmp_path / "killed", say=said.append, workers=2)
    assert any("resuming" in text for text in said)
    whole = train(recipe, tmp_path / "whole")
    assert same(tmp_path / "killed", whole)
    rows = [json.loads(line) for line in (whole / "history.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert not any("accuracy" in row or "validation_accuracy" in row for row in rows)

    model = core.model(f"trained:{whole}")
    assert (model.output, model.labels) == ("boxes", ("green", "red"))
    result = run(suite, models={"detector": f"trained:{whole}"}, out=tmp_path / "run")
    values = mean_average_precision(result.table, resamples=0)
    assert set(values["shift"]) == {"clean", "coma"}
    assert values["value"].is_between(0, 1).all()
    assert tide(result.table).height > 0
    again = run(suite, models={"detector": f"trained:{whole}"}, out=tmp_path / "again", batch=3)
    boxes = [one.table.sort("image_id").select("image_id", "boxes").collect() for one in (result, again)]
    assert boxes[0].equals(boxes[1])
    assert boxes[0]["boxes"].list.len().sum() > 0


def _steps(file: Path, **keys: object) -> DetectorSteps:
    data = {"source": f"coco:{file}", "labels": "found", "size": 64}
    recipe = parse({"name": "r", "task": "boxes", "steps": 2, "batch": 4, "data": data, **keys}, "r")
    steps = _started(recipe, images(recipe), "cpu", ALONE)[1]
    assert isinstance(steps, DetectorSteps)
    return steps


@pytest.mark.parametrize("names", ["flip", "augmix", "optics,augmix", "cascade", "rotation"])
def test_augmentations_that_move_objects_are_refused(tmp_path: Path, names: str) -> None:
    with pytest.raises(SoritesError, match="moves objects"):
        _steps(scenes.write(tmp_path, 6), augment=names)


@pytest.mark.parametrize("names", ["optics", "augmix", "cascade", "none"])
def test_a_step_of_each_arm_depends_on_its_number_only(tmp_path: Path, names: str) -> None:
    options = {} if names in ("optics", "none") else {"augmix": {"geometric": False}}
    file = scenes.write(tmp_path, 6)
    losses = []
    for _ in range(2):
        steps = _steps(file, augment={"names": names, "options": options})
        steps.enter(0)
        losses.append([steps.take(batch).loss for batch in steps.batches.between(0, 1)])
    assert losses[0] == losses[1]
    assert 0 < losses[0][0] < 100


def test_an_input_that_is_no_multiple_of_the_largest_stride_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"data\.size = 96"):
        start_detector("small", ["a", "b"], 100)


def test_a_detector_starts_no_classifier() -> None:
    with pytest.raises(SoritesError, match="detector"):
        start("fcos:small", ["a", "b"])
    with pytest.raises(SoritesError, match="lite0"):
        start_detector("lite0", ["a", "b"])


def test_a_timm_backbone_has_maps_of_the_three_strides() -> None:
    network = start_detector("timm:resnet10t@random", ["a", "b", "c"], 64)
    assert network.layers == "fcos:timm:resnet10t"
    with torch.inference_mode():
        logits, distances, centreness = network.module.eval()(torch.zeros(1, 3, 64, 64))
    places = len(locations((64, 64))[0])
    assert (logits.shape, distances.shape, centreness.shape) == ((1, places, 3), (1, places, 4), (1, places))
    assert (distances > 0).all()


def test_boxes_are_decoded_from_the_locations_they_were_encoded_at() -> None:
    boxes = np.array([[10.0, 12, 40, 44], [60.0, 8, 120, 100]])
    centres, strides = locations((128, 128))
    targets = targets_of(GroundTruth(boxes, np.array([0, 1]), np.zeros(2, bool)), centres, strides)
    found = targets[:, 0] >= 0
    logits = np.full((len(centres), 2), -9, np.float32)
    logits[found, targets[found, 0].astype(int)] = 9
    candidates = decoded(logits, targets[:, 1:], np.full(len(centres), 9, np.float32), (128, 128))
    for row in np.flatnonzero(found):
        label = int(targets[row, 0])
        assert candidates.boxes[row] == pytest.approx(boxes[label], abs=1e-3)
        assert candidates.scores[row, label] > 0.99 > 0.1 > candidates.scores[row, 1 - label]
