"""OOD score from Gram matrices: channel correlations compared with those of training images."""

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
from sorites.scorers import layers as layer_tools
from sorites.scorers.base import Fitted, Score, Wide, logits_of, whole

# The minimum and maximum of each of K values (2 x K), by predicted class.
Bounds = dict[int, NDArray[np.float64]]
# The maximum number of training images held out to estimate the typical deviation of each layer.
MAX_HELD_OUT = 1000


@add_scorer
class gram(Fitted):
    """Deviation of Gram matrices from their range on training images of the predicted class (Sastry and Oore
    2020).

    The deviations of the row sums of the Gram matrices of powers 1 to ``powers`` are summed over layers,
    each layer divided by its typical deviation. Layers are the ends of the network's stages, or ``layers``
    by name. The typical deviation is that of a ``held`` share of the training images, chosen by a hash of
    their ids, from the range of the other training images. The range itself includes all training images.
    """

    needs: ClassVar = frozenset({"training", "layers"})

    def __init__(self, powers: int = 5, layers: Sequence[str] = (), held: float = 0.1) -> None:
        self.powers, self.layers = whole(powers, "gram", "powers"), tuple(layers)
        if not 0 <= held < 1:
            raise SoritesError(f"scorer gram: expected held in [0, 1), got {held!r}")
        self.held = held
        self._bounds: Bounds | None = None
        self._sizes: tuple[int, ...] = ()

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> Score:
        """Return one row per image: the number of layers, the number of channels of each layer, then the
        values by layer.
        """
        return layer_tools.rows(model, images, framed, self.name, self._read_images)

    def _read_images(self, module: Any, batch: Any) -> Wide:
        import torch

        maps_by_spot: dict[layer_tools.Spot, Any] = {}
        named_spots = layer_tools.named(module, self.layers, self.name) if self.layers else None
        spots = named_spots or layer_tools.stages(module, batch, self.name)
        with (
            torch.no_grad(),
            layer_tools.tapped(module, spots, lambda spot, maps: maps_by_spot.update({spot: maps.clone()})),
        ):
            module(batch)
        layers = [maps_by_spot[spot].flatten(2).cpu().double().numpy() for spot in spots]
        return np.stack([self._row(maps) for maps in zip(*layers, strict=True)])

    def _row(self, maps: Sequence[Wide]) -> Wide:
        """Return the values of one image from its maps (C x HW) by layer."""
        values = [row_sums(m, power) for m in maps for power in range(1, self.powers + 1)]
        return np.concatenate([[len(maps)], [len(m) for m in maps], *values])

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        bounds, others, held, count = Bounds(), Bounds(), list[HeldOut](), 0
        self._bounds, self._sizes = None, ()
        for outputs, _ in batches:
            predicted, rows = self._read(outputs)
            count += len(rows)
            for i, (label, row) in enumerate(zip(predicted, rows, strict=True)):
                widen(bounds, label, row)
                self._hold_out(
                    held,
                    others,
                    HeldOut(-_hash(outputs.ids[i] if outputs.ids else row.tobytes()), label, row),
                )
        if not count:
            raise SoritesError(f"scorer {self.name}: expected training images to be fitted on, got none")
        self.fitted = {"images": count, "classes": len(bounds), "held": len(held)}
        self._usual = self._deviation(held, others)
        self._bounds = bounds
        return self

    def _hold_out(self, held: list[HeldOut], others: Bounds, image: HeldOut) -> None:
        """Hold an image out if its hash is small enough, and otherwise extend the range of the others.

        With more than ``MAX_HELD_OUT`` images, the one with the largest hash joins the others. The result
        does not depend on the order of the images.
        """
        if -image.key < self.held * 2**64:
            heapq.heappush(held, image)
            if len(held) <= MAX_HELD_OUT:
                return
            image = heapq.heappop(held)
        widen(others, image.label, image.row)

    def _deviation(self, held: Sequence[HeldOut], others: Bounds) -> Wide:
        """Return the mean deviation of each layer on the held-out images; 1 where it is 0 or unknown."""
        deviations = [
            self._by_layer(stray(image.row, others[image.label]))
            for image in sorted(held)
            if image.label in others
        ]
        mean = np.mean(deviations, axis=0) if deviations else np.ones(len(self._sizes))
        return np.where(mean > 0, mean, 1.0)

    def _read(self, outputs: Outputs) -> tuple[list[int], Wide]:
        """Return the predicted classes and the values by layer; raise an error if the layout differs from
        that
        of the fit.
        """
        rows = self.inside(outputs).astype(np.float64)
        predicted = logits_of(outputs, self.name).argmax(axis=1).tolist()
        if not len(rows):
            return predicted, rows
        layers = int(rows[0, 0])
        sizes = tuple(int(n) * self.powers for n in rows[0, 1 : 1 + layers])
        if sizes != (self._sizes or sizes) or sum(sizes) + layers + 1 != rows.shape[1]:
            raise SoritesError(
                f"scorer {self.name}: expected layers of {self._sizes} values, as in fit, got {sizes}"
            )
        if self._bounds is None:
            self._sizes = sizes
        return predicted, rows[:, 1 + layers :]

    def _by_layer(self, deviations: Wide) -> Wide:
        return np.add.reduceat(deviations, np.cumsum((0, *self._sizes[:-1])))

    def __call__(self, outputs: Outputs) -> Score:
        bounds = self.ready(self._bounds)
        predicted, rows = self._read(outputs)
        unseen = sorted(set(predicted) - bounds.keys())
        if unseen:
            raise SoritesError(f"scorer {self.name}: no training image was predicted as class {unseen[0]}")
        scores = [
            (self._by_layer(stray(row, bounds[c])) / self._usual).sum()
            for c, row in zip(predicted, rows, strict=True)
        ]
        return np.array(scores, np.float32)


@dataclass(order=True)
class HeldOut:
    """A held-out training image, ordered so that the largest hash comes first."""

    key: int  # the negated hash: heapq pops the smallest key first
    label: int
    row: Wide = field(compare=False)


def _hash(name: object) -> int:
    return int.from_bytes(digest("held", name, size=8), "little")


def row_sums(maps: Wide, power: int) -> Wide:
    """Return the signed ``power``-th roots of the row sums of the Gram matrix of ``maps ** power`` (C x HW).

    A row sum is the product of a channel with the sum of all channels, so the C x C matrix is never
    computed.
    """
    powers = maps**power
    sums = powers @ powers.sum(axis=0)
    return np.asarray(np.sign(sums) * np.abs(sums) ** (1 / power))


def widen(bounds: Bounds, label: int, row: Wide) -> None:
    """Extend the range of a class to include a row."""
    current = bounds.get(label)
    bounds[label] = (
        np.stack([row, row])
        if current is None
        else np.stack([np.minimum(current[0], row), np.maximum(current[1], row)])
    )


def stray(row: Wide, bounds: Wide) -> Wide:
    """Return how far each value is outside its range, relative to the exceeded bound."""
    minimum, maximum = bounds
    below = np.maximum(minimum - row, 0) / np.abs(minimum + 1e-6)
    return np.asarray(below + np.maximum(row - maximum, 0) / np.abs(maximum + 1e-6))
