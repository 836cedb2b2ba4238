"""A small image-text model: a projection of frozen image features and a text tower, trained to agree.

Training is as for CLIP (Radford et al. 2021), with two choices for each image: its caption among
those of the same style, which teaches the class, and among those of the same class, which teaches
the style. Among all captions at once, a class would learn which styles it was never seen in.
Inference is three matrix products in NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.torch_tools import one_thread

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]
# Dimensions of the shared space, and of a word embedding.
WIDE, HIDDEN = 64, 128
# The share of an image's features that is dropped at random in training.
DROPPED = 0.2


def words(sentence: str) -> list[str]:
    """Return the words of a sentence in lower case."""
    return re.findall(r"[a-z]+", sentence.lower())


@dataclass(frozen=True, eq=False)
class Towers:
    """The weights of both towers.

    ``vocabulary`` names the rows of ``embedding``; ``mean`` and ``scale`` standardise features.
    """

    vocabulary: tuple[str, ...]
    mean: Array
    scale: Array
    projection: Array
    embedding: Array
    inner: Array
    bias: Array
    outer: Array

    def images(self, features: Array) -> Array:
        """Map N x D features of the frozen model to N x 64 of length 1."""
        return _unit(((features - self.mean) / self.scale) @ self.projection)

    def texts(self, sentences: Sequence[str]) -> Array:
        """Return N x 64 of length 1.

        Words outside the vocabulary are ignored; a sentence of only such words is an error.
        """
        bags = (
            np.stack([self._bag(sentence) for sentence in sentences])
            if sentences
            else np.empty((0, HIDDEN), np.float32)
        )
        return _unit(np.maximum(bags @ self.inner + self.bias, np.float32(0)) @ self.outer)

    def _bag(self, sentence: str) -> Array:
        place = {word: i for i, word in enumerate(self.vocabulary)}
        rows = [place[word] for word in words(sentence) if word in place]
        if not rows:
            raise SoritesError(
                f"this encoder knows no word of {sentence!r}; it knows {', '.join(self.vocabulary)}"
            )
        return np.asarray(self.embedding[rows].mean(axis=0), np.float32)

    def tensors(self) -> dict[str, Array]:
        """Return every array by its name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "vocabulary"}


def _unit(rows: NDArray[np.floating]) -> Array:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


@dataclass(frozen=True)
class Lesson:
    """The training data: images' features (N x D), the place of each one's caption, and the
    wordings of every caption.
    """

    features: Array
    caption: NDArray[np.int64]
    captions: Sequence[Sequence[str]] = field(repr=False)
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]]
    """The class and the style of each caption."""
    epochs: int = 15
    seed: int = 0


def teach(lesson: Lesson) -> Towers:
    """Train both towers on one thread with one seed, so that the same lesson gives the same towers."""
    with one_thread():
        return _teach(lesson)


def _teach(lesson: Lesson) -> Towers:
    import torch
    from torch.nn import functional as F

    vocabulary = sorted({word for ways in lesson.captions for way in ways for word in words(way)})
    mean, scale = lesson.features.mean(axis=0), lesson.features.std(axis=0) + np.float32(1e-3)
    images = torch.from_numpy((lesson.features - mean) / scale)
    caption, bags = torch.from_numpy(lesson.caption), _bags(lesson.captions, vocabulary)
    rivals = [torch.from_numpy(kind[:, None] == kind[None]) for kind in lesson.kinds]
    draw = torch.Generator().manual_seed(lesson.seed)

    def start(*shape: int) -> torch.Tensor:
        return torch.empty(*shape).normal_(0, shape[0] ** -0.5, generator=draw).requires_grad_()

    projection, embedding, inner, outer = (
        start(*shape)
        for shape in ((images.shape[1], WIDE), (len(vocabulary), HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, WIDE))
    )
    bias, warmth = torch.zeros(HIDDEN, requires_grad=True), torch.tensor(2.3, requires_grad=True)
    learnt = [projection, embedding, inner, outer, bias, warmth]
    steps = torch.optim.AdamW(learnt, lr=3e-3, weight_decay=0.05)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(steps, lesson.epochs)
    for _ in range(lesson.epochs):
        for some in torch.split(torch.randperm(len(images), generator=draw), 256):
            way = torch.randint(bags.shape[1], (len(bags),), generator=draw)
            bag = bags[torch.arange(len(bags)), way] @ embedding
            texts = F.normalize(torch.relu(bag @ inner + bias) @ outer)
            kept = torch.rand(len(some), images.shape[1], generator=draw) > DROPPED
            seen = F.normalize((images[some] * kept) @ projection)
            similar, right = warmth.exp() * seen @ texts.T, caption[some]
            losses = [
                F.cross_entropy(similar.masked_fill(~rival[right], -torch.inf), right) for rival in rivals
            ]
            loss = torch.stack(losses).sum()
            steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
        slower.step()
    parts = [part.detach().numpy() for part in (projection, embedding, inner, bias, outer)]
    return Towers(tuple(vocabulary), mean, scale, *parts)


def _bags(captions: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> torch.Tensor:
    """Return captions x wordings x vocabulary: the share of each word in a sentence."""
    import torch

    place = {word: i for i, word in enumerate(vocabulary)}
    bags = torch.zeros(len(captions), max(map(len, captions)), len(vocabulary))
    for i, ways in enumerate(captions):
        for j in range(bags.shape[1]):
            sentence = words(ways[j % len(ways)])
            for word in sentence:
                bags[i, j, place[word]] += 1 / len(sentence)
    return bags
