"""OOD score from Gram matrices: do the channels correlate as they do for training images of the
predicted class?
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sorites.core import Batches, Head, ImageU8, Model, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.scorers import layers as _network
from sorites.scorers.base import Fitted, Score, Wide, logits_of, whole

# The least and the largest of each of K values (2 x K), by predicted class.
Bounds = dict[int, NDArray[np.float64]]
# At most this many training images are held out to learn the usual deviation of each layer.
MOST_HELD_OUT = 1000


@add_scorer
class gram(Fitted):
    """Deviation of the row sums of Gram matrices (powers 1 to ``powers``) from their range on
    training images of the predicted class, summed over layers, each divided by its usual
    deviation (Sastry and Oore 2020).

    Layers are the ends of the network's stages, or ``layers`` by name. The usual deviation is that
    of a ``held`` share of the training images, chosen by a hash of their ids, from the range of
    the others; the range itself is that of all of them.
    """

    needs: ClassVar = frozenset({"training", "layers"})

    def __init__(self, powers: int = 5, layers: Sequence[str] = (), held: float = 0.1) -> None:
        self.powers, self.layers = whole(powers, "gram", "powers"), tuple(layers)
        if not 0 <= held < 1:
            raise SoritesError(f"scorer gram: wanted held as a share of 0 or more and below 1, got {held!r}")
        self.held = held
        self._bounds: Bounds | None = None
        self._sizes: tuple[int, ...] = ()

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> Score:
        """Return rows that start with their layout: the number of layers, the channels of each;
        then come the values by layer.
        """
        return _network.rows(model, images, framed, self.name, self._one)

    def _one(self, module: Any, batch: Any) -> Wide:
        import torch

        seen: dict[_network.Spot, Any] = {}
        given = _network.named(module, self.layers, self.name) if self.layers else None
        spots = given or _network.stages(module, batch, self.name)
        with (
            torch.no_grad(),
            _network.tapped(module, spots, lambda spot, maps: seen.update({spot: maps.clone()})),
        ):
            module(batch)
        maps = [seen[spot][0].double().flatten(1).cpu().numpy() for spot in spots]
        values = [row_sums(m, power) for m in maps for power in range(1, self.powers + 1)]
        return np.concatenate([[len(maps)], [len(m) for m in maps], *values])

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        every, others, held, count = Bounds(), Bounds(), list[HeldOut](), 0
        self._bounds, self._sizes = None, ()
        for outputs, _ in batches:
            best, rows = self._read(outputs)
            count += len(rows)
            for i, (label, row) in enumerate(zip(best, rows, strict=True)):
                widen(every, label, row)
                self._hold_out(
                    held,
                    others,
                    HeldOut(-_hash(outputs.ids[i] if outputs.ids else row.tobytes()), label, row),
                )
        if not count:
            raise SoritesError(f"scorer {self.name}: wanted training images to be fitted on, got none")
        self.fitted = {"images": count, "classes": len(every), "held": len(held)}
        self._usual = self._deviation(held, others)
        self._bounds = every
        return self

    def _hold_out(self, held: list[HeldOut], others: Bounds, one: HeldOut) -> None:
        """Put an image into ``held`` if its hash is small; when there are too many, the one with
        the largest hash leaves again.

        The result does not depend on the order of the images.
        """
        if -one.key < self.held * 2**64:
            heapq.heappush(held, one)
            if len(held) <= MOST_HELD_OUT:
                return
            one = heapq.heappop(held)
        widen(others, one.label, one.row)

    def _deviation(self, held: Sequence[HeldOut], others: Bounds) -> Wide:
        """Return the mean deviation of each layer on the held-out images; 1 where none deviated
        or none was held out.
        """
        strayed = [
            self._by_layer(stray(one.row, others[one.label])) for one in sorted(held) if one.label in others
        ]
        mean = np.mean(strayed, axis=0) if strayed else np.ones(len(self._sizes))
        return np.where(mean > 0, mean, 1.0)

    def _read(self, outputs: Outputs) -> tuple[list[int], Wide]:
        """Return the predicted classes and the values; their layout must be that of the images of
        the fit.
        """
        rows = self.inside(outputs).astype(np.float64)
        best = logits_of(outputs, self.name).argmax(axis=1).tolist()
        if not len(rows):
            return best, rows
        layers = int(rows[0, 0])
        sizes = tuple(int(n) * self.powers for n in rows[0, 1 : 1 + layers])
        if sizes != (self._sizes or sizes) or sum(sizes) + layers + 1 != rows.shape[1]:
            raise SoritesError(
                f"scorer {self.name}: wanted layers of {self._sizes} values, as it was fitted, got {sizes}"
            )
        if self._bounds is None:
            self._sizes = sizes
        return best, rows[:, 1 + layers :]

    def _by_layer(self, strayed: Wide) -> Wide:
        return np.add.reduceat(strayed, np.cumsum((0, *self._sizes[:-1])))

    def __call__(self, outputs: Outputs) -> Score:
        bounds = self.ready(self._bounds)
        best, rows = self._read(outputs)
        ood = sorted(set(best) - bounds.keys())
        if ood:
            raise SoritesError(f"scorer {self.name}: no training image was predicted as class {ood[0]}")
        scores = [
            (self._by_layer(stray(row, bounds[c])) / self._usual).sum()
            for c, row in zip(best, rows, strict=True)
        ]
        return np.array(scores, np.float32)


@dataclass(order=True)
class HeldOut:
    """A training image that is held out, ordered so that the largest hash comes first."""

    key: int
    label: int
    row: Wide = field(compare=False)


def _hash(name: object) -> int:
    return int.from_bytes(digest("held", name, size=8), "little")


def row_sums(maps: Wide, power: int) -> Wide:
    """Return the signed ``power``-th roots of the row sums of the Gram matrix of ``maps ** power`` (C x HW).

    A row sum is the product of a channel with the sum of all channels, so the C x C matrix is not needed.
    """
    raised = maps**power
    sums = raised @ raised.sum(axis=0)
    return np.asarray(np.sign(sums) * np.abs(sums) ** (1 / power))


def widen(bounds: Bounds, label: int, row: Wide) -> None:
    """Extend the range of a class so that it includes the row."""
    range_ = bounds.get(label)
    bounds[label] = (
        np.stack([row, row])
        if range_ is None
        else np.stack([np.minimum(range_[0], row), np.maximum(range_[1], row)])
    )


def stray(row: Wide, bounds: Wide) -> Wide:
    """Return how far each value is outside its range, relative to the end it passed."""
    least, most = bounds
    below = np.maximum(least - row, 0) / np.abs(least + 1e-6)
    return np.asarray(below + np.maximum(row - most, 0) / np.abs(most + 1e-6))
