"""OOD scores for zero-shot classifiers, whose class weights are embeddings of class names."""

from __future__ import annotations

from importlib.resources import files
from typing import ClassVar, Self

import numpy as np

from sorites.core import Batches, Head, Outputs, add_scorer
from sorites.core.errors import SoritesError
from sorites.core.rng import digest, hashed_order
from sorites.io.paths import path_of
from sorites.io.readers import lines
from sorites.scorers.base import (
    Fitted,
    Narrow,
    Score,
    Wide,
    above,
    features_of,
    logits_of,
    logsumexp,
    narrow_scored,
    percent,
    share,
    whole,
)
from sorites.scorers.knn import directions


class _Cosines(Fitted):
    """Base class of scorers that use the cosines between an image and the class weights.

    The logits of a zero-shot classifier are these cosines times its scale; the scale and the bias are taken
    from the head, and the length of the features is divided out.
    """

    needs: ClassVar = frozenset({"features", "head"})
    _inverse: Narrow | None = None

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        weight, bias = self.head(head)
        lengths = np.linalg.norm(weight, axis=1)
        self._inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(
            np.float32
        )
        self._bias = bias.astype(np.float32)
        self._width = weight.shape[1]
        self.fitted = {}
        return self

    def cosines(self, rows: Narrow, logits: Narrow) -> Narrow:
        """Return the cosine of each image with each class; 0 for a zero vector."""
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
        inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(np.float32)
        cosines = logits - self._bias
        cosines *= self.ready(self._inverse)
        cosines *= inverse[:, None]
        return cosines

    def checked(self, outputs: Outputs) -> tuple[Narrow, Narrow]:
        """Return the features and logits after checking their widths."""
        inverse = self.ready(self._inverse)
        return (
            features_of(outputs, self.name, self._width),
            logits_of(outputs, self.name, len(inverse)),
        )


@add_scorer
class mcm(_Cosines):
    """Log-odds against the best matching class name, by the softmax of cosines / ``temperature`` (Ming et al.
    2022).

    The log-odds rank images like the maximum concept matching probability. For a classifier that is not
    zero-shot the cosines are those of its features with its class weights.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = above(temperature, 0, "mcm", "temperature")

    def __call__(self, outputs: Outputs) -> Score:
        return narrow_scored(self._odds, *self.checked(outputs))

    def _odds(self, rows: Narrow, logits: Narrow) -> Wide:
        scaled = self.cosines(rows, logits)
        scaled /= np.float32(self.temperature)
        top = scaled.max(axis=1)
        scaled -= top[:, None]
        np.exp(scaled, out=scaled)
        return np.asarray(np.log(np.maximum(scaled.sum(axis=1, dtype=np.float64) - 1, 1e-300)))


@add_scorer
class neglabel(_Cosines):
    """Log-odds of names outside the classes, chosen from a word list (Jiang et al. 2024).

    Of the words of ``words``, a file with one word per line (default: a small list of common nouns), the
    share ``keep`` that is least similar to the class names is kept; the similarity of a word is the
    ``percentile`` of its cosines with all classes. The words are put into the prompts of the model, divided
    into ``groups`` by a hash, and the probability of the classes against each group, by the softmax of
    cosines / ``temperature``, is averaged.
    """

    needs: ClassVar = frozenset({"features", "head", "texts"})

    def __init__(
        self,
        words: str = "",
        keep: float = 0.15,
        percentile: float = 95,
        groups: int = 100,
        temperature: float = 0.01,
    ) -> None:
        self.words, self.keep = words, share(keep, "neglabel", "keep")
        self.percentile, self.groups = percent(percentile, "neglabel"), whole(groups, "neglabel", "groups")
        self.temperature = above(temperature, 0, "neglabel", "temperature")
        self._negatives: Wide | None = None

    @staticmethod
    def content(words: str = "", **_: object) -> str:
        """Return a hash of the word list, which is part of the version of the numbers."""
        return digest("\n".join(read_words(words)), size=8).hex() if words else ""

    def fit(self, batches: Batches = (), head: Head | None = None) -> Self:
        super().fit(batches, head)
        if self.embed is None:
            raise SoritesError(
                f"scorer {self.name}: expected the text encoder of a zero-shot model, such as open_clip"
            )
        words = hashed_order(read_words(self.words), lambda word: ("neglabel", word))
        embedded = directions(np.asarray(self.embed(words), np.float64))
        if embedded.shape[1] != self._width:
            raise SoritesError(
                f"scorer {self.name}: expected texts of {self._width} features, got {embedded.shape[1]}"
            )
        classes = directions(self.head(head)[0])
        similar = np.percentile(embedded @ classes.T, self.percentile, axis=1)
        kept = np.argsort(similar, kind="stable")[: max(1, int(len(words) * self.keep))]
        count = min(self.groups, len(kept))
        # The hash order of the words is random with respect to their similarity.
        chosen = np.sort(kept)[: len(kept) - len(kept) % count]
        self._negatives, self._groups = embedded[chosen], count
        self.chosen = tuple(words[i] for i in chosen)
        self.fitted = {"words": len(words), "negative": len(chosen)}
        self.embed = None
        return self

    def __call__(self, outputs: Outputs) -> Score:
        self.ready(self._negatives)
        return narrow_scored(self._outside, *self.checked(outputs))

    def _outside(self, rows: Narrow, logits: Narrow) -> Wide:
        negatives = self.ready(self._negatives)
        inside = logsumexp(self.cosines(rows, logits).astype(np.float64) / self.temperature)
        others = directions(rows.astype(np.float64)) @ negatives.T / self.temperature
        grouped = others.reshape(len(rows) * self._groups, -1)
        margins = logsumexp(grouped).reshape(len(rows), self._groups) - inside[:, None]
        # log of the mean of sigmoid(margin), and of sigmoid(-margin): log(1 + exp) without overflow.
        outside, within = (logsumexp(-np.logaddexp(0, sign * margins)) for sign in (-1, 1))
        return np.asarray(outside - within)


def read_words(path: str) -> list[str]:
    """Return the different words of a file, one per line, or of the list in the package."""
    if path:
        found = lines(path_of(path), "words, one per line")
    else:
        found = files("sorites").joinpath("scorers", "words.txt").read_text(encoding="utf-8").splitlines()
    words = list(dict.fromkeys(filter(None, (line.strip() for line in found))))
    if not words:
        raise SoritesError(f"{path}: expected words, one per line, got an empty file")
    return words
