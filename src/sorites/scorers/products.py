"""Products of features with the last layer in float32 that do not depend on the batch.

BLAS sums in an order that may depend on the shape of a product and on the position of a row in it, so that
the last digits of an image's logits would depend on the images beside it. There are two ways around it that
are faster than a product in float64: blocks of one shape, where BLAS treats all positions alike (OpenBLAS
does on processors with AVX-512, and not on those with AVX2 only), and a sparse product, which sums in the
order of the features.
"""

from __future__ import annotations

import functools

import numpy as np

from sorites.scorers.base import ROWS_PER_BLOCK, Narrow

# Rows whose products are compared at all positions of a block.
TRIALS = 3


@functools.cache
def positions_are_alike(width: int, classes: int) -> bool:
    """Return whether a row gives the same bits at all positions of a block of ``ROWS_PER_BLOCK`` rows.

    This is a property of the library and the processor for a shape, and not of the values. It is tried once
    per process.

    Args:
        width: The number of features.
        classes: The number of classes.
    """
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((width, classes), np.float32)
    for row in rng.standard_normal((TRIALS, width), np.float32):
        product = np.repeat(row[None], ROWS_PER_BLOCK, axis=0) @ columns
        if (product != product[0]).any():
            return False
    return True


def block_product(rows: Narrow, columns: Narrow, out: Narrow | None = None) -> Narrow:
    """Return ``rows @ columns``, computed as a block of ``ROWS_PER_BLOCK`` rows.

    Use it where ``positions_are_alike``: the result of a row then depends on nothing else.

    Args:
        rows: At most ``ROWS_PER_BLOCK`` rows, N x D.
        columns: The weights, D x C.
        out: Memory for a block of results, which a loop over blocks can use again.
    """
    block = rows
    if len(rows) < ROWS_PER_BLOCK:
        block = np.zeros((ROWS_PER_BLOCK, rows.shape[1]), np.float32)
        block[: len(rows)] = rows
    return np.matmul(block, columns, out=out)[: len(rows)]


def sparse_product(rows: Narrow, columns: Narrow) -> Narrow:
    """Return ``rows @ columns`` of rows with few nonzero features, summed in the order of the features."""
    from scipy import sparse

    used = rows != 0
    nonzero = np.flatnonzero(used)
    counts = np.count_nonzero(used, axis=1)
    places = nonzero - np.repeat(np.arange(len(rows)) * rows.shape[1], counts)
    ends = np.concatenate([[0], np.cumsum(counts)])
    sparse_rows = sparse.csr_array(
        (rows.ravel()[nonzero], places.astype(np.int32), ends.astype(np.int32)), shape=rows.shape
    )
    return np.asarray(sparse_rows @ columns)
