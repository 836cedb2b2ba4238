"""OOD scores of boxes: rows of scorers for detectors against formulas written apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sorites import metrics
from sorites.core import ArrayRef, Box, Generated, Model, Outputs, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.plugins import SOURCES, add_source
from sorites.evaluation.box_scores import right_boxes, score_boxes
from sorites.evaluation.rescore import score
from sorites.evaluation.run import run
from sorites.models.detectors.crops import crop, with_crops

LABELS = ("person", "car", "dog")
SUITE = 'source = "stamps"\nmodels = ["lite0"]\nlabels = "coco"\nshifts = [{name = "defocus_disk", levels = [1]}]\n'
PERSON, BICYCLE, CAR, DOG = 0, 1, 2, 16


def image_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, (64, 96, 3), dtype=np.uint8)


def sample(number: int, *ground_truth: Box) -> Sample:
    return Sample(f"s{number}", Generated(image_of, (number,)), ground_truth=ground_truth)


def logits_of(image: np.ndarray, boxes: int) -> np.ndarray:
    """Logits that depend on the image, so that a mixed-up order is noticed."""
    rng = np.random.default_rng(int(image.sum()))
    return rng.normal(0, 2, (boxes, len(LABELS))).astype(np.float32)


FOUND = (Box((0, 0, 20, 20), 0, 0.9), Box((30, 30, 60, 60), 1, 0.3), Box((5, 40, 20, 60), 2, 0.1))


def detector(independent: bool = False, exposed: bool = True, features: bool = False) -> Model:
    def forward(images: list[np.ndarray]) -> Outputs:
        logits = [logits_of(image, 3) for image in images]
        return Outputs(
            boxes=[FOUND] * len(images),
            box_logits=logits if exposed else None,
            box_features=[np.abs(rows) for rows in logits] if features else None,
            independent=independent,
        )

    return Model("det", forward, labels=LABELS, output="boxes", version="1")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "boxes.toml"
    path.write_text(SUITE)
    return path


SAMPLES = [
    sample(0, Box((0, 0, 20, 20), PERSON), Box((30, 30, 60, 60), BICYCLE)),
    sample(1, Box((1, 1, 20, 20), PERSON)),
]


def evaluated(suite: Path, model: Model, *scorers: str) -> pl.DataFrame:
    source = Source("made", SAMPLES)
    return run(suite, source=source, models=[model], scorers=scorers, out=suite.parent / "run").collect()


@pytest.mark.parametrize("independent", [False, True])
def test_scores_equal_the_formulas_and_an_image_has_the_greatest(suite: Path, independent: bool) -> None:
    table = evaluated(suite, detector(independent), "energy", "msp", "max_logit")
    rows = table.filter(output="ood", shift="clean")
    assert rows.height == 6
    for row in rows.to_dicts():
        logits = logits_of(image_of(int(row["sample_id"][1:])), 3).astype(np.float64)
        softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        p = 1 / (1 + np.exp(-logits)) if independent else softmax
        expected = {
            "energy": -np.log(np.exp(logits).sum(axis=1)),
            "max_logit": -logits.max(axis=1),
            "msp": np.log((1 - p.max(axis=1)) / p.max(axis=1)),
        }[row["scorer"]]
        np.testing.assert_allclose([box["score"] for box in row["boxes"]], expected, rtol=1e-5, atol=1e-5)
        assert row["score"] == pytest.approx(max(expected[:2]), rel=1e-5)  # the third has a confidence of 0.1
    assert table.filter(output="boxes")["boxes"].explode().struct.field("score").null_count() == 12


def test_known_classes_are_those_of_the_model(suite: Path) -> None:
    table = evaluated(suite, detector(), "msp").filter(shift="clean", output="ood").sort("sample_id")
    assert table["known"].to_list() == [False, True]
    assert [[box["known"] for box in boxes] for boxes in table["ground_truth"]] == [[True, False], [True]]
    value = metrics.auroc(table).row(0, named=True)
    assert (value["id"], value["ood"], value["value"] in (0.0, 1.0)) == (1, 1, True)


def test_without_logits_msp_uses_the_confidence_and_energy_is_refused(suite: Path) -> None:
    rows = evaluated(suite, detector(exposed=False), "msp").filter(output="ood")
    expected = [float(np.log((1 - p) / p)) for p in (0.9, 0.3, 0.1)]
    for boxes in rows["boxes"]:
        assert [box["score"] for box in boxes] == pytest.approx(expected, rel=1e-6)
    assert rows["score"].to_list() == pytest.approx([expected[1]] * 4, rel=1e-6)
    with pytest.raises(SoritesError, match="energy"):
        evaluated(suite, detector(exposed=False), "energy")
    with pytest.raises(SoritesError, match="knn"):
        evaluated(suite, detector(), "knn(k=1)")


def test_an_image_without_confident_boxes_has_no_score() -> None:
    outputs = Outputs(boxes=[(Box((0, 0, 1, 1), 0, 0.2),), ()], box_logits=[np.ones((1, 2)), np.ones((0, 2))])
    found = score_boxes(outputs, False, lambda boxes: [(1.0, None)] * len(boxes))
    assert [(image.image, list(image.boxes)) for image in found] == [
        ((None, None), [1.0]),
        ((None, None), []),
    ]


def test_an_error_of_a_confident_box_is_that_of_the_image() -> None:
    outputs = Outputs(boxes=[FOUND], box_logits=[np.ones((3, 2))])
    (found,) = score_boxes(outputs, False, lambda boxes: [(1.0, None), (None, "broken"), (2.0, None)])
    assert (found.image, list(found.boxes)) == ((None, "broken"), [1.0, None, 2.0])


def test_knn_is_fitted_on_right_boxes_of_training_images(suite: Path) -> None:
    suite.write_text(SUITE + '[fit]\nsource = "made_for_boxes"\n')

    @add_source
    def made_for_boxes(path: str | None, labels: object) -> list[Sample]:
        """Twelve training images."""
        return [sample(number, Box((0, 0, 20, 20), PERSON)) for number in range(100, 112)]

    try:
        table = evaluated(suite, detector(features=True), "knn(k=2)")
    finally:
        del SOURCES._objects["made_for_boxes"]
    bank = np.array([np.abs(logits_of(image_of(n), 3)[0]) for n in range(100, 112)], np.float64)
    bank /= np.linalg.norm(bank, axis=1, keepdims=True)
    for row in table.filter(output="ood", shift="clean").to_dicts():
        features = np.abs(logits_of(image_of(int(row["sample_id"][1:])), 3)).astype(np.float64)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        distances = np.sort(np.linalg.norm(features[:, None] - bank[None], axis=2), axis=1)[:, 1]
        np.testing.assert_allclose([box["score"] for box in row["boxes"]], distances, rtol=1e-4)


def test_right_boxes_take_each_object_once_by_falling_confidence() -> None:
    truth = (Box((0, 0, 10, 10), 1), Box((0, 0, 10, 11), 2))
    boxes = [
        Box((0, 0, 10, 10), 1, 0.5),
        Box((0, 0, 10, 10), 1, 0.9),
        Box((0, 0, 10, 10), 2, 0.2),
        Box((0, 0, 10, 10), 3, 0.9),
    ]
    assert right_boxes(boxes, truth) == [False, True, False, False]
    assert right_boxes(boxes, None) == [True, True, False, True]


def test_scores_cannot_be_added_to_a_run_of_a_detector(suite: Path) -> None:
    evaluated(suite, detector())
    with pytest.raises(SoritesError, match="detector"):
        score(suite.parent / "run", "msp")


def test_crops_give_features_to_confident_boxes() -> None:
    model = with_crops(detector(exposed=False), lambda image: image.mean(axis=(0, 1)), "1", "cropped")
    image = image_of(5)
    (features,) = model([image]).box_features or ()
    assert features.shape == (3, 3)
    assert np.isnan(features[2]).all()
    np.testing.assert_allclose(features[0], image[0:22, 0:22].mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(features[1], image[27:63, 27:63].mean(axis=(0, 1)), rtol=1e-6)
    assert model.version != detector().version


def test_a_crop_has_at_least_a_pixel() -> None:
    image = ArrayRef(image_of(1)).load()
    assert crop(image, Box((96, 64, 96, 64), 0, 0.5)).shape == (1, 1, 3)
    assert crop(image, Box((-5, -5, 200, 200), 0, 0.5)).shape == image.shape
