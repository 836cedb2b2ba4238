"""Strangeness read off the logits alone. Larger is stranger; each picture's score depends on that picture only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.core import Outputs, add_scorer
from sorites.errors import SoritesError


@add_scorer
def msp(outputs: Outputs, temperature: float = 1.0) -> NDArray[np.float32]:
    """Low maximum softmax probability (Hendrycks and Gimpel 2017), as the log-odds against the top class.

    The same order as 1 - p, but log((1 - p) / p) does not run into 1.0 in float32 where a model is sure.
    """
    logits = _logits(outputs, "msp", temperature)
    ordered = np.partition(logits, -1, axis=1)
    return (_logsumexp(ordered[:, :-1]) - ordered[:, -1]).astype(np.float32)


@add_scorer
def max_logit(outputs: Outputs) -> NDArray[np.float32]:
    """Minus the largest logit (Hendrycks et al. 2022)."""
    return np.asarray(-_logits(outputs, "max_logit").max(axis=1), np.float32)


@add_scorer
def energy(outputs: Outputs, temperature: float = 1.0) -> NDArray[np.float32]:
    """Free energy, -T log sum exp(logit / T) (Liu et al. 2020)."""
    return (-temperature * _logsumexp(_logits(outputs, "energy", temperature))).astype(np.float32)


def _logits(outputs: Outputs, who: str, temperature: float = 1.0) -> NDArray[np.float64]:
    """The logits over the temperature, in float64: sums of a thousand exponentials then keep float32's last digit."""
    if outputs.logits is None or outputs.logits.ndim != 2 or outputs.logits.shape[1] < 2:
        came = "none" if outputs.logits is None else f"shape {outputs.logits.shape}"
        raise SoritesError(f"scorer {who}: wanted logits of two or more classes, got {came}")
    if not temperature > 0:
        raise SoritesError(f"scorer {who}: wanted a temperature above 0, got {temperature}")
    return outputs.logits.astype(np.float64) / temperature


def _logsumexp(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    top = logits.max(axis=1)
    return np.asarray(top + np.log(np.exp(logits - top[:, None]).sum(axis=1)))
