"""A small image-text model: a projection of frozen image features and a text tower.

Training is as for CLIP (Radford et al. 2021), with two contrastive tasks per image: to find its caption
among those of the same style, which teaches the class, and among those of the same class, which teaches
the style. With all captions as negatives, the model would learn which styles a class was not trained
in. Inference is three matrix products in NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]
# Dimensions of the shared space and of the word embeddings.
EMBEDDING_SIZE, HIDDEN_SIZE = 64, 128
# The share of an image's features that is dropped at random in training.
DROPOUT = 0.2


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
        """Map N x D features of the frozen model to N x 64 features of unit length."""
        return _unit(((features - self.mean) / self.scale) @ self.projection)

    def texts(self, sentences: Sequence[str]) -> Array:
        """Return N x 64 features of unit length.

        Words outside the vocabulary are ignored.

        Raises:
            SoritesError: If a sentence has no word of the vocabulary.
        """
        bags = (
            np.stack([self._mean_embedding(sentence) for sentence in sentences])
            if sentences
            else np.empty((0, HIDDEN_SIZE), np.float32)
        )
        return _unit(np.maximum(bags @ self.inner + self.bias, np.float32(0)) @ self.outer)

    def _mean_embedding(self, sentence: str) -> Array:
        index_of = {word: i for i, word in enumerate(self.vocabulary)}
        rows = [index_of[word] for word in words(sentence) if word in index_of]
        if not rows:
            raise SoritesError(
                f"{sentence!r} has no word of this encoder's vocabulary: {', '.join(self.vocabulary)}"
            )
        return np.asarray(self.embedding[rows].mean(axis=0), np.float32)

    def tensors(self) -> dict[str, Array]:
        """Return every array by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "vocabulary"}


def _unit(rows: NDArray[np.floating]) -> Array:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


@dataclass(frozen=True)
class Lesson:
    """The training data of the towers.

    Attributes:
        features: The features of the images, N x D.
        caption: The index of each image's caption.
        captions: The wordings of each caption.
        kinds: The class and the style of each caption.
        epochs: The number of epochs.
        seed: The random seed.
    """

    features: Array
    caption: NDArray[np.int64]
    captions: Sequence[Sequence[str]] = field(repr=False)
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]]
    epochs: int = 15
    seed: int = 0


def teach(lesson: Lesson) -> Towers:
    """Train both towers; one thread and a fixed seed make the result reproducible."""
    with one_thread():
        return _teach(lesson)


def _teach(lesson: Lesson) -> Towers:
    import torch
    from torch.nn import functional as F

    vocabulary = sorted(
        {word for wordings in lesson.captions for wording in wordings for word in words(wording)}
    )
    mean, scale = lesson.features.mean(axis=0), lesson.features.std(axis=0) + np.float32(1e-3)
    images = torch.from_numpy((lesson.features - mean) / scale)
    caption, bags = torch.from_numpy(lesson.caption), _bags(lesson.captions, vocabulary)
    same_kind = [torch.from_numpy(kind[:, None] == kind[None]) for kind in lesson.kinds]
    generator = torch.Generator().manual_seed(lesson.seed)

    def start(*shape: int) -> torch.Tensor:
        return torch.empty(*shape).normal_(0, shape[0] ** -0.5, generator=generator).requires_grad_()

    projection, embedding, inner, outer = (
        start(*shape)
        for shape in (
            (images.shape[1], EMBEDDING_SIZE),
            (len(vocabulary), HIDDEN_SIZE),
            (HIDDEN_SIZE, HIDDEN_SIZE),
            (HIDDEN_SIZE, EMBEDDING_SIZE),
        )
    )
    bias, log_scale = torch.zeros(HIDDEN_SIZE, requires_grad=True), torch.tensor(2.3, requires_grad=True)
    parameters = [projection, embedding, inner, outer, bias, log_scale]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, lesson.epochs)
    for _ in range(lesson.epochs):
        for batch in torch.split(torch.randperm(len(images), generator=generator), 256):
            wording = torch.randint(bags.shape[1], (len(bags),), generator=generator)
            bag = bags[torch.arange(len(bags)), wording] @ embedding
            texts = F.normalize(torch.relu(bag @ inner + bias) @ outer)
            dropout_mask = torch.rand(len(batch), images.shape[1], generator=generator) > DROPOUT
            image_features = F.normalize((images[batch] * dropout_mask) @ projection)
            logits, target = log_scale.exp() * image_features @ texts.T, caption[batch]
            losses = [
                F.cross_entropy(logits.masked_fill(~candidates[target], -torch.inf), target)
                for candidates in same_kind
            ]
            loss = torch.stack(losses).sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        schedule.step()
    parts = [part.detach().numpy() for part in (projection, embedding, inner, bias, outer)]
    return Towers(tuple(vocabulary), mean, scale, *parts)


def _bags(captions: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> torch.Tensor:
    """Return captions x wordings x vocabulary: the share of each word in a sentence."""
    import torch

    index_of = {word: i for i, word in enumerate(vocabulary)}
    bags = torch.zeros(len(captions), max(map(len, captions)), len(vocabulary))
    for i, wordings in enumerate(captions):
        for j in range(bags.shape[1]):
            sentence = words(wordings[j % len(wordings)])
            for word in sentence:
                bags[i, j, index_of[word]] += 1 / len(sentence)
    return bags
