"""Products that do not depend on the batch: equal bits at all positions, and equal numbers in both ways."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from sorites import core
from sorites.core import Outputs
from sorites.scorers import knn, shaping
from sorites.scorers.base import ROWS_PER_BLOCK, Narrow
from sorites.scorers.products import BlockProduct, block_product, sparse_product

# Scores a batch as a whole, in another order and one by one, and compares the bits.
SCRIPT = """
import numpy as np
from sorites import core
from sorites.core import Outputs

rng = np.random.default_rng(0)
weight, bias = rng.standard_normal((101, 768), np.float32), rng.standard_normal(101, np.float32)
rows = np.maximum(rng.standard_normal((300, 768), np.float32), 0)
whole = Outputs(rows @ weight.T + bias, rows)
order = rng.permutation(300)
for spec in ("react", "vra", "ash_b", "nnguide"):
    scorer = core.scorer(spec).fit([(whole, np.arange(300) % 101)], (weight, bias))
    scores = scorer(whole)
    moved = scorer(Outputs(whole.logits[order], rows[order]))
    single = np.concatenate([scorer(Outputs(whole.logits[i : i + 1], rows[i : i + 1])) for i in range(20)])
    assert (moved == scores[order]).all() and (single == scores[:20]).all(), spec
"""


def drawn(rows: int, width: int = 96, share: float = 1.0) -> Narrow:
    rng = np.random.default_rng(rows)
    return rng.standard_normal((rows, width), np.float32) * (rng.random((rows, width)) < share)


def blocks_of(columns: Narrow) -> BlockProduct:
    """Return the product in blocks, with two columns unused where BLAS would need none."""
    found = block_product(columns)
    return found or BlockProduct(columns, columns.shape[1] + 2, np.arange(columns.shape[1]) + 1)


@pytest.mark.parametrize("count", [0, 1, 17, ROWS_PER_BLOCK])
def test_products_equal_those_in_float64(count: int) -> None:
    columns = drawn(96, 11)
    spread = BlockProduct(columns, 14, np.array([0, 1, 2, 3, 5, 6, 7, 8, 10, 12, 13]))
    rows = drawn(count, share=0.1)
    wanted = rows.astype(np.float64) @ columns.astype(np.float64)
    for found in (blocks_of(columns)(rows), spread(rows), sparse_product(rows, columns)):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("width", "classes"), [(96, 11), (512, 1000), (384, 129)])
def test_a_row_has_the_same_bits_at_all_positions_of_a_block(width: int, classes: int) -> None:
    product = block_product(drawn(width, classes))
    if product is None:
        pytest.skip("BLAS treats no columns of this processor alike; the other ways are tested")
    rows = drawn(ROWS_PER_BLOCK, width)
    order = np.random.default_rng(1).permutation(ROWS_PER_BLOCK)
    whole = product(rows).copy()
    assert (product(rows[order]) == whole[order]).all()
    assert (product(rows[7:8]) == whole[7:8]).all()


@pytest.mark.parametrize(
    "spec", ["react", "react(percentile=70)", "vra", "vra(low=30, high=60)", "nnguide(k=7)"]
)
def test_scores_are_the_same_with_and_without_blocks(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias = drawn(11, 96), drawn(1, 11)[0]
    rows = drawn(300) + np.float32(0.5)
    outputs = Outputs(rows @ weight.T + bias, rows)
    scorer = core.scorer(spec).fit([(outputs, np.arange(300) % 11)], (weight, bias))
    scores = []
    for product in (blocks_of, lambda columns: None):
        for module in (shaping, knn):
            monkeypatch.setattr(module, "block_product", product)
        scores.append(scorer(outputs))
        single = [scorer(Outputs(outputs.logits[i : i + 1], rows[i : i + 1])) for i in range(3)]
        if product(weight.T) is None or block_product(weight.T):
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
