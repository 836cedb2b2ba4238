"""Learn, cache and evaluate the decomposition of an encoder's space into meaning and appearance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from sorites import core
from sorites.core import Encoder, Examples, Features, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import command, option
from sorites.core.progress import Bar, Tick
from sorites.core.rng import digest, hashed_order
from sorites.encoders.features import features
from sorites.io.files import cache, write_bytes
from sorites.io.files import cached as cached_file
from sorites.io.tables import tensors
from sorites.measures.decomposition import (
    STYLES,
    Decomposition,
    Styles,
    Training,
    accuracies,
    decompose,
    triplets,
)

DEFAULT_TRIPLETS = 4000

# Texts encoded at a time.
TEXTS_PER_BATCH = 16384

# Called with the index and the mean loss of every epoch.
Each = Callable[[int, float], None]


@dataclass(frozen=True)
class Recipe:
    """Everything except the encoder that determines a decomposition."""

    labels: tuple[str, ...]
    styles: tuple[tuple[str, ...], ...]
    count: int
    training: Training

    def record(self) -> dict[str, object]:
        """Return the recipe as plain data; its keys are part of the names of cached files."""
        return {
            "labels": self.labels,
            "looks": self.styles,
            "count": self.count,
            "training": asdict(self.training),
        }

    def key(self, encoder: Encoder) -> str:
        """Return the cache key of the decomposition of an encoder's space."""
        return digest(encoder.version, json.dumps(self.record(), sort_keys=True)).hex()


def recipe(
    encoder: Encoder,
    labels: Sequence[str] = (),
    styles: Styles = (),
    count: int = DEFAULT_TRIPLETS,
    training: Training | None = None,
) -> Recipe:
    """Return a recipe, with defaults from the encoder where it has labels and styles.

    Args:
        encoder: The encoder.
        labels: Class names; the default is the encoder's labels.
        styles: Groups of templates; the default is the encoder's styles, or ``STYLES``.
        count: The number of triplets.
        training: The hyperparameters.

    Raises:
        SoritesError: If neither ``labels`` nor the encoder names classes.
    """
    names, groups = tuple(labels or encoder.labels), tuple(map(tuple, styles or encoder.styles or STYLES))
    if not names:
        raise SoritesError(
            f"encoder {encoder.name} has no labels: pass {option('labels', 'FILE')} with one class per line"
        )
    return Recipe(names, groups, count, training or Training())


def learn(
    encoder: Encoder, how: Recipe, each: Each = lambda epoch, loss: None, bar: Bar | None = None
) -> Decomposition:
    """Learn the decomposition of an encoder's space from texts alone."""
    texts = triplets(how.labels, how.styles, how.count, how.training.seed)
    tick = bar("encoding", len(texts.texts)) if bar else lambda n: None
    return decompose(
        np.concatenate(list(text_features(encoder, texts.texts, tick))), texts.places, how.training, each
    )


def text_features(encoder: Encoder, texts: Sequence[str], tick: Tick = lambda n: None) -> Iterator[Features]:
    """Yield the features of texts in batches."""
    for start in range(0, len(texts), TEXTS_PER_BATCH):
        batch = texts[start : start + TEXTS_PER_BATCH]
        yield encoder.texts(batch)
        tick(len(batch))


def cached(encoder: Encoder, how: Recipe, each: Each = lambda epoch, loss: None) -> Decomposition:
    """Return the decomposition from the user's cache, learning it the first time; encoders without a
    version are not cached.
    """
    if not encoder.version:
        return learn(encoder, how, each)
    path = cache("splits", f"{how.key(encoder)}.safetensors")
    return cached_file(
        path, lambda: _serialize(learn(encoder, how, each), encoder, how), lambda path: load(path, encoder)
    )


def save(path: Path, decomposition: Decomposition, encoder: Encoder, how: Recipe) -> None:
    """Write W, the encoder's version and the recipe as safetensors."""
    write_bytes(_serialize(decomposition, encoder, how), path)


def _serialize(decomposition: Decomposition, encoder: Encoder, how: Recipe) -> bytes:
    from safetensors.numpy import save as to_bytes

    metadata = {"encoder": encoder.name, "version": encoder.version, "recipe": json.dumps(how.record())}
    return to_bytes({"matrix": decomposition.matrix}, metadata=metadata)


