"""The k-th neighbour against SciPy, scikit-learn and faiss, and invalid inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from sorites.core.errors import SoritesError
from sorites.measures import neighbours
from sorites.measures.neighbours import directions, exact_kth_distance


def points(n: int, d: int = 16, seed: int = 0) -> np.ndarray:
    return (
        np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)
        * np.linspace(0.1, 9, n, dtype=np.float32)[:, None]
    )


def by_tree(queries: np.ndarray, bank: np.ndarray, k: int) -> np.ndarray:
    """Euclidean distance of directions e is cosine distance e * e / 2."""
    tree = cKDTree(directions(bank, "").astype(np.float64))
    far = tree.query(directions(queries, "").astype(np.float64), [k])[0][:, 0]
    return far**2 / 2


@pytest.mark.parametrize("k", [1, 10, 50])
@pytest.mark.parametrize(("n", "size"), [(3, 60), (1500, 9000), (1024, 4096)])
def test_equals_a_tree(k: int, n: int, size: int) -> None:
    queries, bank = points(n, seed=1), points(size, seed=2)
    np.testing.assert_allclose(exact_kth_distance(queries, bank, k), by_tree(queries, bank, k), atol=2e-6)


def test_equals_scikit_learn_on_a_bank_sorted_the_worst_way() -> None:
    from sklearn.neighbors import NearestNeighbors

    queries, bank = points(40), points(12_000, seed=3)
    nearest_last = bank[np.argsort(directions(bank, "") @ directions(queries, "")[0])]
    far, _ = NearestNeighbors(n_neighbors=10, metric="cosine").fit(nearest_last).kneighbors(queries)
    np.testing.assert_allclose(exact_kth_distance(queries, nearest_last), far[:, -1], atol=2e-6)


@given(st.integers(0, 50), st.integers(1, 7), st.integers(8, 40))
def test_blocks_and_order_do_not_matter(seed: int, cut: int, size: int) -> None:
    queries, bank = points(5, seed=seed), points(size, seed=seed + 1)
    whole = exact_kth_distance(queries, bank, 4)
    parts = (bank[i : i + cut] for i in range(0, size, cut))
    np.testing.assert_allclose(exact_kth_distance(queries, parts, 4), whole, atol=1e-6)
    np.testing.assert_allclose(exact_kth_distance(queries, bank[::-1].copy(), 4), whole, atol=1e-6)


def test_ties_and_equal_rows_count_each() -> None:
    bank = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    np.testing.assert_allclose(exact_kth_distance(np.eye(3), bank, 4), 0, atol=1e-7)
    np.testing.assert_allclose(exact_kth_distance(np.eye(3), bank, 5), 1, atol=1e-7)
    np.testing.assert_allclose(exact_kth_distance(-np.eye(3), bank, 12), 2, atol=1e-7)


def test_a_mapped_file_larger_than_memory_is_searched_by_faiss(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    np.save(tmp_path / "bank.npy", points(9000, seed=2))
    bank, queries = np.load(tmp_path / "bank.npy", mmap_mode="r"), points(300, seed=1)
    assert not neighbours._too_large(bank)
    plain = exact_kth_distance(queries, bank)
    monkeypatch.setattr(neighbours, "_too_large", lambda bank: True)
    np.testing.assert_allclose(exact_kth_distance(queries, bank), plain, atol=1e-6)
    np.testing.assert_allclose(plain, by_tree(queries, np.asarray(bank), 10), atol=2e-6)


def broken(value: float) -> np.ndarray:
    rows = points(30)
    rows[7] = value
    return rows


@pytest.mark.parametrize(
    ("queries", "bank", "k", "says"),
    [
        (points(3), points(9), 10, "k=10 exceeds the 9 "),
        (points(3), points(0), 1, "the 0 in-distribution"),
        (points(3, 16), points(30, 8), 10, "16 dimensions .* 8: not the same"),
        (broken(np.nan), points(30), 10, "queries: row 7 is not finite"),
        (broken(np.inf), points(30), 10, "queries: row 7 is not finite"),
        (points(3), broken(np.nan), 10, "in-distribution images: row 7"),
        (points(3), broken(0), 10, "images: row 7 is zero"),
        (points(3)[0], points(30), 10, "expected an array of N x D"),
        (points(3), points(30), 0, "k must be at least 1"),
    ],
)
def test_invalid_queries_or_bank_raise(queries: np.ndarray, bank: np.ndarray, k: int, says: str) -> None:
    with pytest.raises(SoritesError, match=says):
        exact_kth_distance(queries, bank, k)


def test_no_queries_give_no_distances() -> None:
    assert exact_kth_distance(points(0), points(30)).shape == (0,)
