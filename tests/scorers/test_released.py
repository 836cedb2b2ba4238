"""Scorers without a peer library, against their released formulas written out image by image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from sklearn.decomposition import PCA

from sorites import core
from sorites.core import Outputs
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.scorers.zero_shot import read_words

if TYPE_CHECKING:
    from tests.scorers.conftest import Case


def ours(spec: str, case: Case) -> np.ndarray:
    return np.asarray(core.scorer(spec).fit(case.batches(), case.head)(case.outputs()))


def energy(case: Case, rows: np.ndarray) -> np.ndarray:
    return -logsumexp(rows.astype(np.float64) @ case.weight.T.astype(np.float64) + case.bias, axis=1)


@pytest.mark.parametrize(("low", "high"), [(10, 90), (60, 95)])
def test_vra_clips_large_and_drops_small_features(case: Case, low: int, high: int) -> None:
    least, most = np.percentile(case.train, [low, high])
    shaped = np.where(case.asked < least, 0, np.minimum(case.asked, most))
    found = ours(f"vra(low={low}, high={high})", case)
    np.testing.assert_allclose(found, energy(case, shaped), rtol=1e-5, atol=1e-5)


def test_ras_replaces_features_by_rank(case: Case) -> None:
    profile = np.sort(case.train.astype(np.float64), axis=1).mean(axis=0)
    shaped = np.stack([profile[np.argsort(np.argsort(row, kind="stable"))] for row in case.asked])
    np.testing.assert_allclose(ours("ras", case), energy(case, shaped), rtol=1e-5, atol=1e-5)


def test_residual_is_what_the_largest_eigenvectors_leave(case: Case) -> None:
    origin = -np.linalg.pinv(case.weight.astype(np.float64)) @ case.bias
    moved = case.train - origin
    values, vectors = np.linalg.eig(moved.T @ moved / len(moved))
    outside = vectors.real[:, np.argsort(-values.real)[12:]]
    expected = np.linalg.norm((case.asked - origin) @ outside, axis=1)
    np.testing.assert_allclose(ours("residual(dim=12)", case), expected, rtol=1e-5)


def test_core_sums_standardised_energy_and_cosine(case: Case) -> None:
    weight = case.weight.astype(np.float64)
    unit = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    means = np.stack([case.train[case.labels == c].mean(axis=0, dtype=np.float64) for c in range(6)])

    def residual(row: np.ndarray, label: int) -> np.ndarray:
        return np.asarray(row - (row @ unit[label]) * unit[label])

    def parts(rows: np.ndarray) -> np.ndarray:
        found = []
        for row in rows.astype(np.float64):
            logits = weight @ row + case.bias
            label = int(logits.argmax())
            one, other = residual(row, label), residual(means[label], label)
            cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
            found.append([logsumexp(logits), cosine])
        return np.array(found)

    known = parts(case.train)
    expected = -((parts(case.asked) - known.mean(axis=0)) / known.std(axis=0)).sum(axis=1)
    np.testing.assert_allclose(ours("core", case), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("power", [1, 4])
def test_relation_sums_similar_images_with_similar_predictions(case: Case, power: int) -> None:
    def parts(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = case.outputs(rows).logits
        assert logits is not None
        unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        return unit, softmax(logits.astype(np.float64), axis=1)

    (asked, likely), (train, known) = parts(case.asked), parts(case.train)
    relations = np.maximum(asked @ train.T, 0) * (likely @ known.T)
    expected = -np.where(relations > 0.03, relations**power, 0).sum(axis=1)
    np.testing.assert_allclose(ours(f"relation(power={power})", case), expected, rtol=1e-4)


@pytest.mark.parametrize("dim", [64, 1000])
def test_corp_is_the_error_of_pca_on_random_fourier_features(case: Case, dim: int) -> None:
    """600 training images: more than 64 dimensions, fewer than 1000."""
    rng = rng_for(0, "corp", f"{case.train.shape[1]} {dim}")
    frequencies = np.sqrt(6) * rng.standard_normal((case.train.shape[1], dim))
    phases = 2 * np.pi * rng.random(dim)

    def mapped(rows: np.ndarray) -> np.ndarray:
        unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        return np.asarray(np.sqrt(2 / dim) * np.cos(unit @ frequencies + phases))

    train, asked = mapped(case.train), mapped(case.asked)
    shares = np.cumsum(PCA(svd_solver="full").fit(train).explained_variance_ratio_)
    pca = PCA(int(np.argmax(shares >= 0.5)) + 1, svd_solver="full").fit(train)
    expected = np.linalg.norm(asked - pca.inverse_transform(pca.transform(asked)), axis=1)
    np.testing.assert_allclose(ours(f"corp(dim={dim})", case), expected, rtol=1e-5)


def test_openmax_is_the_released_formula_with_the_likeliest_weibull(case: Case) -> None:
    train = case.outputs(case.train).logits
    asked = case.outputs().logits
    assert train is not None
    assert asked is not None
    train, asked, alpha = train.astype(np.float64), asked.astype(np.float64), 3
    right = train.argmax(axis=1) == case.labels
    means, fits = [], []
    for label in range(6):
        own = train[right & (case.labels == label)]
        means.append(own.mean(axis=0))
        tail = np.sort(np.linalg.norm(own - means[-1], axis=1))[-20:]
        moved = tail - tail.min() + 10_000
        ratio = moved / moved.max()

        def slope(shape: float, ratio: np.ndarray = ratio) -> float:
            powers = ratio**shape
            return float((powers * np.log(ratio)).sum() / powers.sum() - 1 / shape - np.log(ratio).mean())

        shape = brentq(slope, 1.0, 1e7, xtol=1e-9)
        fits.append((tail.min(), shape, moved.max() * (ratio**shape).mean() ** (1 / shape)))
    expected = []
    for logits in asked:
        weights = np.zeros(6)
        for rank, label in enumerate(np.argsort(-logits)[:alpha]):
            least, shape, scale = fits[label]
            distance = np.linalg.norm(logits - means[label]) - least + 10_000
            weights[label] = (alpha - rank) / alpha * (1 - np.exp(-((distance / scale) ** shape)))
        revised = logits * (1 - weights)
        expected.append((logits * weights).sum() - logsumexp(revised))
    np.testing.assert_allclose(ours("openmax", case), expected, rtol=1e-4, atol=1e-4)


def test_openmax_counts_classes_without_correct_images_as_far(case: Case) -> None:
    held = case.labels != 2
    scorer = core.scorer("openmax").fit([(case.outputs(case.train[held]), case.labels[held])], None)
    assert scorer.fitted["classes"] == 5
    assert np.isfinite(scorer(case.outputs())).all()
    with pytest.raises(SoritesError, match="classifies correctly"):
        core.scorer("openmax").fit([(case.outputs(case.train), [-1] * len(case.train))])


def test_klm_finds_the_nearest_typical_prediction_of_many_flat_ones() -> None:
    """Flat predictions take the dense product, sure ones the sparse one; both find the exact minimum."""
    rng = np.random.default_rng(0)
    for scale in (0.5, 12.0):
        train, asked = (rng.normal(0, scale, (n, 90)).astype(np.float32) for n in (800, 40))
        scorer = core.scorer("klm").fit([(Outputs(train), None)])
        known, likely = softmax(train.astype(np.float64), axis=1), softmax(asked.astype(np.float64), axis=1)
        typical = [known[train.argmax(axis=1) == c].mean(axis=0) for c in np.unique(train.argmax(axis=1))]
        expected = [min((p * np.log(p / np.maximum(d, 1e-300))).sum() for d in typical) for p in likely]
        np.testing.assert_allclose(scorer(Outputs(asked)), expected, rtol=1e-5, atol=1e-6)


def embedder(case: Case) -> Any:
    def texts(names: Sequence[str]) -> np.ndarray:
        return np.stack([rng_for(0, name, "word").normal(size=case.weight.shape[1]) for name in names])

    return texts


@pytest.mark.parametrize("groups", [1, 8])
def test_neglabel_is_the_released_formula(case: Case, tmp_path: Path, groups: int) -> None:
    words = [f"word {i}" for i in range(400)]
    (tmp_path / "words.txt").write_text("\n".join([*words, "", words[0]]), encoding="utf-8")
    scorer: Any = core.scorer(
        "neglabel", words=str(tmp_path / "words.txt"), keep=0.2, groups=groups, temperature=0.1
    )
    scorer.embed = embedder(case)
    scorer.fit((), case.head)
    unit = case.weight / np.linalg.norm(case.weight.astype(np.float64), axis=1, keepdims=True)
    embedded = embedder(case)(words)
    embedded /= np.linalg.norm(embedded, axis=1, keepdims=True)
    similar = np.quantile(embedded @ unit.T, 0.95, axis=1)
    assert set(scorer.chosen) == {words[i] for i in np.argsort(similar)[:80]}
    negative = np.stack([embedded[words.index(word)] for word in scorer.chosen])
    rows = case.asked / np.linalg.norm(case.asked.astype(np.float64), axis=1, keepdims=True)
    positive, others = rows @ unit.T / 0.1, (rows @ negative.T / 0.1).reshape(len(rows), groups, -1)
    shares = [
        softmax(np.concatenate([positive, others[:, g]], axis=1), axis=1)[:, :6].sum(1) for g in range(groups)
    ]
    expected = np.mean(shares, axis=0)
    np.testing.assert_allclose(
        1 / (1 + np.exp(scorer(case.outputs()).astype(np.float64))), expected, rtol=2e-4
    )


def test_the_content_of_a_word_list_is_part_of_the_version(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    spec = f"neglabel(words='{path}')"
    before = core.scorer_version(spec)
    assert core.scorer_version("neglabel") == core.scorer("neglabel").version != before
    path.write_text("one\nthree\n", encoding="utf-8")
    assert core.scorer_version(spec) != before


def test_the_built_in_words_are_different() -> None:
    words = read_words("")
    assert len(words) == len({word.lower() for word in words}) > 500
    with pytest.raises(SoritesError, match="zero-shot"):
        core.scorer("neglabel").fit((), (np.eye(3, dtype=np.float32), np.zeros(3, np.float32)))