def load(path: str | Path, encoder: Encoder) -> Decomposition:
    """Read a decomposition.

    Raises:
        SoritesError: If the file is invalid, or was learnt in the space of another encoder.
    """
    try:
        arrays, metadata = tensors(Path(path), ["matrix"])
    except SoritesError as error:
        raise SoritesError(f"{error}. Train a decomposition with {command('decompose train')}.") from error
    matrix = arrays["matrix"]
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise SoritesError(
            f"{path}: expected a square matrix of numbers, got shape {matrix.shape} of {matrix.dtype}"
        )
    decomposition = Decomposition(matrix)
    if metadata.get("version") != encoder.version:
        learnt_on = metadata.get("encoder", "another encoder")
        raise SoritesError(f"{path} was learnt on {learnt_on}, not on {encoder.name} as it is now")
    return decomposition


def text_means(encoder: Encoder, how: Recipe, bar: Bar | None = None) -> tuple[Features, Features]:
    """Return mean text features: of each label over the styles, and of each style over the labels.

    A style counts as the mean over its templates. Labels are encoded in batches and only the means are
    stored; 21 000 labels in 80 templates would take gigabytes.
    """
    templates = [template for style in how.styles for template in style]
    ends = np.cumsum([len(style) for style in how.styles])[:-1]
    step = max(1, TEXTS_PER_BATCH // len(templates))
    tick = bar("class texts", len(how.labels)) if bar else lambda n: None
    labels, styles = [], np.zeros((len(how.styles), 1))
    for start in range(0, len(how.labels), step):
        batch = how.labels[start : start + step]
        features = encoder.texts([template.replace("{}", label) for label in batch for template in templates])
        parts = np.split(features.reshape(len(batch), len(templates), -1), ends, axis=1)
        grid = np.stack([part.mean(axis=1) for part in parts], axis=1)
        labels.append(grid.mean(axis=1))
        styles = styles + grid.sum(axis=0, dtype=np.float64)
        tick(len(batch))
    return np.concatenate(labels), (styles / len(how.labels)).astype(np.float32)


def zero_shot_table(
    encoder: Encoder, decomposition: Decomposition, how: Recipe, examples: Examples, bar: Bar | None = None
) -> pl.DataFrame:
    """Return the zero-shot accuracy of class and style by each half, PCA's halves and the whole space
    (table 3 of the paper).

    ``value`` is Acc@1 and ``top5`` Acc@5; ``chance`` is that of Acc@1.
    """
    means = text_means(encoder, how, bar)
    of_class = accuracies(decomposition, examples.features, examples.label, means[0], means)
    frames = [of_class.with_columns(of=pl.lit("class"), chance=pl.lit(1 / len(how.labels)))]
    if (examples.style >= 0).all():
        of_style = accuracies(decomposition, examples.features, examples.style, means[1], means)
        frames.append(of_style.with_columns(of=pl.lit("style"), chance=pl.lit(1 / len(how.styles))))
    return pl.concat(frames).select("of", "part", "value", "top5", "n", "chance")


def examples_of(encoder: Encoder, source: Source) -> Examples:
    """Return the labelled images of a source as examples without styles."""
    labelled = [sample for sample in source if sample.label is not None]
    if not labelled:
        raise SoritesError(f"source {source.name} has no labelled images to evaluate a decomposition on")
    image_features = features(encoder, ((sample.load(), sample.framed) for sample in labelled))
    labels = np.array([sample.label for sample in labelled], np.int64)
    return Examples(image_features, labels, np.full(len(labelled), -1, np.int64))


def report(
    encoder: Encoder,
    decomposition: Decomposition,
    how: Recipe,
    check: str | None,
    limit: int | None,
    classes: Labels | None = None,
    bar: Bar | None = None,
) -> pl.DataFrame | None:
    """Return ``zero_shot_table`` on the images of a source, or on the encoder's held-out images.

    Args:
        encoder: The encoder.
        decomposition: The decomposition of its space.
        how: The recipe of the decomposition.
        check: A source; None uses the encoder's validation and test images.
        limit: The maximum number of images.
        classes: The classes among which images of ``check`` are classified. They may differ from
            the labels that the decomposition was learnt from: the paper learns from ImageNet-21K
            and evaluates on ImageNet's 1000 classes.
        bar: A progress bar.

    Returns:
        The table, or None if there are no images.
    """
    if check is not None:
        space = classes or labels_of(how.labels)
        source = core.source(check, space)
        samples = hashed_order(source, lambda sample: [sample.id])[:limit]
        examples = examples_of(encoder, Source(source.name, samples))
        return zero_shot_table(encoder, decomposition, replace(how, labels=space.names), examples, bar)
    if encoder.examples is None or how.labels != encoder.labels or how.styles != encoder.styles:
        return None
    parts = {
        part: zero_shot_table(encoder, decomposition, how, encoder.examples(part, limit))
        for part in ("validation", "test")
    }
    return pl.concat([frame.select(pl.lit(part).alias("images"), "*") for part, frame in parts.items()])
