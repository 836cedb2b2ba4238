"""What runs do once instead of again and again: inputs of models, settings, versions; and the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites.core import Model, Outputs
from sorites.core.compute.passes import SharedInputs
from sorites.core.samples import Setting, to_uint8
from sorites.core.table import SCHEMA
from sorites.evaluation.images import _to_uint8
from sorites.evaluation.predict import _evaluate, evaluate_images, frame_of_columns
from sorites.evaluation.storage import record
from sorites.io.resizing import Fit
from sorites.models.preprocess import Input


def model(name: str, prepare: Any, seen: list[np.ndarray]) -> Model:
    def forward(images: list[Any]) -> Outputs:
        seen.extend(images)
        return Outputs(np.ones((len(images), 2), np.float32))

    return Model(name, forward, prepare)


def images(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (count, 40, 50, 3), np.uint8))


class Counted:
    """``Fit`` that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image: np.ndarray, framed: bool) -> np.ndarray:
        self.calls += 1
        return Fit((24, 24))(image, framed)


def test_inputs_that_differ_in_their_means_only_are_equal() -> None:
    assert Input(size=(24, 24)).prepare == Input(size=(24, 24), mean=(0.5, 0.5, 0.5)).prepare
    assert Input(size=(24, 24)).prepare != Input(size=(24, 24), filter="bilinear").prepare


def test_models_with_one_input_share_it_and_see_what_they_saw_alone() -> None:
    prepare, batch = Counted(), images(5)
    before = [image.copy() for image in batch]
    shared: list[list[np.ndarray]] = [[], [], []]
    alone: list[list[np.ndarray]] = [[], [], []]
    models = [model(str(i), prepare, shared[i]) for i in range(3)]
    inputs = SharedInputs(models)
    for one in models:
        outputs, errors = _evaluate(one, inputs.call(one, True), batch, None)
        assert errors == [None] * 5
        assert len(outputs) == 5
    assert prepare.calls == 5
    for i in range(3):
        evaluate_images(model(str(i), prepare, alone[i]), batch, True)
    assert prepare.calls == 20
    np.testing.assert_array_equal(shared, alone)
    np.testing.assert_array_equal(batch, before)
    inputs.clear()
    _evaluate(models[0], inputs.call(models[0], False), batch, None)
    assert prepare.calls == 25


def test_shared_inputs_are_copies() -> None:
    """The second model sees the image although the first one has erased its own."""
    prepare, batch, values = Counted(), images(2), []

    def forward(arrays: list[Any]) -> Outputs:
        values.append([array.sum() for array in arrays])
        for array in arrays:
            array[:] = 0
        return Outputs(np.ones((len(arrays), 2), np.float32))

    models = [Model("a", forward, prepare), Model("b", forward, prepare)]
    inputs = SharedInputs(models)
    for one in models:
        _evaluate(one, inputs.call(one, True), batch, None)
    assert values[0] == values[1]
    assert values[0][0] > 0


def test_a_model_with_an_input_of_its_own_is_called_as_ever() -> None:
    prepare = Counted()
    models = [model("a", prepare, []), model("b", Fit((8, 8)), [])]
    inputs = SharedInputs(models)
    _evaluate(models[0], inputs.call(models[0], True), images(3), None)
    _evaluate(models[0], inputs.call(models[0], True), images(3), None)
    assert prepare.calls == 6


@pytest.mark.parametrize("low", [0.0, -0.2])
def test_rounding_without_clipping_gives_the_same_pixels(low: float) -> None:
    image = np.random.default_rng(1).uniform(low, 1 - low, (33, 21, 3)).astype(np.float32)
    image[0, 0], image[0, 1] = low, 1 - low
    by_hand = np.clip(image * np.float32(255) + np.float32(0.5), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(_to_uint8(image, "s", 1.0), by_hand)
    np.testing.assert_array_equal(to_uint8(image), by_hand)
    if low == 0:
        np.testing.assert_array_equal(to_uint8(image, in_range=True), by_hand)


def test_rows_are_those_that_polars_makes_of_the_columns() -> None:
    attrs = [{"key": "k", "value": "v", "common": True}]
    columns: dict[str, list[Any]] = {
        "attrs": [attrs, attrs, [], None, attrs],
        "accept": [[1], [1], [1, 2], [], None],
        "top5": [[1, 2], None, None, [3], [3]],
        "boxes": [None] * 5,
        "label": [1, 1, None, 2, 3],
        "shift": ["a", "a", "b", "b", "b"],
    }
    wanted = pl.DataFrame(columns, schema={name: SCHEMA[name] for name in columns})
    assert frame_of_columns(columns).equals(wanted)
    assert frame_of_columns(columns).schema == wanted.schema
    empty: dict[str, list[Any]] = {name: [] for name in columns}
    assert frame_of_columns(empty).equals(pl.DataFrame(empty, schema=wanted.schema))


def test_versions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = record.versions()
    monkeypatch.setattr(record, "version", lambda name: pytest.fail(f"{name} was read again"))
    assert record.versions() == first
    first["numpy"] = "changed"
    assert record.versions()["numpy"] != "changed"


def test_the_text_of_a_setting_is_made_once() -> None:
    setting = Setting(0.5, {"b": 1, "a": 2})
    assert setting.canonical == '{"a": 2, "b": 1, "severity": 0.5}'
    assert setting.canonical is setting.canonical
    assert setting == Setting(0.5, {"b": 1, "a": 2})
