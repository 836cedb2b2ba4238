"""The trend of numbers over lenses."""

from __future__ import annotations

import numpy as np


def fit(quality: np.ndarray, value: np.ndarray) -> np.polynomial.Polynomial | None:
    """Fit the third-order least-squares curve; None with fewer than five lenses of different quality."""
    if len(np.unique(quality)) < 5:
        return None
    return np.polynomial.Polynomial.fit(quality, value, 3)
