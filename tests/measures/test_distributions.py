"""Distances between sets of features, against SciPy's matrix root and a public package."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm

from sorites.core.compute.torch_tools import import_torchvision
from sorites.core.errors import SoritesError
from sorites.measures.distributions import frechet, kernel, with_interval


def _sets(n: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(width, width))
    return rng.normal(size=(n, width)), rng.normal(0.3, 1.0, size=(n + 7, width)) @ mixed / np.sqrt(width)


@pytest.mark.parametrize(("n", "width"), [(90, 12), (400, 40), (30, 24)])
def test_frechet_is_the_formula_with_scipys_matrix_root(n: int, width: int) -> None:
    a, b = _sets(n, width)
    one, other = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = np.real(sqrtm(one @ other))
    assert frechet(a, b) == pytest.approx(
        ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(one + other - 2 * root), abs=1e-6
    )


def test_both_ways_to_the_trace_agree() -> None:
    a, b = _sets(30, 24)
    wide = [np.concatenate([part, np.zeros((len(part), 40))], axis=1) for part in (a, b)]
    assert frechet(*wide) == pytest.approx(frechet(a, b), abs=1e-9)


def test_a_public_package_agrees_on_both_distances() -> None:
    import_torchvision()
    from torch_fidelity.metric_fid import fid_statistics_to_metric
    from torch_fidelity.metric_kid import mmd2

    a, b = _sets(60, 12)
    b = b[: len(a)]
    stats = [{"mu": part.mean(0), "sigma": np.cov(part, rowvar=False)} for part in (a, b)]
    theirs = fid_statistics_to_metric(stats[0], stats[1], False)["frechet_inception_distance"]
    assert frechet(a, b) == pytest.approx(theirs, abs=1e-6)
    k = [(x @ y.T / 12 + 1) ** 3 for x, y in ((a, a), (a, b), (b, b))]
    assert kernel(a, b) == pytest.approx(mmd2(*k), abs=1e-9)


def test_two_normal_distributions_have_the_distance_that_is_known() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, (20_000, 2)), rng.normal(0, 1, (20_000, 2)) * 2 + 3
    assert frechet(a, b) == pytest.approx(2 * 9 + 2 * 1, rel=0.03)
    assert abs(kernel(a[:500], a[500:1000])) < 0.1 * kernel(a[:500], b[:500])


def test_the_interval_is_as_wide_as_fresh_draws_differ() -> None:
    spread = np.std([kernel(*_same(seed)) for seed in range(40)])
    _, low, high = with_interval(kernel, *_same(99))
    assert 0.5 * spread < (high - low) / (2 * 1.96) < 2 * spread


def _same(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(80, 4)), rng.normal(0.4, 1.0, size=(80, 4))


def test_incomparable_feature_sets_raise() -> None:
    with pytest.raises(SoritesError, match="one width, got 3 and 4"):
        frechet(np.zeros((5, 3)), np.zeros((5, 4)))
    with pytest.raises(SoritesError, match="two or more images"):
        kernel(np.zeros((1, 3)), np.zeros((5, 3)))
