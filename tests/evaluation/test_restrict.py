"""A suite that asks about some of a model's classes: every number is about those, scorers' too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score
from torch import nn

import sorites
from sorites.core import Generated, Sample, Source
from sorites.evaluation import plan
from sorites.evaluation.rescore import score
from sorites.models.preprocess import Input
from sorites.models.torch_module import linear_head, torch_model, with_features
from sorites.suites.suite import parse

CLASSES = [f"c{i}" for i in range(12)]
SOME = ["c7", "c2", "c11", "c4"]


@pytest.fixture
def model() -> sorites.Model:
    torch.manual_seed(0)
    body, last = (
        nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(8, 12),
    )
    network = nn.ModuleDict({"body": body, "last": last})

    def parts(network: nn.ModuleDict, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = network["body"](x)
        return network["last"](features), features

    return torch_model("m", with_features(network, parts), Input(size=(32, 32)), CLASSES, linear_head(last))


@pytest.fixture
def source() -> Source:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (32, 32, 3), np.uint8) // (1 + i % 4) for i in range(16)]
    return Source(
        "mine", [Sample(f"p{i:02d}", Generated(lambda p=p: p), i % 4) for i, p in enumerate(images)]
    )  # type: ignore[misc]


def test_scores_and_confidence_are_about_the_classes_asked_for(
    model: sorites.Model, source: Source, tmp_path: Path
) -> None:
    """Energy and MSP of the 200-of-1000 protocol (ImageNet-ES): logits and head cut down before
    anything is computed.
    """
    suite = parse(
        {"name": "s", "labels": SOME, "scorers": ["energy", "msp", "gradnorm", "odin(eps=0.0)"]}, "test"
    )
    table = sorites.run(
        suite, source=source, models=[model], out=tmp_path / "run", keep_features=True
    ).collect()
    whole = model([sample.load() for sample in source.samples])
    assert whole.logits is not None
    logits = whole.logits[:, [CLASSES.index(name) for name in SOME]].astype(np.float64)
    ids = [sample.id for sample in source.samples]

    def scores(name: str) -> np.ndarray:
        rows = (
            table.filter(pl.col("scorer") == name)
            if name != "label"
            else table.filter(pl.col("output") == "label")
        )
        by_id = dict(rows.select("sample_id", "conf" if name == "label" else "score").iter_rows())
        return np.array([by_id[i] for i in ids])

    np.testing.assert_allclose(scores("label"), softmax(logits, axis=1).max(axis=1), atol=1e-6)
    np.testing.assert_allclose(scores("energy"), -logsumexp(logits, axis=1), atol=1e-5)
    top = softmax(logits, axis=1).max(axis=1)
    np.testing.assert_allclose(np.argsort(scores("msp")), np.argsort(-top))
    hot = softmax(logits / 1000, axis=1).max(axis=1)
    np.testing.assert_allclose(np.argsort(scores("odin(eps=0.0)")), np.argsort(-hot))
    added = score(tmp_path / "run", ["max_logit"])
    assert added == {"max_logit": 16}
    later = sorites.read(tmp_path / "run").filter(pl.col("scorer") == "max_logit").collect()
    found = dict(later.select("sample_id", "score").iter_rows())
    np.testing.assert_allclose([found[i] for i in ids], -logits.max(axis=1), atol=1e-5)


def test_the_head_still_makes_the_logits(model: sorites.Model, source: Source) -> None:
    made = plan.make(parse({"name": "s", "labels": SOME, "models": ["m"]}, "t"), source, {"m": model})
    cut = made.models["m"]
    outputs = cut([sample.load() for sample in source.samples])
    assert outputs.logits is not None
    assert outputs.features is not None
    assert cut.head is not None
    assert (made.restricted, cut.labels, outputs.logits.shape) == (("m",), tuple(SOME), (16, 4))
    np.testing.assert_allclose(outputs.features @ cut.head[0].T + cut.head[1], outputs.logits, atol=1e-5)


def test_a_model_that_knows_just_these_is_left_alone(model: sorites.Model, source: Source) -> None:
    suite = parse({"name": "s", "labels": [*CLASSES, "more"], "models": ["m"]}, "t")
    assert plan.make(suite, source, {"m": model}).models["m"] is model


def test_right_wrong_and_score_of_imagenet_es_tables_7_to_17_and_figure_8_are_about_200_of_1000(
    model: sorites.Model, source: Source, tmp_path: Path
) -> None:
    """The released evaluation keeps the columns of the classes asked for: verdict and score by
    those, AUROC by sklearn.
    """
    suite = parse({"name": "s", "labels": SOME, "scorers": ["max_logit"]}, "test")
    table = sorites.run(suite, source=source, models=[model], out=tmp_path / "run").collect()
    whole = model([sample.load() for sample in source.samples])
    assert whole.logits is not None
    logits = whole.logits[:, [CLASSES.index(name) for name in SOME]].astype(np.float64)
    ground_truth = np.array([sample.label for sample in source.samples])
    wrong = logits.argmax(axis=1) != ground_truth
    assert 0 < wrong.sum() < len(wrong)
    found = sorites.metrics.auroc(table, framework="model-specific")["value"].item()
    assert found == pytest.approx(roc_auc_score(wrong, -logits.max(axis=1)))
    mixed = roc_auc_score(wrong, -whole.logits.max(axis=1))
    assert found != pytest.approx(mixed), "a score over all classes is another number"
