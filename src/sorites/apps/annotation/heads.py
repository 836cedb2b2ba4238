"""Heads that predict time, weather and locations from a frozen model's features, trained on
annotated images.

FOCUS puts linear heads on a network that stays as it is (Kattakinda & Feizi, ICML 2022, section 5).
Time and weather have one word each; an image may have several locations, so that each of these is
a yes or no of its own. Objects are split three ways: most train the heads, some calibrate their
confidence, and the agreement is measured on the rest, which neither saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import ImageU8, Model
from sorites.core.errors import BadImage, SoritesError
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.tables import tensors
from sorites.metrics.intervals import clustered_wilson_interval
from sorites.models.cifar6 import fitted
from sorites.sources.papers.focus import WORDS

# Compare attributes predicted by a head with annotations: interval over objects, agreement by chance,
# calibration.


# The share of ImageNet's images on which FOCUS's heads agreed with people (section 5).
PAPER = {"time": 0.74, "weather": 0.71, "location": 0.75}

BINS = 10

Told = Sequence[tuple[str, float]]


def agreement(
    kind: str,
    told: Sequence[Told],
    true: Sequence[Sequence[str]],
    objects: Sequence[str],
    common: Sequence[str],
    words: int,
) -> pl.DataFrame:
    """Return one row: the share of images whose words are exactly those annotated, and what
    answering ``common`` would give.

    The interval counts objects and not images. ``error`` is the expected calibration error over
    all predicted words.
    """
    right = [{word for word, _ in some} == set(given) for some, given in zip(told, true, strict=True)]
    frame = pl.DataFrame({"object": list(objects), "right": right}).with_columns(
        pl.col("right").cast(pl.Float64)
    )
    own = frame.group_by("object").agg(pl.col("right").mean(), rows=pl.len())
    spread = float(np.var(own["right"].to_numpy(), ddof=1)) if own.height > 1 else 0.0
    whole = pl.DataFrame(
        {"agreement": [float(np.mean(right))], "spread": [spread], "objects": [own.height],
         "images": [len(right)]}
    )  # fmt: skip
    interval = clustered_wilson_interval(
        pl.col("agreement"), pl.col("spread"), pl.col("objects"), pl.col("images")
    )
    chance = float(np.mean([set(given) == set(common) for given in true]))
    facts = {"kind": pl.lit(kind), "chance": pl.lit(chance), "words": pl.lit(words), "paper": pl.lit(PAPER[kind]),
             "error": pl.lit(calibration_error(told, true))}  # fmt: skip
    columns = ("kind", "agreement", "low", "high", "objects", "images", "chance", "words", "error", "paper")
    return whole.with_columns(**interval, **facts).select(columns)


def calibration_error(told: Sequence[Told], true: Sequence[Sequence[str]]) -> float:
    """Return the mean distance between confidence and rightness over ten bins of confidence,
    weighted by their size.
    """
    pairs = [(chance, word in given) for some, given in zip(told, true, strict=True) for word, chance in some]
    chances, right = np.array([chance for chance, _ in pairs]), np.array([float(hit) for _, hit in pairs])
    bins = np.clip((chances * BINS).astype(int), 0, BINS - 1)
    gaps = [
        np.abs(chances[bins == at].mean() - right[bins == at].mean()) * (bins == at).mean()
        for at in np.unique(bins)
    ]
    return float(np.sum(gaps))


# The kinds of attributes of which an image may have several words.
SEVERAL = ("location",)

PARTS = {"train": 0.6, "calibrate": 0.15, "test": 0.25}
# Penalties on the weights that are tried; the one with the least loss on the calibrating objects is
# taken.
SHRINKS = (1e-3, 1e-2, 1e-1)

# The fewest objects, so that each part has some.
LEAST = 12

BATCH = 8
FORMAT = "sorites attribute heads 1"
Features = NDArray[np.float32]
Words = tuple[str, ...]


@dataclass(frozen=True)
class Annotated:
    """An image with its words by kind.

    ``object`` names what it shows: images of one object stay on one side of the split.
    """

    obj: str
    load: Callable[[], ImageU8]
    words: Mapping[str, Words]


@dataclass(frozen=True, eq=False)
class KindHead:
    """The head of one kind: words it has seen, weights and bias for each, and the temperature that
    calibrates its confidence.
    """

    kind: str
    words: Words
    weight: Features
    bias: Features
    temperature: float = 1.0

    def chances(self, features: Features) -> NDArray[np.float64]:
        """Return the chance of each word, N x words: of one of them, or of each by itself where
        there may be several.
        """
        logits = (features.astype(np.float64) @ self.weight.T + self.bias) / self.temperature
        if self.kind in SEVERAL:
            return np.asarray(1 / (1 + np.exp(-np.clip(logits, -500, 500))))
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def told(self, features: Features) -> list[list[tuple[str, float]]]:
        """Return the words of each image with their chances: the likeliest, or all that are
        likelier than not.
        """
        found = []
        for chances in self.chances(features):
            best = int(chances.argmax())
            places = [int(at) for at in np.flatnonzero(chances >= 0.5) if self.kind in SEVERAL] or [best]
            found.append([(self.words[at], float(chances[at])) for at in places])
        return found


@dataclass(frozen=True, eq=False)
class AttributeHeads:
    """The heads of all kinds, the model whose features they read, and how they agreed with the
    annotations on other objects.
    """

    model: str
    version: str
    heads: tuple[KindHead, ...]
    measured: pl.DataFrame

    def save(self, path: Path) -> None:
        """Write the heads to one safetensors file."""
        from safetensors.numpy import save

        arrays = {
            f"{head.kind}.{name}": getattr(head, name) for head in self.heads for name in ("weight", "bias")
        }
        about = {head.kind: {"words": head.words, "temperature": head.temperature} for head in self.heads}
        texts = {"format": FORMAT, "model": self.model, "version": self.version, "kinds": json.dumps(about)}
        write_bytes(save(arrays, {**texts, "measured": self.measured.write_json()}), path)


def read_heads(path: Path) -> AttributeHeads:
    """Read heads that were saved."""
    arrays, texts = tensors(path)
    if texts.get("format") != FORMAT:
        raise SoritesError(f'{path}: wanted attribute heads, made by "sorites annotate heads"')
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
        return AttributeHeads(
            texts["model"], texts["version"], heads, pl.DataFrame(json.loads(texts["measured"]))
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SoritesError(f"{path}: the attribute heads in it are not whole: {error}") from error


def fit_heads(
    annotated: Sequence[Annotated],
    model: Model,
    spec: str,
    seed: int = 0,
    tick: Callable[[int], None] = lambda n: None,
) -> AttributeHeads:
    """Fit the heads of all kinds that the images are annotated with, and measure how they agree
    on objects not seen.
    """
    features, kept = features_of(model, [image.load for image in annotated], tick)
    heads, measured = fit_to_features(features, [annotated[place] for place in kept], seed)
    return AttributeHeads(spec, model.version, heads, measured)


def fit_to_features(
    features: Features, images: Sequence[Annotated], seed: int = 0
) -> tuple[tuple[KindHead, ...], pl.DataFrame]:
    """Return the heads of all kinds, fitted on some objects by their features, and how they agree on
    other objects.
    """
    parts = split([image.obj for image in images], seed)
    heads, measured = [], []
    for kind in WORDS:
        head = _fitted(kind, features, images, parts)
        if head is not None:
            heads.append(head)
            there = np.array([at for at in parts["test"] if images[at].words.get(kind)])
            objects, true = [images[at].obj for at in there], [images[at].words[kind] for at in there]
            common = _commonest(
                [images[at].words[kind] for at in parts["train"] if images[at].words.get(kind)]
            )
            measured.append(
                agreement(kind, head.told(features[there]), true, objects, common, len(head.words))
            )
    if not heads:
        raise SoritesError("the images have no time, weather or location that two of them differ in")
    return tuple(heads), pl.concat(measured)


def features_of(
    model: Model, loads: Sequence[Callable[[], ImageU8]], tick: Callable[[int], None] = lambda n: None
) -> tuple[Features, list[int]]:
    """Return a model's features, the mean over each image's quarters, and the places of the
    images that can be read.

    In a quarter the surroundings are larger than the object in the middle; of the whole image, a
    model mostly sees the object.
    """
    rows: list[Features] = []
    kept: list[int] = []
    for start in range(0, len(loads), BATCH):
        images = {}
        for place in range(start, min(start + BATCH, len(loads))):
            try:
                images[place] = loads[place]()
            except BadImage:
                continue
        if images:
            found = model([part for image in images.values() for part in quarters(image)], False).features
            if found is None:
                raise SoritesError(
                    f"{model.name} gives no features, and a head reads them. Take another model, such as"
                    " lite0."
                )
            rows.append(found.reshape(len(images), 4, -1).mean(axis=1))
            kept += images
        tick(min(BATCH, len(loads) - start))
    if not rows:
        raise SoritesError(f"none of {len(loads)} images can be read")
    return np.concatenate(rows), kept


def quarters(image: ImageU8) -> list[ImageU8]:
    """Return the four quarters of an image; one of a single pixel's width is taken whole four times."""
    height, width = (max(1, length // 2) for length in image.shape[:2])
    rows, columns = (slice(None, height), slice(-height, None)), (slice(None, width), slice(-width, None))
    return [np.ascontiguousarray(image[row, column]) for row in rows for column in columns]


def split(objects: Sequence[str], seed: int) -> dict[str, list[int]]:
    """Return the places of each part; all images of an object are in one."""
    order = sorted(set(objects), key=lambda obj: digest("attributes", seed, obj))
    if len(order) < LEAST:
        raise SoritesError(
            f"wanted at least {LEAST} objects with annotations, so that some can be kept apart; got"
            f" {len(order)}"
        )
    ends = np.round(np.cumsum([0, *PARTS.values()]) * len(order)).astype(int)
    part = {obj: name for name, a, b in zip(PARTS, ends, ends[1:], strict=False) for obj in order[a:b]}
    return {name: [place for place, obj in enumerate(objects) if part[obj] == name] for name in PARTS}


def _commonest(words: Sequence[Words]) -> Words:
    return max(set(words), key=lambda some: (words.count(some), some))


def _fitted(
    kind: str, features: Features, images: Sequence[Annotated], parts: Mapping[str, Sequence[int]]
) -> KindHead | None:
    """Fit the head of a kind; None where the training objects do not differ in it, or another part
    has none.
    """
    places = {
        name: np.array([at for at in there if images[at].words.get(kind)], int)
        for name, there in parts.items()
    }
    seen = [word for word in WORDS[kind] if any(word in images[at].words[kind] for at in places["train"])]
    if len(seen) < 2 or not all(map(len, places.values())):
        return None
    ground_truth = {
        name: _matrix(seen, [images[at].words[kind] for at in there]) for name, there in places.items()
    }
    tried = []
    for shrink in SHRINKS:
        head = _one_head(kind, seen, features[places["train"]], ground_truth["train"], shrink)
        loss, temperature = _calibrated(head, features[places["calibrate"]], ground_truth["calibrate"])
        tried.append((loss, shrink, KindHead(kind, head.words, head.weight, head.bias, temperature)))
    return min(tried, key=lambda one: one[:2])[2]


def _matrix(words: Sequence[str], given: Sequence[Words]) -> NDArray[np.int64]:
    return np.array([[word in some for word in words] for some in given], np.int64)


def _one_head(
    kind: str, words: Sequence[str], features: Features, ground_truth: NDArray[np.int64], shrink: float
) -> KindHead:
    if kind not in SEVERAL:
        return KindHead(
            kind, tuple(words), *fitted(features, ground_truth.argmax(axis=1), len(words), shrink)
        )
    pairs = [fitted(features, ground_truth[:, at], 2, shrink) for at in range(len(words))]
    weight = np.stack([weight[1] - weight[0] for weight, _ in pairs])
    return KindHead(kind, tuple(words), weight, np.array([bias[1] - bias[0] for _, bias in pairs]))


def _calibrated(head: KindHead, features: Features, ground_truth: NDArray[np.int64]) -> tuple[float, float]:
    """Return the least mean loss over temperatures on objects that trained nothing, and the temperature."""
    from scipy.optimize import minimize_scalar

    def loss(log: float) -> float:
        chances = KindHead(head.kind, head.words, head.weight, head.bias, float(np.exp(log))).chances(
            features
        )
        right = (
            np.where(ground_truth, chances, 1 - chances)
            if head.kind in SEVERAL
            else np.where(ground_truth, chances, 1)
        )
        return float(-np.log(np.clip(right, 1e-12, 1)).sum() / len(features))

    found = minimize_scalar(loss, bounds=(-3, 4), method="bounded")
    return float(found.fun), float(np.exp(found.x))
