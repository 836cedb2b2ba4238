"""Products that do not depend on the batch: equal bits at all positions, and equal numbers in both ways."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from sorites import core
from sorites.core import Outputs
from sorites.scorers import products, shaping
from sorites.scorers.base import ROWS_PER_BLOCK, Narrow
from sorites.scorers.products import block_product, positions_are_alike, sparse_product

# Scores a batch as a whole, in another order and one by one, and compares the bits.
SCRIPT = """
import numpy as np
from sorites import core
from sorites.core import Outputs
from sorites.scorers.products import positions_are_alike

rng = np.random.default_rng(0)
weight, bias = rng.standard_normal((101, 768), np.float32), rng.standard_normal(101, np.float32)
rows = np.maximum(rng.standard_normal((300, 768), np.float32), 0)
whole = Outputs(rows @ weight.T + bias, rows)
order = rng.permutation(300)
for spec in ("react", "vra", "ash_b"):
    scorer = core.scorer(spec).fit([(whole, np.arange(300) % 101)], (weight, bias))
    scores = scorer(whole)
    moved = scorer(Outputs(whole.logits[order], rows[order]))
    single = np.concatenate([scorer(Outputs(whole.logits[i : i + 1], rows[i : i + 1])) for i in range(20)])
    assert (moved == scores[order]).all() and (single == scores[:20]).all(), spec
"""


def drawn(rows: int, width: int = 96, share: float = 1.0) -> Narrow:
    rng = np.random.default_rng(rows)
    return rng.standard_normal((rows, width), np.float32) * (rng.random((rows, width)) < share)


@pytest.mark.parametrize("count", [0, 1, 17, ROWS_PER_BLOCK])
def test_products_equal_those_in_float64(count: int) -> None:
    columns = drawn(96, 11)
    for product, share in ((block_product, 1.0), (sparse_product, 0.1)):
        rows = drawn(count, share=share)
        wanted = rows.astype(np.float64) @ columns.astype(np.float64)
        np.testing.assert_allclose(product(rows, columns), wanted, rtol=0, atol=2e-5)


def test_positions_are_alike_only_if_all_rows_of_a_block_have_the_bits_of_any_other_order() -> None:
    columns, rows = drawn(96, 11), drawn(ROWS_PER_BLOCK)
    order = np.random.default_rng(1).permutation(ROWS_PER_BLOCK)
    moved = block_product(rows[order], columns) == block_product(rows, columns)[order]
    assert moved.all() or not positions_are_alike(96, 11)


@pytest.mark.parametrize("spec", ["react", "react(percentile=70)", "vra", "vra(low=30, high=60)"])
def test_scores_are_the_same_whether_or_not_positions_are_alike(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, bias = drawn(11, 96), drawn(1, 11)[0]
    rows = drawn(300) + np.float32(0.5)
    outputs = Outputs(rows @ weight.T + bias, rows)
    scorer = core.scorer(spec).fit([(outputs, np.arange(300) % 11)], (weight, bias))
    scores = []
    for alike in (True, False):
        monkeypatch.setattr(shaping, "positions_are_alike", lambda width, classes, alike=alike: alike)
        scores.append(scorer(outputs))
        single = [scorer(Outputs(outputs.logits[i : i + 1], rows[i : i + 1])) for i in range(3)]
        if not alike or products.positions_are_alike(96, 11):
            assert (np.concatenate(single) == scores[-1][:3]).all()
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["Haswell", "SkylakeX", "Prescott"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_bits_of_a_score_do_not_depend_on_the_batch_on_other_processors(
    processor: str, threads: str
) -> None:
    """OpenBLAS is told to use the code of another processor; other libraries ignore it."""
    env = {**os.environ, "OPENBLAS_CORETYPE": processor, "OPENBLAS_NUM_THREADS": threads}
    subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], env=env, check=True)
