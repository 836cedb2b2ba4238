"""Linear heads that predict time, weather and location from a frozen model's features.

FOCUS puts linear heads on a frozen network (Kattakinda & Feizi, ICML 2022, section 4.4). Time and weather
have one word each; an image may have several locations, so each location is a binary problem. Objects
are split three ways: for training, for calibration of the confidence, and for measuring the agreement.

A head knows only images like its training images: trained on composites, it calls ordinary photographs
"night" with a confidence of .99, and no temperature helps. So the features of training images are stored, and
nothing is told about an image that is farther from them than nearly all held-out ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import ImageU8, Model
from sorites.core.errors import BadImage, SoritesError
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.paths import is_file
from sorites.io.sealed_tensors import NO_DIGEST, require_tensors, seal_tensors
from sorites.io.tables import tensors
from sorites.metrics.intervals import clustered_wilson_interval
from sorites.models.cifar6 import fit_linear_head
from sorites.sources.papers.focus import WORDS

# Agreement of predictions with annotations.


# Agreement of FOCUS's heads with annotators on ImageNet (section 4.4).
PUBLISHED_AGREEMENT = {"time": 0.74, "weather": 0.71, "location": 0.75}

CALIBRATION_BINS = 10

PredictedWords = Sequence[tuple[str, float]]


def agreement(
    kind: str,
    predicted: Sequence[PredictedWords],
    ground_truth: Sequence[Sequence[str]],
    objects: Sequence[str],
    common: Sequence[str],
    words: int,
) -> pl.DataFrame:
    """Return one row: the share of images with exactly the annotated words, and its baseline.

    ``chance`` is the share that always answering ``common`` would reach. The interval counts objects, not
    images. ``error`` is the expected calibration error over all predicted words.
    """
    correct = [
        {word for word, _ in words_of_image} == set(annotated)
        for words_of_image, annotated in zip(predicted, ground_truth, strict=True)
    ]
    frame = pl.DataFrame({"object": list(objects), "right": correct}).with_columns(
        pl.col("right").cast(pl.Float64)
    )
    by_object = frame.group_by("object").agg(pl.col("right").mean(), rows=pl.len())
    spread = float(np.var(by_object["right"].to_numpy(), ddof=1)) if by_object.height > 1 else 0.0
    summary = pl.DataFrame(
        {"agreement": [float(np.mean(correct))], "spread": [spread], "objects": [by_object.height],
         "images": [len(correct)]}
    )  # fmt: skip
    interval = clustered_wilson_interval(
        pl.col("agreement"), pl.col("spread"), pl.col("objects"), pl.col("images")
    )
    chance = float(np.mean([set(annotated) == set(common) for annotated in ground_truth]))
    facts = {
        "kind": pl.lit(kind),
        "chance": pl.lit(chance),
        "words": pl.lit(words),
        "paper": pl.lit(PUBLISHED_AGREEMENT[kind]),
        "error": pl.lit(calibration_error(predicted, ground_truth)),
    }
    columns = ("kind", "agreement", "low", "high", "objects", "images", "chance", "words", "error", "paper")
    return summary.with_columns(**interval, **facts).select(columns)


def calibration_error(predicted: Sequence[PredictedWords], ground_truth: Sequence[Sequence[str]]) -> float:
    """Return the expected calibration error over ten bins of confidence."""
    pairs = [
        (confidence, word in annotated)
        for words, annotated in zip(predicted, ground_truth, strict=True)
        for word, confidence in words
    ]
    confidences, correct = (
        np.array([confidence for confidence, _ in pairs]),
        np.array([float(hit) for _, hit in pairs]),
    )
    bins = np.clip((confidences * CALIBRATION_BINS).astype(int), 0, CALIBRATION_BINS - 1)
    gaps = [
        np.abs(confidences[bins == bin_].mean() - correct[bins == bin_].mean()) * (bins == bin_).mean()
        for bin_ in np.unique(bins)
    ]
    return float(np.sum(gaps))


# Kinds of which an image may have several words.
MULTI_WORD_KINDS = ("location",)

SPLIT_SHARES = {"train": 0.6, "calibrate": 0.15, "test": 0.25}
# Weight penalties to try; the one with the lowest loss on the calibration objects is used.
PENALTIES = (1e-3, 1e-2, 1e-1)

# Minimum number of objects, so that no part of the split is empty.
MIN_OBJECTS = 12

IMAGES_PER_BATCH = 8
FORMAT = "sorites attribute heads 2"
# The neighbour to which the distance is measured, the training images that are stored at most, and the share
# of held-out images that are not far.
NEIGHBOUR, MAX_BANK, NEAR_SHARE = 5, 2_000, 0.99
Features = NDArray[np.float32]
Words = tuple[str, ...]


@dataclass(frozen=True)
class Annotated:
    """An image with its words by kind.

    ``obj`` is the object it shows; all images of an object are in the same part of the split.
    """

    obj: str
    load: Callable[[], ImageU8]
    words: Mapping[str, Words]


@dataclass(frozen=True, eq=False)
class KindHead:
    """The head of one kind: its words, their weights and biases, and the calibration temperature."""

    kind: str
    words: Words
    weight: Features
    bias: Features
    temperature: float = 1.0

    def chances(self, features: Features) -> NDArray[np.float64]:
        """Return the probability of each word, N x words: softmax, or sigmoids for kinds with several
        words.
        """
        logits = (features.astype(np.float64) @ self.weight.T + self.bias) / self.temperature
        if self.kind in MULTI_WORD_KINDS:
            return np.asarray(1 / (1 + np.exp(-np.clip(logits, -500, 500))))
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def predict(self, features: Features) -> list[list[tuple[str, float]]]:
        """Return the words of each image: the most likely one, or all with a probability of at least 0.5."""
        predicted = []
        for chances in self.chances(features):
            best = int(chances.argmax())
            indices = [
                int(index) for index in np.flatnonzero(chances >= 0.5) if self.kind in MULTI_WORD_KINDS
            ] or [best]
            predicted.append([(self.words[index], float(chances[index])) for index in indices])
        return predicted


@dataclass(frozen=True, eq=False)
class Reach:
    """The training images of heads: those that are farther from them are unlike all that they have seen.

    Attributes:
        bank: Features of training images, of unit length.
        limit: The distance that 99 % of held-out images do not exceed.
        source: The source of the images.
        images: The number of annotated images.
        objects: The number of objects on them.
    """

    bank: Features
    limit: float
    source: str
    images: int
    objects: int

    def distances(self, features: Features) -> NDArray[np.float64]:
        """Return the cosine distance of each image to its fifth nearest training image."""
        cosines = np.sort(_unit(features) @ self.bank.T, axis=1)
        return np.asarray(1 - cosines[:, -min(NEIGHBOUR, len(self.bank))], np.float64)

    def far(self, features: Features) -> NDArray[np.bool_]:
        """Return which images are farther from the training images than 99 % of held-out ones."""
        return np.asarray(self.distances(features) > self.limit)

    @property
    def about(self) -> str:
        """A sentence on where the heads were trained."""
        return (
            f"trained on {self.images} images of {self.objects} objects of {self.source or 'unknown origin'}"
        )


def _unit(features: Features) -> Features:
    lengths = np.clip(np.linalg.norm(features, axis=1, keepdims=True), 1e-12, None)
    return np.asarray(features / lengths, np.float32)


def _reach(
    features: Features, images: Sequence[Annotated], parts: Mapping[str, Sequence[int]], source: str
) -> Reach:
    bank = _unit(features[np.array(parts["train"], int)][:MAX_BANK])
    held_out = features[np.array([*parts["calibrate"], *parts["test"]], int)]
    reach = Reach(bank, 0.0, source, len(images), len({image.obj for image in images}))
    return replace(reach, limit=float(np.quantile(reach.distances(held_out), NEAR_SHARE)))


@dataclass(frozen=True, eq=False)
class AttributeHeads:
    """The heads of all kinds, their model, their agreement with annotations on test objects, and their
    training images.
    """

    model: str
    version: str
    heads: tuple[KindHead, ...]
    measured: pl.DataFrame
    reach: Reach

    def save(self, path: Path) -> None:
        """Write the heads to a safetensors file."""
        from safetensors.numpy import save

        arrays = {
            f"{head.kind}.{name}": getattr(head, name) for head in self.heads for name in ("weight", "bias")
        }
        arrays["reach.bank"] = self.reach.bank
        trained = {name: getattr(self.reach, name) for name in ("limit", "source", "images", "objects")}
        about = {head.kind: {"words": head.words, "temperature": head.temperature} for head in self.heads}
        texts = {
            "format": FORMAT,
            "model": self.model,
            "version": self.version,
            "kinds": json.dumps(about),
            "reach": json.dumps(trained),
        }
        data = save(arrays, {**texts, "measured": self.measured.write_json(), **NO_DIGEST})
        write_bytes(seal_tensors(data), path)


def read_heads(path: Path) -> AttributeHeads:
    """Read heads from a file.

    Raises:
        SoritesError: It contains something else.
        Damaged: It does not match the digest that it contains.
    """
    if is_file(path):
        require_tensors(path, f"Restore it from a backup, or repeat {command('annotate heads')}")
    arrays, texts = tensors(path)
    if texts.get("format") != FORMAT:
        raise SoritesError(
            f"{path}: expected attribute heads, as written by this version of {command('annotate heads')}"
        )
    try:
        about = json.loads(texts["kinds"])
        heads = tuple(
            KindHead(
                kind,
                tuple(facts["words"]),
                arrays[f"{kind}.weight"],
                arrays[f"{kind}.bias"],
                float(facts["temperature"]),
            )
            for kind, facts in about.items()
        )
        measured = pl.DataFrame(json.loads(texts["measured"]))
        reach = Reach(arrays["reach.bank"], **json.loads(texts["reach"]))
        return AttributeHeads(texts["model"], texts["version"], heads, measured, reach)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SoritesError(f"{path}: the attribute heads are incomplete: {error}") from error


def fit_heads(
    annotated: Sequence[Annotated],
    model: Model,
    spec: str,
    seed: int = 0,
    tick: Callable[[int], None] = lambda n: None,
    source: str = "",
) -> AttributeHeads:
    """Fit heads for all annotated kinds, and measure their agreement on held-out objects.

    Args:
        annotated: Images with their words.
        model: The model that provides features.
        spec: Spec of the model, stored with the heads.
        seed: Seed of the split by object.
        tick: Called with the number of images processed.
        source: Spec of the source of the images, stored with the heads.
    """
    features, readable = features_of(model, [image.load for image in annotated], tick)
    images = [annotated[index] for index in readable]
    heads, measured = fit_to_features(features, images, seed)
    reach = _reach(features, images, split([image.obj for image in images], seed), source)
    return AttributeHeads(spec, model.version, heads, measured, reach)


def fit_to_features(
    features: Features, images: Sequence[Annotated], seed: int = 0
) -> tuple[tuple[KindHead, ...], pl.DataFrame]:
    """Fit heads for all kinds to features, and return them with their agreement on held-out objects."""
    parts = split([image.obj for image in images], seed)
    heads, measured = [], []
    for kind in WORDS:
        head = _fit_kind(kind, features, images, parts)
        if head is not None:
            heads.append(head)
            test = np.array([index for index in parts["test"] if images[index].words.get(kind)])
            objects, ground_truth = (
                [images[index].obj for index in test],
                [images[index].words[kind] for index in test],
            )
            common = _most_common(
                [images[index].words[kind] for index in parts["train"] if images[index].words.get(kind)]
            )
            measured.append(
                agreement(kind, head.predict(features[test]), ground_truth, objects, common, len(head.words))
            )
    if not heads:
        raise SoritesError("the images do not differ in time, weather or location, so no head can be fitted")
    return tuple(heads), pl.concat(measured)


def features_of(
    model: Model, loads: Sequence[Callable[[], ImageU8]], tick: Callable[[int], None] = lambda n: None
) -> tuple[Features, list[int]]:
    """Return features averaged over the quarters of each image, and the indices of readable images.

    In a quarter the surroundings take more space than in the whole image, where the object dominates.
    """
    rows: list[Features] = []
    readable: list[int] = []
    for start in range(0, len(loads), IMAGES_PER_BATCH):
        images = {}
        for index in range(start, min(start + IMAGES_PER_BATCH, len(loads))):
            try:
                images[index] = loads[index]()
            except BadImage:
                continue
        if images:
            features = model([part for image in images.values() for part in quarters(image)], False).features
            if features is None:
                raise SoritesError(
                    f"{model.name} provides no features for a head. Use another model, such as lite0."
                )
            rows.append(features.reshape(len(images), 4, -1).mean(axis=1))
            readable += images
        tick(min(IMAGES_PER_BATCH, len(loads) - start))
    if not rows:
        raise SoritesError(f"none of {len(loads)} images can be read")
    return np.concatenate(rows), readable


def quarters(image: ImageU8) -> list[ImageU8]:
    """Return the four quarters of an image; a side of one pixel is used whole."""
    height, width = (max(1, length // 2) for length in image.shape[:2])
    rows, columns = (slice(None, height), slice(-height, None)), (slice(None, width), slice(-width, None))
    return [np.ascontiguousarray(image[row, column]) for row in rows for column in columns]


def split(objects: Sequence[str], seed: int) -> dict[str, list[int]]:
    """Return the image indices of each part; all images of an object are in one part."""
    order = sorted(set(objects), key=lambda obj: digest("attributes", seed, obj))
    if len(order) < MIN_OBJECTS:
        raise SoritesError(
            f"Need at least {MIN_OBJECTS} annotated objects to hold out a test split; got {len(order)}"
        )
    ends = np.round(np.cumsum([0, *SPLIT_SHARES.values()]) * len(order)).astype(int)
    part = {obj: name for name, a, b in zip(SPLIT_SHARES, ends, ends[1:], strict=False) for obj in order[a:b]}
    return {name: [index for index, obj in enumerate(objects) if part[obj] == name] for name in SPLIT_SHARES}


def _most_common(words: Sequence[Words]) -> Words:
    return max(set(words), key=lambda combination: (words.count(combination), combination))


def _fit_kind(
    kind: str, features: Features, images: Sequence[Annotated], parts: Mapping[str, Sequence[int]]
) -> KindHead | None:
    """Fit the head of a kind.

    None if the training objects do not differ in it, or another part has no words.
    """
    indices = {
        name: np.array([index for index in members if images[index].words.get(kind)], int)
        for name, members in parts.items()
    }
    words = [
        word for word in WORDS[kind] if any(word in images[index].words[kind] for index in indices["train"])
    ]
    if len(words) < 2 or not all(map(len, indices.values())):
        return None
    ground_truth = {
        name: _matrix(words, [images[index].words[kind] for index in members])
        for name, members in indices.items()
    }
    candidates = []
    for penalty in PENALTIES:
        head = _fit_head(kind, words, features[indices["train"]], ground_truth["train"], penalty)
        loss, temperature = _calibrate(head, features[indices["calibrate"]], ground_truth["calibrate"])
        candidates.append((loss, penalty, KindHead(kind, head.words, head.weight, head.bias, temperature)))
    return min(candidates, key=lambda candidate: candidate[:2])[2]


def _matrix(words: Sequence[str], annotated: Sequence[Words]) -> NDArray[np.int64]:
    return np.array([[word in image_words for word in words] for image_words in annotated], np.int64)


def _fit_head(
    kind: str, words: Sequence[str], features: Features, ground_truth: NDArray[np.int64], penalty: float
) -> KindHead:
    if kind not in MULTI_WORD_KINDS:
        return KindHead(
            kind, tuple(words), *fit_linear_head(features, ground_truth.argmax(axis=1), len(words), penalty)
        )
    pairs = [fit_linear_head(features, ground_truth[:, column], 2, penalty) for column in range(len(words))]
    weight = np.stack([weight[1] - weight[0] for weight, _ in pairs])
    return KindHead(kind, tuple(words), weight, np.array([bias[1] - bias[0] for _, bias in pairs]))


def _calibrate(head: KindHead, features: Features, ground_truth: NDArray[np.int64]) -> tuple[float, float]:
    """Return the lowest mean loss over temperatures on the calibration objects, and its temperature."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        chances = KindHead(
            head.kind, head.words, head.weight, head.bias, float(np.exp(log_temperature))
        ).chances(features)
        likelihoods = (
            np.where(ground_truth, chances, 1 - chances)
            if head.kind in MULTI_WORD_KINDS
            else np.where(ground_truth, chances, 1)
        )
        return float(-np.log(np.clip(likelihoods, 1e-12, 1)).sum() / len(features))

    best = minimize_scalar(loss, bounds=(-3, 4), method="bounded")
    return float(best.fun), float(np.exp(best.x))
