"""A model, and the outputs of one of its passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sorites.types.pictures import Box, Picture

Head = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weights C x D and bias C of a model's last linear layer."""


@dataclass
class Outputs:
    """The outputs of one pass of a model over N pictures."""

    logits: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None
    boxes: list[tuple[Box, ...]] | None = None
    inside: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Rows from inside the model for scorers that look there, by the scorer's name: N rows each."""
    ids: Sequence[str] | None = None
    """The samples' ids, where a scorer is fitted: which of them it remembers follows from these and not from their order."""

    def __len__(self) -> int:
        filled = next((x for x in (self.logits, self.features, self.boxes, *self.inside.values()) if x is not None), ())
        return len(filled)

    def __getitem__(self, rows: slice | NDArray[np.integer[Any]]) -> Outputs:
        """The outputs of some of the pictures."""
        places = np.arange(len(self))[rows]

        def listed(things: Sequence[Any] | None) -> Any:
            return None if things is None else [things[i] for i in places]

        def part(array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            return None if array is None else array[rows]

        inside = {key: array[rows] for key, array in self.inside.items()}
        return Outputs(part(self.logits), part(self.features), listed(self.boxes), inside, listed(self.ids))

    @staticmethod
    def join(parts: Sequence[Outputs]) -> Outputs:
        """The pictures of several outputs, one after the other."""

        def joined(arrays: list[Any]) -> Any:
            return None if not arrays or arrays[0] is None else np.concatenate(arrays)

        boxes = [box for part in parts for box in part.boxes or ()] if parts and parts[0].boxes is not None else None
        inside = {key: joined([part.inside[key] for part in parts]) for key in (parts[0].inside if parts else ())}
        return Outputs(joined([part.logits for part in parts]), joined([part.features for part in parts]), boxes, inside)


@dataclass(eq=False)
class Model:
    """Pictures in, outputs out. It owns resize, crop, normalise and device.

    ``prepare(picture, framed)`` brings one picture to the model's input (a framed one is only scaled,
    never cropped); ``forward`` takes a list of those.
    """

    name: str
    forward: Callable[[list[NDArray[Any]]], Outputs]
    prepare: Callable[[Picture, bool], NDArray[Any]] = lambda picture, framed: picture
    labels: tuple[str, ...] | None = None
    """Class ids in the order of the logits; None means the suite's own label space."""
    head: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    """Weights C x D and bias C of the last linear layer."""
    version: str = ""
    """Identifies the weights; a run refuses to continue with others."""
    parameters: int | None = None
    """The number of weights, where it is known."""
    module: Any = None
    """The torch module behind it, for scorers that look inside: N x H x W x 3 in 0..255 to (logits, ...)."""
    cache_version: Callable[[], str] | None = None
    """Returns the hash of the weights by which files made from its features are cached; without it that is ``version``."""
    for_classes: Callable[[Sequence[str]], Model] | None = None
    """Returns the model of a list of class names, where a model has no classes of its own (zero-shot): its logits then come in
    the order of the names. A plan asks it once with the names of the suite's labels."""
    output: Literal["label", "boxes"] = "label"
    """The kind of output: logits over its labels, or boxes, whose labels are places in ``labels``."""
    background: bool = False
    """True where a detector without names may have one class more than the suite, the background: its boxes are left out."""
    one_caller: bool = False
    """True where it takes one caller at a time: other threads wait for their turn."""
    repeats: bool = True
    """False where it was seen to answer the same picture in two ways."""
    input: Mapping[str, Any] = field(default_factory=dict)
    """The work of ``prepare`` and normalising in words: size, mean, std, crop_pct, filter, mode; empty where it is unknown."""

    def cache_key(self) -> str:
        """Return what caches of its features, and referees made from them, are named by."""
        return self.version if self.cache_version is None else self.cache_version()

    def __call__(self, pictures: Sequence[Picture], framed: bool = False) -> Outputs:
        return self.forward([self.prepare(picture, framed) for picture in pictures])
