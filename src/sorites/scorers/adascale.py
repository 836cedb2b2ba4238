"""AdaSCALE: features or logits scaled by an adaptive share of the largest features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, ImageU8, Model, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.scorers import layers
from sorites.scorers.base import (
    Bank,
    Fitted,
    Score,
    Wide,
    above,
    features_of,
    logits_of,
    logsumexp,
    percent,
    scored,
    share,
)

# Training images whose activation shifts are stored, as in the released configuration.
SHIFT_IMAGES = 5000
# Step of a changed pixel in units of the standard deviation that the model's input is divided by.
STEP = 0.5
# Standard deviation of ImageNet's channels, for models that do not say what they divide by.
STD = (0.229, 0.224, 0.225)
# Exponents are limited to this value; float32 overflows at 88.
MAX_EXPONENT = 60.0


class _AdaScale(Fitted, ABC):
    """Base class of the two variants.

    The ``pixels`` with the smallest gradients of the top logit (a share of all) are changed by half a
    standard deviation. Features of OOD images shift more: Q is the sum of the changed activations of the
    ``first`` percent largest features plus ``weight`` times the shift of the ``second`` percent largest. Its
    rank among training images sets the percentile between ``low`` and ``high``: the larger Q, the lower.
    """

    needs: ClassVar = frozenset({"training", "features", "head", "gradient"})
    _sorted: Wide | None = None

    def __init__(
        self,
        low: float = 75,
        high: float = 85,
        first: float = 5,
        second: float = 1,
        weight: float = 10,
        pixels: float = 0.05,
    ) -> None:
        name = type(self).__name__
        self.low, self.high = percent(low, name), percent(high, name)
        if low > high:
            raise SoritesError(f"scorer {name}: expected low up to high, got {low!r} and {high!r}")
        self.first, self.second = percent(first, name), percent(second, name)
        self.weight = above(weight, -1e-300, name, "weight")
        self.pixels = share(pixels, name, "pixels")

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> Score:
        steps = 255 * STEP * np.array(model.input.get("std") or STD, np.float32)
        return layers.rows(
            model, images, framed, self.name, lambda module, batch: self._changed(module, batch, steps)
        )

    def _changed(self, module: Any, batch: Any, steps: NDArray[np.float32]) -> NDArray[Any]:
        """Return the features of images whose least important pixels are changed, N x D."""
        import torch

        scale = torch.from_numpy(steps).to(batch)
        with torch.enable_grad():
            batch.requires_grad_()
            logits = layers.logits(module, batch)
            (gradient,) = torch.autograd.grad(logits.max(dim=1).values.sum(), batch)
        with torch.no_grad():
            # The gradient with respect to the normalised input.
            normalised = (gradient * scale).flatten(1)
            count = int(normalised.shape[1] * self.pixels)
            least = normalised.abs().topk(count, dim=1, largest=False, sorted=False).indices
            mask = torch.zeros_like(normalised).scatter_(1, least, 1.0).reshape(batch.shape)
            outputs = module(batch.detach() + gradient.sign() * mask * scale)
            if not (isinstance(outputs, tuple | list) and len(outputs) > 1):
                raise SoritesError(
                    f"scorer {self.name}: expected a module that returns logits and features, got one output"
                )
            return np.asarray(outputs[1].flatten(1).cpu().numpy())

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        self._bias = self.head(head)[1]
        bank = Bank(SHIFT_IMAGES)
        for batch in self.training(batches):
            changed = self.inside(batch.outputs)
            shifts = self._shifts(batch.features.astype(np.float64), changed.astype(np.float64))
            bank.add(shifts[:, None].astype(np.float32), batch.ids)
            self._width = batch.features.shape[1]
        self._sorted = np.sort(bank.rows()[:, 0].astype(np.float64))
        self.fitted["bank"] = len(self._sorted)
        return self

    def _shifts(self, rows: Wide, changed: Wide) -> Wide:
        """Return Q of each image."""
        order = np.argsort(-rows, axis=1, kind="stable")
        first, second = (
            order[:, : max(1, int(rows.shape[1] * part / 100))] for part in (self.first, self.second)
        )
        kept = np.maximum(np.take_along_axis(changed, first, axis=1), 0).sum(axis=1)
        moved = np.take_along_axis(np.abs(rows - changed), second, axis=1).sum(axis=1)
        return np.asarray(kept + self.weight * moved)

    def _ratio(self, rows: Wide, changed: Wide) -> Wide:
        """Return the sum of the positive features divided by that of the largest, N x 1; 1 where it is 0."""
        known = self.ready(self._sorted)
        shifts = self._shifts(rows, changed).astype(np.float32).astype(np.float64)
        below = np.searchsorted(known, shifts, side="right") / len(known)
        percentiles = self.low + (1 - below) * (self.high - self.low)
        width = rows.shape[1]
        counts = np.maximum(width - np.rint(width * percentiles / 100).astype(np.int64), 1)
        sums = np.cumsum(-np.sort(-np.maximum(rows, 0), axis=1), axis=1)
        largest = np.take_along_axis(sums, counts[:, None] - 1, axis=1)
        return np.asarray(np.divide(sums[:, -1:], largest, out=np.ones_like(largest), where=largest > 0))

    @abstractmethod
    def scaled(self, logits: Wide, ratio: Wide) -> Wide:
        """Return the logits after scaling."""

    def __call__(self, outputs: Outputs) -> Score:
        self.ready(self._sorted)
        return scored(
            lambda rows, logits, changed: -logsumexp(self.scaled(logits, self._ratio(rows, changed))),
            features_of(outputs, self.name, self._width),
            logits_of(outputs, self.name, len(self._bias)),
            self.inside(outputs),
        )


@add_scorer
class adascale_a(_AdaScale):
    """Energy with features scaled by exp(sum of all / sum of the largest), whose share depends on the image
    (Regmi 2025).

    The percentile of ``scale`` is chosen per image between ``low`` and ``high``, by how much its features
    change when its ``pixels`` with the smallest gradients are changed.
    """

    def scaled(self, logits: Wide, ratio: Wide) -> Wide:
        return np.asarray(np.exp(np.minimum(ratio, MAX_EXPONENT)) * (logits - self._bias) + self._bias)


@add_scorer
class adascale_l(_AdaScale):
    """Energy with logits scaled by the square of sum of all / sum of the largest features, whose share
    depends on the image (Regmi 2025).

    The share is chosen as in ``adascale_a``.
    """

    def scaled(self, logits: Wide, ratio: Wide) -> Wide:
        return np.asarray(logits * ratio**2)
