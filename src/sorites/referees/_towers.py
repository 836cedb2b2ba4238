"""A small image-text model: a projection of frozen picture features, and a tower of words, taught to meet.

Teaching is as for CLIP (Radford et al. 2021), with two choices for each picture: its caption among those of the same look, which
teaches the class, and among those of the same class, which teaches the look. Among all captions at once, a class would learn
which looks it was never seen in. Running it is three matrix products in NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.torch_tools import one_thread

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]
WIDE, HIDDEN = 64, 128
"""Dimensions of the shared space, and of a word."""
DROPPED = 0.2
"""Of a picture's features, the share left out at random in teaching."""


def words(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+", sentence.lower())


@dataclass(frozen=True, eq=False)
class Towers:
    """``vocabulary`` in the order of the rows of ``embedding``; pictures are standardised by ``mean`` and ``scale``."""

    vocabulary: tuple[str, ...]
    mean: Array
    scale: Array
    projection: Array
    embedding: Array
    inner: Array
    bias: Array
    outer: Array

    def images(self, features: Array) -> Array:
        """N x D features of the frozen model to N x 64 of length 1."""
        return _unit(((features - self.mean) / self.scale) @ self.projection)

    def texts(self, sentences: Sequence[str]) -> Array:
        """N x 64 of length 1. Words it was never told say nothing; a sentence of none that it knows is an error."""
        bags = np.stack([self._bag(sentence) for sentence in sentences]) if sentences else np.empty((0, HIDDEN), np.float32)
        return _unit(np.maximum(bags @ self.inner + self.bias, np.float32(0)) @ self.outer)

    def _bag(self, sentence: str) -> Array:
        place = {word: i for i, word in enumerate(self.vocabulary)}
        known = [place[word] for word in words(sentence) if word in place]
        if not known:
            raise SoritesError(f"this referee knows no word of {sentence!r}; it knows {', '.join(self.vocabulary)}")
        return np.asarray(self.embedding[known].mean(axis=0), np.float32)

    def tensors(self) -> dict[str, Array]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "vocabulary"}


def _unit(rows: NDArray[np.floating]) -> Array:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


@dataclass(frozen=True)
class Lesson:
    """Pictures' features (N x D), the caption of each (its place in ``captions``), and the ways to say each caption."""

    features: Array
    caption: NDArray[np.int64]
    captions: Sequence[Sequence[str]] = field(repr=False)
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]]
    """The class and the look of each caption."""
    epochs: int = 15
    seed: int = 0


def teach(lesson: Lesson) -> Towers:
    """Learn both towers; one thread and one seed, so that the same lesson gives the same towers."""
    with one_thread():
        return _teach(lesson)


def _teach(lesson: Lesson) -> Towers:
    import torch
    from torch.nn import functional as F

    vocabulary = sorted({word for ways in lesson.captions for way in ways for word in words(way)})
    mean, scale = lesson.features.mean(axis=0), lesson.features.std(axis=0) + np.float32(1e-3)
    pictures = torch.from_numpy((lesson.features - mean) / scale)
    caption, bags = torch.from_numpy(lesson.caption), _bags(lesson.captions, vocabulary)
    rivals = [torch.from_numpy(kind[:, None] == kind[None]) for kind in lesson.kinds]
    draw = torch.Generator().manual_seed(lesson.seed)

    def start(*shape: int) -> torch.Tensor:
        return torch.empty(*shape).normal_(0, shape[0] ** -0.5, generator=draw).requires_grad_()

    projection, embedding, inner, outer = (
        start(*shape) for shape in ((pictures.shape[1], WIDE), (len(vocabulary), HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, WIDE))
    )
    bias, warmth = torch.zeros(HIDDEN, requires_grad=True), torch.tensor(2.3, requires_grad=True)
    learnt = [projection, embedding, inner, outer, bias, warmth]
    steps = torch.optim.AdamW(learnt, lr=3e-3, weight_decay=0.05)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(steps, lesson.epochs)
    for _ in range(lesson.epochs):
        for some in torch.split(torch.randperm(len(pictures), generator=draw), 256):
            way = torch.randint(bags.shape[1], (len(bags),), generator=draw)
            bag = bags[torch.arange(len(bags)), way] @ embedding
            texts = F.normalize(torch.relu(bag @ inner + bias) @ outer)
            kept = torch.rand(len(some), pictures.shape[1], generator=draw) > DROPPED
            seen = F.normalize((pictures[some] * kept) @ projection)
            similar, right = warmth.exp() * seen @ texts.T, caption[some]
            losses = [F.cross_entropy(similar.masked_fill(~rival[right], -torch.inf), right) for rival in rivals]
            loss = torch.stack(losses).sum()
            steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
        slower.step()
    parts = [part.detach().numpy() for part in (projection, embedding, inner, bias, outer)]
    return Towers(tuple(vocabulary), mean, scale, *parts)


def _bags(captions: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> torch.Tensor:
    """Captions x ways x vocabulary: the share of each word in a sentence."""
    import torch

    place = {word: i for i, word in enumerate(vocabulary)}
    bags = torch.zeros(len(captions), max(map(len, captions)), len(vocabulary))
    for i, ways in enumerate(captions):
        for j in range(bags.shape[1]):
            said = words(ways[j % len(ways)])
            for word in said:
                bags[i, j, place[word]] += 1 / len(said)
    return bags
