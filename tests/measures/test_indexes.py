"""faiss indexes against exact search: distances are never too small, and the reported recall is right."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.measures.neighbours import Index, exact_kth_distance


@pytest.fixture(scope="module")
def features() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, 32)).astype(np.float32)

    def drawn(n: int) -> np.ndarray:
        return (centres[rng.integers(0, 50, n)] + rng.standard_normal((n, 32)) * 0.7).astype(np.float32)

    return drawn(8000), drawn(300)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_index_finds_nearly_all_and_says_how_much(
    kind: str, features: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    bank, queries = features
    index = Index.build(bank, kind, 10)  # type: ignore[arg-type]
    found, exact = index.kth_distance(queries), exact_kth_distance(queries, bank, 10)
    assert (found >= exact - 1e-5).all()
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, bank)]
    true = np.sort(unit[0] @ unit[1].T, axis=1)[:, ::-1][:, :10]
    share = np.mean(
        [
            np.isin(np.round(a, 4), np.round(b, 4)).mean()
            for a, b in zip(true, index.search(queries), strict=True)
        ]
    )
    recall, count = index.recall(queries, bank)
    assert count == 300
    assert recall == pytest.approx(share, abs=0.02)
    assert recall > 0.8
    again = tmp_path / "index"
    again.write_bytes(index.packed())
    read = Index.read(again, kind, 10)  # type: ignore[arg-type]
    assert read.options == index.options
    np.testing.assert_array_equal(read.kth_distance(queries), found)
    assert index.name(queries, bank).startswith(f"{kind}(")
    assert f"recall {recall:.3f} of the 10 nearest on 300 queries" in index.name(queries, bank)


def test_too_few_in_distribution_rows_and_a_missing_library_are_errors(
    features: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SoritesError, match="k=.* the 5 in-distribution"):
        Index.build(features[0][:5], "ivf", 10)
    broken = tmp_path / "index"
    broken.write_bytes(b"IxF2 no index")
    with pytest.raises(SoritesError, match="not a faiss index"):
        Index.read(broken, "ivf", 10)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(SoritesError, match=r"pip install 'sorites\[faiss\]'"):
        Index.build(features[0], "ivf", 10)
