"""Detectors in ONNX files are explained from a run folder: the graph is loaded again by its spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from onnx import TensorProto, helper
from PIL import Image
from tests.models import box_graphs

import sorites
from sorites import core
from sorites.core import Box
from sorites.suites.suite import parse
from sorites.training.explain import explain, masking

SPOT = (16.0, 20.0, 40.0, 44.0)
"""The box of the graph below, in px of its input and of the images."""


def spot_graph(path: Path) -> str:
    """Write an ONNX detector with one box, as sure as its inside is bright, and with features of it."""
    x0, y0, x1, y1 = map(int, SPOT)
    nodes = [
        helper.make_node("Slice", ["images", "start", "end"], ["inside"]),
        helper.make_node("ReduceMean", ["inside"], ["colour"], axes=[2, 3], keepdims=0),
        helper.make_node("ReduceMean", ["inside"], ["bright"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["bright", "single"], ["score"]),
        helper.make_node("Reshape", ["colour", "three"], ["feat"]),
        helper.make_node("Concat", ["box", "score", "class"], ["rows"], axis=2),
    ]
    constants = {
        "start": np.array([0, 0, y0, x0]),
        "end": np.array([1, 3, y1, x1]),
        "single": np.array([1, 1, 1]),
        "three": np.array([1, 1, 3]),
        "box": np.array([[SPOT]], np.float32),
        "class": np.array([[[1]]], np.float32),
    }
    kinds = {"rows": (TensorProto.FLOAT, (1, 1, 6)), "feat": (TensorProto.FLOAT, (1, 1, 3))}
    return box_graphs.save(path, nodes, box_graphs.IMAGES, kinds, constants, {"names": "{0: 'a', 1: 'b'}"})


def spots(number: int) -> Any:
    image = np.random.default_rng(number).integers(10, 60, (64, 64, 3), np.uint8)
    x0, y0, x1, y1 = map(int, SPOT)
    image[y0:y1, x0:x1] = 200 + 5 * number
    return image


def written(folder: Path, first: int = 0) -> str:
    """Write four images with their boxes as a COCO dataset."""
    folder.mkdir()
    x0, y0, x1, y1 = SPOT
    bbox = [x0, y0, x1 - x0, y1 - y0]
    for i in range(4):
        Image.fromarray(spots(first + i)).save(folder / f"{i}.png")
    content = {
        "images": [{"id": i + 1, "file_name": f"{i}.png", "width": 64, "height": 64} for i in range(4)],
        "annotations": [{"id": i + 1, "image_id": i + 1, "category_id": 2, "bbox": bbox} for i in range(4)],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    }
    (folder / "annotations.json").write_text(json.dumps(content))
    return f"coco:{folder / 'annotations.json'}"


@pytest.mark.slow
def test_an_onnx_detector_with_features_is_explained_from_its_folder(tmp_path: Path) -> None:
    """Its evidence is inside of the box, and so is the map."""
    spec = f"boxes:{spot_graph(tmp_path / 'm.onnx')}?features=feat"
    source, training = written(tmp_path / "images"), written(tmp_path / "training", 4)
    layout = {"name": "spot", "shifts": [{"name": "exposure_stops_down", "severities": [5]}]}
    suite = parse({**layout, "models": [f"spot={spec}"], "scorers": ["knn(k=1)"]}, "test")
    sorites.run(suite, source=source, fit=training, labels=["a", "b"], out=tmp_path / "run")
    run = tmp_path / "run"
    scored = sorites.read(run).collect().filter(pl.col("output") == "ood")
    assert scored["score"].null_count() < scored.height, "features of boxes are scored"
    found = explain(run, masks=120, limit=2)
    assert len(found) == 2
    before, after = found[0].sides
    assert (before.method, before.correct, after.correct) == ("rise", True, False)
    assert before.box == SPOT
    assert before.deletion is not None
    assert before.insertion is not None
    assert before.deletion < before.insertion
    model, image = core.model(spec), spots(0)
    score = masking.object_score(model, Box(SPOT, 1))
    cells = {"masks": 400, "cells": masking.OBJECT_CELLS}
    heat, clear = masking.rise(score, image, np.random.default_rng(0), **cells)
    x0, y0, x1, y1 = map(int, SPOT)
    top = np.unravel_index(np.argmax(heat), heat.shape)
    assert clear
    assert y0 <= top[0] < y1
    assert x0 <= top[1] < x1
    page = sorites.report(run, tmp_path / "page.html").read_text()
    assert "b missed" in page
