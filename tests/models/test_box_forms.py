"""The user's own detector: the three usual forms, decided once on a grey image, and an answer to
every other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sorites.core import Box, ImageU8, Model, Outputs
from sorites.core.errors import SoritesError
from sorites.evaluation.predict import evaluate_images
from sorites.models.python import as_model

BOXES, SCORES, LABELS = np.array([[1, 2, 30, 40], [5, 5, 6, 6.5]]), np.array([0.9, 0.25]), np.array([2, 0])
EXPECTED = (Box((1, 2, 30, 40), 2, 0.9), Box((5, 5, 6, 6.5), 0, 0.25))
ROWS = np.concatenate([BOXES, SCORES[:, None], LABELS[:, None]], axis=1)
GREY: ImageU8 = np.full((50, 80, 3), 128, np.uint8)


def each(one: Any) -> Callable[[list[ImageU8]], list[Any]]:
    return lambda images: [one for _ in images]


KEYED = {"boxes": BOXES, "scores": SCORES, "labels": LABELS}


@pytest.mark.parametrize(
    "one",
    [
        (BOXES, SCORES, LABELS),
        [BOXES.tolist(), SCORES.tolist(), LABELS.tolist()],
        {**KEYED, "masks": np.zeros((2, 1, 50, 80))},
        {key: torch.tensor(value).requires_grad_(key == "boxes") for key, value in KEYED.items()},
        ROWS,
        ROWS.tolist(),
        [tuple(row) for row in ROWS],
        torch.tensor(ROWS),
    ],
)
def test_the_usual_forms(one: Any) -> None:
    check(as_model("mine", each(one)))


def test_outputs_with_boxes() -> None:
    check(as_model("mine", lambda images: Outputs(boxes=[EXPECTED for _ in images])))


def check(model: Model) -> None:
    assert (model.output, model.labels) == ("boxes", None)
    outputs, errors = evaluate_images(model, [GREY] * 3, False)
    assert errors == [None] * 3
    assert outputs.boxes == [EXPECTED] * 3


@pytest.mark.parametrize(
    "one",
    [
        [],
        np.zeros((0, 6)),
        ([], [], []),
        (np.zeros((0, 4)), np.zeros(0), np.zeros(0)),
        {"boxes": torch.zeros(0, 4), "scores": torch.zeros(0), "labels": torch.zeros(0)},
    ],
)
def test_nothing_found(one: Any) -> None:
    model = as_model("mine", each(one))
    assert model.output == "boxes"
    assert model([GREY, GREY]).boxes == [(), ()]


def test_a_batch_as_one_array() -> None:
    model = as_model("mine", lambda images: np.tile(ROWS, (len(images), 1, 1)))
    assert model.output == "boxes"
    assert model([GREY, GREY]).boxes == [EXPECTED, EXPECTED]


@pytest.mark.parametrize(
    "given", [np.zeros((1, 6)), [[0.1] * 6], (np.zeros((1, 4)), np.zeros((1, 6))), Outputs(np.zeros((1, 6)))]
)
def test_logits_stay_logits(given: Any) -> None:
    model = as_model("mine", lambda images: given)
    assert model.output == "label"
    assert model([GREY]).logits is not None


def test_names_and_label_spaces_of_a_function() -> None:
    def detect(images: list[ImageU8]) -> Any:
        return [{"boxes": BOXES, "scores": SCORES, "labels": np.array([90, 12])} for _ in images]

    detect.sorites = {"labels": "coco91"}  # type: ignore[attr-defined]
    model = as_model("mine", detect)
    assert model.labels is not None
    assert model.labels[79] == "toothbrush"
    assert model([GREY]).boxes == [(Box((1, 2, 30, 40), 79, 0.9),)]  # 12 is a gap


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (
            {"boxes": BOXES, "labels": LABELS},
            "keys boxes, labels",
        ),
        (
            {**KEYED, "labels": [1]},
            "N x 4, scores N",
        ),
        (BOXES, "boxes, scores, labels"),
        (np.zeros((50, 80)), "50, 80"),
        (np.zeros((2, 50, 80), bool), r"\(masks\?\)"),
        ("person", "expected .* got str"),
        ((BOXES * np.nan, SCORES, LABELS), "not finite"),
        ((BOXES, SCORES * np.inf, LABELS), "not finite"),
        ((BOXES[:, [2, 3, 0, 1]], SCORES, LABELS), "x1 and y0 <= y1,"),
        ((BOXES, SCORES, LABELS - 5), "a box of class -3"),
        (
            (BOXES, SCORES, ["dog", "cat"]),
            "labels as whole numbers",
        ),
        ({**KEYED, "labels": ["dog", "cat"]}, "labels as whole numbers"),
    ],
)
def test_what_is_no_box_becomes_an_error_row(one: Any, message: str) -> None:
    """A model of boxes that gives something else for one image: the others keep theirs."""

    def detect(images: list[ImageU8]) -> Any:
        return [one if image[0, 0, 0] == 7 else (BOXES, SCORES, LABELS) for image in images]

    model = as_model("mine", detect)
    outputs, (good, bad) = evaluate_images(model, [GREY, np.full_like(GREY, 7)], False)
    assert (outputs.boxes, good) == ([EXPECTED], None)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(bad)


@pytest.mark.slow
def test_ten_thousand_boxes_and_wrong_counts() -> None:
    model = as_model("mine", each(np.tile(ROWS, (5000, 1))))
    assert len(model([GREY]).boxes[0]) == 10_000  # type: ignore[index]
    alone = as_model("mine", lambda images: [ROWS])
    outputs, errors = evaluate_images(alone, [GREY, GREY], False)
    assert errors == [None, None]  # it answers one image at a time, and is then asked so
    assert outputs.boxes == [EXPECTED, EXPECTED]


def test_a_function_that_fails_on_grey_says_so_when_it_is_tried() -> None:
    def detect(images: list[ImageU8]) -> Any:
        raise ValueError("no grey, please")

    _, (error,) = evaluate_images(as_model("mine", detect), [GREY], False)
    assert "no grey, please" in str(error)


def test_a_result_with_a_part_too_many_is_refused_as_that_of_a_detector() -> None:
    with pytest.raises(SoritesError, match="boxes, scores, labels.* 4 parts"):
        as_model("mine", each((BOXES, SCORES, LABELS, np.zeros((2, 50, 80)))))
