"""Products of features with the last layer in float32 that do not depend on the batch.

BLAS sums in an order that may depend on the shape of a product and on the position of a row in it, so that
the last digits of an image's logits would depend on the images beside it. There are two ways around it that
are faster than a product in float64. The first is blocks of one shape: OpenBLAS then treats all positions
alike on processors with AVX-512, and on those with AVX2 in all but a few columns, which are left unused. The
second is a sparse product, which sums in the order of the features.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from sorites.scorers.base import ROWS_PER_BLOCK, Narrow

# Rows whose products are compared at all positions of a block. One row shows about 95 % of the columns that
# differ, because roundings may agree by chance.
TRIALS = 6
# Up to this share of unused columns, blocks are faster than the other ways.
MAX_UNEVEN_SHARE = 0.25
# Widths that are tried; each moves the uneven columns.
ATTEMPTS = 3


class BlockProduct:
    """Products of rows with one matrix; the result of a row does not depend on the rows beside it."""

    def __init__(self, columns: Narrow, total: int, even: NDArray[np.intp]) -> None:
        """Spread the columns of the matrix, D x C, over the ``even`` columns of ``total``."""
        self._matrix = np.zeros((len(columns), total), np.float32)
        self._matrix[:, even] = columns
        self._even = even
        self.all_even = len(even) == total
        self._all = np.empty((ROWS_PER_BLOCK, total), np.float32)
        # New memory for each block would cost as much as a tenth of the product.
        self._chosen = self._all if self.all_even else np.empty((ROWS_PER_BLOCK, len(even)), np.float32)

    def __call__(self, rows: Narrow) -> Narrow:
        """Return ``rows`` times the matrix; the next call uses the memory of the result again.

        Args:
            rows: At most ``ROWS_PER_BLOCK`` rows, N x D.
        """
        spread = self.spread_product(rows)
        if self.all_even:
            return spread
        return np.take(spread, self._even, axis=1, out=self._chosen[: len(rows)], mode="clip")

    def spread_product(self, rows: Narrow) -> Narrow:
        """Return the same with the unused columns, which are 0."""
        block = rows
        if len(rows) < ROWS_PER_BLOCK:
            block = np.zeros((ROWS_PER_BLOCK, rows.shape[1]), np.float32)
            block[: len(rows)] = rows
        return np.matmul(block, self._matrix, out=self._all)[: len(rows)]

    def spread(self, values: Narrow, rest: float) -> Narrow:
        """Return one value for each column of ``spread_product``: ``rest`` for the unused ones."""
        spread = np.full(self._all.shape[1], rest, np.float32)
        spread[self._even] = values
        return spread


def block_product(columns: Narrow) -> BlockProduct | None:
    """Return the product by a matrix in blocks, or None where too many of its columns would be uneven.

    Args:
        columns: The matrix, D x C.
    """
    width, classes = columns.shape
    total = classes
    for _ in range(ATTEMPTS):
        uneven = uneven_columns(width, total)
        even = np.setdiff1d(np.arange(total), uneven)[:classes]
        if len(even) == classes:
            return BlockProduct(columns, total, even)
        total = classes + len(uneven)
        if total > (1 + MAX_UNEVEN_SHARE) * classes:
            return None
    return None


@functools.cache
def uneven_columns(width: int, classes: int) -> NDArray[np.intp]:
    """Return the columns in which a row has other bits at some positions of a block than at others.

    This is a property of the library and the processor for a shape, and not of the values. It is tried once
    per process.

    Args:
        width: The number of features.
        classes: The number of classes.
    """
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((width, classes), np.float32)
    differ = np.zeros(classes, np.bool_)
    for row in rng.standard_normal((TRIALS, width), np.float32):
        product = np.repeat(row[None], ROWS_PER_BLOCK, axis=0) @ columns
        differ |= (product != product[0]).any(axis=0)
    return np.flatnonzero(differ)


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
