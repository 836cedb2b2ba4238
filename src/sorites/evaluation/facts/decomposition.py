"""The decomposition of an encoder's space into meaning and appearance: learn it, keep it, and test
what its halves still know.
"""

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
from sorites.core.progress import Bar, Tick
from sorites.core.rng import digest, fair_order
from sorites.encoders.features import features
from sorites.io.files import cache, write_bytes
from sorites.io.files import cached as kept
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

# The number of triplets where none is given.
COUNT = 4000

# The number of texts encoded at a time.
TEXTS = 16384

# A function that is called with the number and the mean loss of every epoch.
Each = Callable[[int, float], None]


@dataclass(frozen=True)
class Recipe:
    """Everything that a decomposition follows from besides the encoder."""

    labels: tuple[str, ...]
    styles: tuple[tuple[str, ...], ...]
    count: int
    training: Training

    def record(self) -> dict[str, object]:
        """Return the recipe as plain data. Its keys enter the names of cached files."""
        return {
            "labels": self.labels,
            "looks": self.styles,
            "count": self.count,
            "training": asdict(self.training),
        }

    def key(self, encoder: Encoder) -> str:
        """Return the name under which the decomposition of an encoder's space is cached."""
        return digest(encoder.version, json.dumps(self.record(), sort_keys=True)).hex()


def recipe(
    encoder: Encoder,
    labels: Sequence[str] = (),
    styles: Styles = (),
    count: int = COUNT,
    training: Training | None = None,
) -> Recipe:
    """Return a recipe of the texts given, else of those that the encoder was made for, else of our
    own styles.
    """
    names, groups = tuple(labels or encoder.labels), tuple(map(tuple, styles or encoder.styles or STYLES))
    if not names:
        raise SoritesError(
            f"encoder {encoder.name} has no labels of its own: name some with --labels FILE, one per line"
        )
    return Recipe(names, groups, count, training or Training())


def learn(
    encoder: Encoder, how: Recipe, each: Each = lambda epoch, loss: None, bar: Bar | None = None
) -> Decomposition:
    """Learn the decomposition of an encoder's space from texts alone."""
    made = triplets(how.labels, how.styles, how.count, how.training.seed)
    tick = bar("encoding", len(made.texts)) if bar else lambda n: None
    return decompose(
        np.concatenate(list(text_features(encoder, made.texts, tick))), made.places, how.training, each
    )


def text_features(encoder: Encoder, texts: Sequence[str], tick: Tick = lambda n: None) -> Iterator[Features]:
    """Yield the features of many texts, some thousands at a time."""
    for start in range(0, len(texts), TEXTS):
        some = texts[start : start + TEXTS]
        yield encoder.texts(some)
        tick(len(some))


def cached(encoder: Encoder, how: Recipe, each: Each = lambda epoch, loss: None) -> Decomposition:
    """Return the decomposition from the user's cache, learning it the first time; without a version
    nothing is cached.
    """
    if not encoder.version:
        return learn(encoder, how, each)
    path = cache("splits", f"{how.key(encoder)}.safetensors")
    return kept(
        path, lambda: _packed(learn(encoder, how, each), encoder, how), lambda path: load(path, encoder)
    )


def save(path: Path, decomposition: Decomposition, encoder: Encoder, how: Recipe) -> None:
    """Write W and everything it follows from, as safetensors."""
    write_bytes(_packed(decomposition, encoder, how), path)


def _packed(decomposition: Decomposition, encoder: Encoder, how: Recipe) -> bytes:
    from safetensors.numpy import save as packed

    metadata = {"encoder": encoder.name, "version": encoder.version, "recipe": json.dumps(how.record())}
    return packed({"matrix": decomposition.matrix}, metadata=metadata)


