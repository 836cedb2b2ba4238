"""Models that return probabilities: their confidence is the probability, for every kind of model."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from tests.models.test_onnx import build

import sorites
from sorites.core import ImageU8, Model, Outputs
from sorites.core.errors import Notice, SoritesError
from sorites.evaluation.estimate import input_words
from sorites.models.onnx import onnx
from sorites.models.preprocess import Input
from sorites.models.python import as_model
from sorites.models.trial import are_probabilities, trial_images
from sorites.suites.suite import Suite

IMAGES = trial_images((16, 16))


def shares(images: list[ImageU8]) -> np.ndarray:
    """Three probabilities per image that depend on its colours."""
    colours = np.stack([image.mean(axis=(0, 1)) for image in images])
    return softmax(colours / 20, axis=1)


class Net(torch.nn.Module):
    """The same as a torch module; its inputs are normalised with mean 0 and std 1/255."""

    sorites = {"size": 16, "mean": [0, 0, 0], "std": [1 / 255] * 3, "crop_pct": 1}  # noqa: RUF012

    def forward(self, x: Any) -> Any:
        return (x.mean((2, 3)) / 20).softmax(dim=1)


MODELS = {
    "function": shares,
    "declared": Model("m", lambda images: Outputs(shares(images)), version="7"),
    "model": Model("m", lambda images: Outputs(shares(images))),
    "features": lambda images: (shares(images), np.ones((len(images), 2))),
    "torch": Net(),
}


@pytest.mark.parametrize("kind", MODELS)
def test_confidence_is_the_probability(kind: str) -> None:
    with pytest.warns(Notice, match="probabilities") as caught:
        model = as_model("m", MODELS[kind])
    assert [(n.message.code, n.message.fields) for n in caught] == [("probabilities", {"model": "m"})]  # type: ignore[union-attr]
    assert model.scale == "probabilities"
    assert model.input["outputs"] == "probabilities"
    for batch in (IMAGES, IMAGES[:1]):
        logits = model(batch).logits
        assert logits is not None
        np.testing.assert_allclose(softmax(logits.astype(np.float64), axis=1), shares(batch), rtol=2e-6)
    assert "probabilities" in input_words(model.input)


def test_gradients_of_a_torch_module_are_those_of_the_logarithm() -> None:
    with pytest.warns(Notice, match="probabilities"):
        model = as_model("m", Net())
    outputs = model.module(torch.from_numpy(np.stack(IMAGES)))
    assert model(IMAGES).logits is not None
    np.testing.assert_allclose(outputs[0].detach().numpy(), model(IMAGES).logits, atol=1e-5)


def test_a_graph_with_softmax_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    build(path, softmax=True)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.warns(Notice, match="probabilities"):
        assert onnx(str(path)).scale == "probabilities"


def test_a_run_has_the_confidence_of_the_model(photos: Path, tmp_path: Path) -> None:
    nine = np.array([0.9, 0.05, 0.03, 0.02])
    with pytest.warns(Notice, match="probabilities"):
        table = sorites.run(
            Suite(name="s"),
            source=f"folder:{photos}",
            models={"sure": lambda images: np.tile(nine, (len(images), 1))},
            labels=["n01440764", "n01443537", "n01484850", "n01491361"],
            shifts=["contrast"],
            out=tmp_path / "run",
        )
    conf = table.collect()["conf"].to_numpy()
    np.testing.assert_allclose(conf, 0.9, rtol=1e-6)


def test_certain_answers_stay_finite() -> None:
    with pytest.warns(Notice, match="probabilities"):
        model = as_model("m", lambda images: np.tile([1.0, 0.0], (len(images), 1)))
    logits = model(IMAGES).logits
    assert logits is not None
    assert np.isfinite(logits).all()
    assert softmax(logits, axis=1)[0, 0] == 1


@pytest.mark.parametrize(
    "rows",
    [
        [[0.4, 0.6], [2.0, -1.0], [0.5, 0.5]],  # sums to one, but not in 0..1
        [[0.4, 0.6], [0.4, 0.6], [0.1, 0.2]],  # two images of three
        [[1.0], [1.0], [1.0]],  # one class
        [[0.2, 0.79], [0.2, 0.79], [0.2, 0.79]],
        [[0.0, 0.0]] * 3,
    ],
)
def test_logits_are_not_taken_for_probabilities(rows: list[list[float]]) -> None:
    assert not are_probabilities(rows)
    answers = np.array(rows)
    by_mean = {round(float(image.mean()), 6): row for image, row in zip(trial_images(), answers, strict=True)}

    def forward(images: list[ImageU8]) -> Any:
        return np.stack([by_mean.get(round(float(image.mean()), 6), answers[-1]) for image in images])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = as_model("m", forward)
    assert model.scale == "logits"
    np.testing.assert_allclose(model(trial_images()).logits, answers, rtol=1e-6)  # type: ignore[arg-type]


def test_half_precision_sums_are_accepted() -> None:
    rng = np.random.default_rng(0)
    assert are_probabilities(softmax(rng.normal(size=(50, 1000)), axis=1).astype(np.float16))


def test_assumed_preprocessing_is_called_assumed(tmp_path: Path) -> None:
    model = onnx(build(tmp_path / "m.onnx", metadata={"mean": "[0.5, 0.5, 0.5]"}))
    assert model.input["assumed"] == ["std", "crop_pct", "filter", "mode"]
    assert "assumed" in input_words(model.input)
    assert "std, crop_pct, filter, mode" in input_words(model.input)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert as_model("m", Net()).input["assumed"] == ["filter", "mode"]
    assert "assumed" not in Input(size=(8, 8)).described


def test_a_mean_of_pixels_in_0_to_255_is_refused_with_the_fix(tmp_path: Path) -> None:
    path = build(tmp_path / "m.onnx")
    Path(f"{path}.json").write_text('{"mean": [123.675, 116.28, 103.53], "std": [58.4, 57.1, 57.4]}')
    with pytest.raises(SoritesError, match="divide mean and std by 255") as caught:
        onnx(path)
    assert "0.485" in str(caught.value)
