"""The head of the judged classifier against scikit-learn's logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sorites.core import model
from sorites.core.errors import SoritesError
from sorites.models.cifar6 import CLASSES, fit_linear_head
from sorites.sources.cifar import CLASSES as TEN
from sorites.sources.cifar import GROUPS


def test_the_head_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    ground_truth = rng.integers(4, size=300)
    features = (rng.standard_normal((4, 10))[ground_truth] + rng.standard_normal((300, 10))).astype(
        np.float32
    ) * 3 + 1
    weight, bias = fit_linear_head(features, ground_truth, 4, shrink=0.01)
    known = (features - features.mean(0)) / features.std(0)
    peer = LogisticRegression(C=1 / (300 * 0.01), tol=1e-8, max_iter=1000).fit(known, ground_truth)
    ours = features @ weight.T + bias
    theirs = known @ peer.coef_.T + peer.intercept_
    np.testing.assert_allclose(
        ours - ours.mean(1, keepdims=True), theirs - theirs.mean(1, keepdims=True), atol=5e-3
    )


def test_its_classes_are_the_in_distribution_ones() -> None:
    assert [name for name in TEN if name not in GROUPS] == list(CLASSES)


@pytest.mark.parametrize("argument", ["5", "many"])
def test_says_how_many_images_it_may_be_fitted_on(argument: str) -> None:
    with pytest.raises(SoritesError, match="from 100 to 30000"):
        model(f"cifar6:{argument}")