def load(path: str | Path, encoder: Encoder) -> Decomposition:
    """Read a decomposition; one that was learnt in another encoder's space is refused."""
    try:
        arrays, metadata = tensors(Path(path), ["matrix"])
    except SoritesError as error:
        raise SoritesError(f'{error}. Make a decomposition with "sorites decompose train".') from error
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

    A style counts as the mean over its templates. Some labels are encoded at a time, and only the
    means are held: 21 000 labels in 80 templates would take gigabytes.
    """
    templates = [template for style in how.styles for template in style]
    ends = np.cumsum([len(style) for style in how.styles])[:-1]
    step = max(1, TEXTS // len(templates))
    tick = bar("class texts", len(how.labels)) if bar else lambda n: None
    labels, styles = [], np.zeros((len(how.styles), 1))
    for start in range(0, len(how.labels), step):
        some = how.labels[start : start + step]
        found = encoder.texts([template.replace("{}", label) for label in some for template in templates])
        parts = np.split(found.reshape(len(some), len(templates), -1), ends, axis=1)
        grid = np.stack([part.mean(axis=1) for part in parts], axis=1)
        labels.append(grid.mean(axis=1))
        styles = styles + grid.sum(axis=0, dtype=np.float64)
        tick(len(some))
    return np.concatenate(labels), (styles / len(how.labels)).astype(np.float32)


def zero_shot_table(
    encoder: Encoder, decomposition: Decomposition, how: Recipe, examples: Examples, bar: Bar | None = None
) -> pl.DataFrame:
    """Return zero-shot accuracy of the class by each half, PCA's halves and the whole (the paper's
    table 3), and of the style.

    ``value`` is Acc@1 and ``top5`` Acc@5; ``chance`` is that of the first.
    """
    means = text_means(encoder, how, bar)
    of_class = accuracies(decomposition, examples.features, examples.label, means[0], means)
    frames = [of_class.with_columns(of=pl.lit("class"), chance=pl.lit(1 / len(how.labels)))]
    if (examples.style >= 0).all():
        of_style = accuracies(decomposition, examples.features, examples.style, means[1], means)
        frames.append(of_style.with_columns(of=pl.lit("style"), chance=pl.lit(1 / len(how.styles))))
    return pl.concat(frames).select("of", "part", "value", "top5", "n", "chance")


def examples_of(encoder: Encoder, source: Source) -> Examples:
    """Return the labelled images of a source as examples; their styles are not known."""
    labelled = [sample for sample in source if sample.label is not None]
    if not labelled:
        raise SoritesError(f"the source {source.name} has no labelled images to check a decomposition on")
    found = features(encoder, ((sample.load(), sample.framed) for sample in labelled))
    labels = np.array([sample.label for sample in labelled], np.int64)
    return Examples(found, labels, np.full(len(labelled), -1, np.int64))


def report(
    encoder: Encoder,
    decomposition: Decomposition,
    how: Recipe,
    check: str | None,
    limit: int | None,
    classes: Labels | None = None,
    bar: Bar | None = None,
) -> pl.DataFrame | None:
    """Return ``zero_shot_table`` on the images of a source, else on those that the encoder holds out.

    Those are first the validation part, to choose by, then the test part. None where there are no
    such images. The images of a source are told apart among ``classes``, which need not be the
    labels that the decomposition was learnt from: the paper learns from ImageNet-21K's and tells
    ImageNet's thousand apart.
    """
    if check is not None:
        space = classes or labels_of(how.labels)
        source = core.source(check, space)
        fair = fair_order(source, lambda sample: [sample.id])[:limit]
        examples = examples_of(encoder, Source(source.name, fair))
        return zero_shot_table(encoder, decomposition, replace(how, labels=space.names), examples, bar)
    if encoder.examples is None or how.labels != encoder.labels or how.styles != encoder.styles:
        return None
    parts = {
        part: zero_shot_table(encoder, decomposition, how, encoder.examples(part, limit))
        for part in ("validation", "test")
    }
    return pl.concat([frame.select(pl.lit(part).alias("images"), "*") for part, frame in parts.items()])
