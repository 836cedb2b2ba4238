"""Checks that every scorer makes: rows are finite and as wide as those it was fitted on, and parameters are in range.

Rows are taken a bounded number at a time. Matrix products are taken in float64 and rounded to float32 once, because the order in
which a product sums its terms follows the place of a row in its batch; what goes row by row in a fixed order may be float32. So
a picture's score depends neither on the size of its batch nor on its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, Outputs, Scorer
from sorites.errors import SoritesError

T = TypeVar("T")
Score = NDArray[np.float32]
Wide = NDArray[np.float64]
Narrow = NDArray[np.float32]
Real = TypeVar("Real", np.float32, np.float64)

ROWS = 256
"""This many pictures are scored at a time: 2 MB of float64 for a thousand classes, which stay in the processor's cache."""


@dataclass(frozen=True)
class Seen:
    """One checked batch of training pictures; a label of -1 means no label."""

    features: NDArray[np.float32]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: Sequence[str] | None


class Fitted(Scorer):
    """The base of the built-in scorers that are classes: it checks their input and refuses calls before ``fit``."""

    def ready(self, part: T | None) -> T:
        """Return a fitted part; None means that the scorer was not fitted, which is an error."""
        if part is None:
            raise SoritesError(f"scorer {self.name}: fit it first: .fit(batches of (outputs, labels), head)")
        return part

    def training(self, batches: Batches) -> Iterator[Seen]:
        """Yield the checked batches of training pictures; no pictures at all and a change of width are errors."""
        count, wide = 0, None
        for outputs, labels in batches:
            features = features_of(outputs, self.name, wide)
            if not len(features):
                continue
            count, wide = count + len(features), features.shape[1]
            yield Seen(features, logits_of(outputs, self.name), _labels(labels, len(features), self.name), outputs.ids)
        if not count:
            raise SoritesError(f"scorer {self.name}: wanted training pictures to be fitted on, got none")
        self.fitted = {"pictures": count}

    def inside(self, outputs: Outputs) -> NDArray[np.float32]:
        """Return the N rows that ``look`` read from inside the model."""
        seen = outputs.inside.get(self.name)
        if seen is None:
            raise SoritesError(f"scorer {self.name}: wanted outputs.inside[{self.name!r}], what its look(model, pictures) gives")
        return _finite(seen, self.name, "numbers from inside the model", 1, None)

    def head(self, head: Head | None) -> tuple[Wide, Wide]:
        """Return the weights (C x D) and the bias (C) of the last linear layer in float64."""
        if head is None:
            raise SoritesError(f"scorer {self.name}: wanted the model's last linear layer, head=(weights, bias), got none")
        weight, bias = (np.asarray(part, np.float64) for part in head)
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise SoritesError(f"scorer {self.name}: wanted a head of C x D and C, got {weight.shape} and {bias.shape}")
        return weight, bias


def _labels(labels: Any, count: int, who: str) -> NDArray[np.int64]:
    given = [None] * count if labels is None else list(labels)
    if len(given) != count:
        raise SoritesError(f"scorer {who}: wanted a label for each of {count} training pictures, got {len(given)}")
    return np.array([-1 if label is None else max(int(label), -1) for label in given], np.int64)


def features_of(outputs: Outputs, who: str, wide: int | None = None) -> NDArray[np.float32]:
    """Return the features, checked; ``who`` names the scorer in messages, ``wide`` is the width it was fitted on."""
    return _finite(outputs.features, who, "features", 1, wide)


def logits_of(outputs: Outputs, who: str, wide: int | None = None) -> NDArray[np.float32]:
    """Return the logits of two or more classes, checked as ``features_of`` checks features."""
    return _finite(outputs.logits, who, "logits of two or more classes", 2, wide)


def _finite(rows: NDArray[np.float32] | None, who: str, what: str, least: int, wide: int | None) -> NDArray[np.float32]:
    if rows is None or rows.ndim != 2 or rows.shape[1] < least:
        raise SoritesError(f"scorer {who}: wanted {what}, got {'none' if rows is None else f'shape {rows.shape}'}")
    if wide is not None and rows.shape[1] != wide:
        raise SoritesError(f"scorer {who}: wanted {what} of {wide} columns, as it was fitted, got {rows.shape[1]}")
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise SoritesError(f"scorer {who}: wanted finite {what}, got NaN or infinity in {bad.sum()} of {len(rows)} rows")
    return rows


def scored(rule: Callable[..., NDArray[np.floating]], *parts: NDArray[np.float32], rows: int = ROWS) -> Score:
    """Apply ``rule`` to the rows of the parts in float64, a bounded number at a time."""
    return narrow_scored(lambda *some: rule(*(part.astype(np.float64) for part in some)), *parts, rows=rows)


def narrow_scored(rule: Callable[..., NDArray[np.floating]], *parts: NDArray[np.float32], rows: int = ROWS) -> Score:
    """Apply ``rule`` to the rows of the parts in float32, a bounded number at a time."""
    blocks = ((np.ascontiguousarray(part[i : i + rows], np.float32) for part in parts) for i in range(0, len(parts[0]), rows))
    scores = [rule(*block).astype(np.float32, copy=False) for block in blocks]
    return np.concatenate(scores) if scores else np.empty(0, np.float32)


def logsumexp(logits: NDArray[Real]) -> NDArray[Real]:
    """Return log(sum(exp(logits))) of each row without overflow."""
    top = logits.max(axis=1)
    raised = logits - top[:, None]
    np.exp(raised, out=raised)
    return np.asarray(top + np.log(raised.sum(axis=1)))


def above(value: float, least: float, who: str, what: str) -> float:
    """Return a finite parameter above ``least``; any other value is an error."""
    if not (isinstance(value, int | float) and least < value < float("inf")):
        raise SoritesError(f"scorer {who}: wanted a {what} above {least:g}, got {value!r}")
    return value


def whole(value: int, who: str, what: str) -> int:
    """Return a parameter that is a whole number of 1 or more; any other value is an error."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SoritesError(f"scorer {who}: wanted {what} as a whole number of 1 or more, got {value!r}")
    return value


def percent(value: float, who: str) -> float:
    """Return a percentile of 0 or more and below 100; any other value is an error."""
    if not (isinstance(value, int | float) and 0 <= value < 100):
        raise SoritesError(f"scorer {who}: wanted a percentile of 0 or more and below 100, got {value!r}")
    return value
