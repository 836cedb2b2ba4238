"""Cluster metrics and maps of features against scikit-learn (ImageNet-ES)."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize
from tests.peers import peer

from sorites.analysis.features import (
    distances,
    manifold_map,
    nearest_centroid,
    neighbour_map,
    prepared,
    principal_map,
    silhouette,
)
from sorites.core.errors import MissingExtra, SoritesError


def made(n: int, classes: int, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features around one centre per class, like those after a rectifier: none is negative."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return np.maximum(
        0, rng.normal(0.5, 1, (classes, 24))[labels] + spread * rng.normal(size=(n, 24))
    ), labels * 7 + 3


CASES = [(60, 4, 0.3), (60, 4, 2.0), (40, 25, 1.0)]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("case", CASES)
def test_silhouette_is_scikit_learns(case: tuple[int, int, float], distance: str) -> None:
    features, labels = made(*case)
    found = silhouette(distances(prepared(features, distance), distance), labels)
    assert found is not None
    assert found[0] == pytest.approx(silhouette_score(features, labels, metric=distance), abs=1e-9)


@pytest.mark.parametrize("case", [*CASES, (9, 3, 1.0)])
def test_its_error_is_the_jackknife_over_scikit_learns_silhouettes(case: tuple[int, int, float]) -> None:
    features, labels = made(*case)
    found = silhouette(distances(prepared(features)), labels)
    assert found is not None
    n = len(labels)
    without = [
        silhouette_score(np.delete(features, i, 0), np.delete(labels, i), metric="cosine") for i in range(n)
    ]
    assert found[1] == pytest.approx(
        np.sqrt((n - 1) / n * np.sum((np.array(without) - np.mean(without)) ** 2)), abs=1e-9
    )


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("case", CASES)
def test_nearest_centroid_is_scikit_learns_with_each_image_left_out(
    case: tuple[int, int, float], distance: str
) -> None:
    features, labels = made(*case)
    rows = normalize(features) if distance == "cosine" else features
    right = []
    for i, label in enumerate(labels):
        if (labels == label).sum() > 1:
            fitted = NearestCentroid().fit(np.delete(rows, i, 0), np.delete(labels, i))
            right.append(fitted.predict(rows[i : i + 1])[0] == label)
    assert nearest_centroid(prepared(features, distance), labels) == (
        pytest.approx(np.mean(right)),
        len(right),
    )


def test_features_without_classes_score_at_chance() -> None:
    features, _ = made(200, 1, 1.0)
    found = nearest_centroid(prepared(features), np.arange(200) % 4)
    assert found is not None
    assert found[0] < 0.35


def test_undefined_values_are_none() -> None:
    rows = prepared(np.eye(4))
    assert silhouette(distances(rows), np.zeros(4, int)) is None
    assert silhouette(distances(rows), np.arange(4)) is None
    assert nearest_centroid(rows, np.zeros(4, int)) is None
    assert nearest_centroid(rows, np.arange(4)) is None
    value, error = silhouette(distances(rows), np.array([0, 0, 0, 1])) or (None, 0.0)
    assert value is not None
    assert error is None


def test_zero_features_and_equal_ones_are_numbers() -> None:
    rows = prepared(np.vstack([np.zeros((2, 3)), np.ones((2, 3))]))
    assert np.isfinite(rows).all()
    assert silhouette(np.zeros((4, 4)), np.array([0, 0, 1, 1])) == (0.0, 0.0)


def test_pca_is_scikit_learns_up_to_sign() -> None:
    features, _ = made(50, 5, 0.5)
    points, shares = principal_map(features)
    peer = PCA(2).fit(features)
    theirs = peer.transform(features)
    np.testing.assert_allclose(np.abs(points), np.abs(theirs), atol=1e-9)
    np.testing.assert_allclose(points * np.sign(points[0] * theirs[0]), theirs, atol=1e-9)
    np.testing.assert_allclose(shares, peer.explained_variance_ratio_, atol=1e-12)


def test_a_line_of_features_still_has_two_axes() -> None:
    points, shares = principal_map(np.arange(6.0)[:, None])
    assert points.shape == (6, 2)
    assert shares[0] == 1
    assert not points[:, 1].any()


def test_tsne_keeps_neighbours_and_is_the_same_twice() -> None:
    features, labels = made(60, 3, 0.2)
    first, again = (neighbour_map(prepared(features)) for _ in range(2))
    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(first, again)
    assert silhouette_score(first, labels) > 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of umap-learn and numba
def test_umap_keeps_neighbours_or_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = made(60, 3, 0.2)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "umap", None)
        with pytest.raises(MissingExtra, match="umap"):
            manifold_map(prepared(features))
    with pytest.raises(SoritesError):
        manifold_map(np.eye(4))
    peer("umap")
    first, again = (manifold_map(prepared(features)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert silhouette_score(first, labels) > 0.5


def test_no_map_of_few_points_or_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert neighbour_map(np.eye(4)) is None
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    assert neighbour_map(prepared(made(60, 3, 0.2)[0])) is None


def test_an_unknown_distance_is_named() -> None:
    with pytest.raises(SoritesError, match="Did you mean cosine"):
        prepared(np.eye(3), "cosin")
