"""Learning a split for a referee, keeping it, and asking what its halves still know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.core import Source
from sorites.errors import SoritesError
from sorites.files import cache, write_bytes
from sorites.labels import labels as labels_of
from sorites.measures._decompose import Split, Training, decompose
from sorites.measures._texts import LOOKS, Looks, triplets
from sorites.measures._zero_shot import accuracies
from sorites.referees._referee import Examples, Referee, features
from sorites.rng import digest

COUNT = 4000
"""Triplets, where none are asked for."""

Each = Callable[[int, float], None]


@dataclass(frozen=True)
class Recipe:
    """What a split follows from besides the referee."""

    labels: tuple[str, ...]
    looks: tuple[tuple[str, ...], ...]
    count: int
    training: Training

    def key(self, referee: Referee) -> str:
        return digest(referee.version, json.dumps(asdict(self), sort_keys=True)).hex()


def recipe(
    referee: Referee, labels: Sequence[str] = (), looks: Looks = (), count: int = COUNT, training: Training | None = None
) -> Recipe:
    """The texts asked for, else those the referee was made for, else our own looks."""
    named, looked = tuple(labels or referee.labels), tuple(map(tuple, looks or referee.looks or LOOKS))
    if not named:
        raise SoritesError(f"referee {referee.name} has no labels of its own: name some with --labels FILE, one a line")
    return Recipe(named, looked, count, training or Training())


def learn(referee: Referee, made: Recipe, each: Each = lambda epoch, loss: None) -> Split:
    """The split of a referee's space, from texts alone."""
    said = triplets(made.labels, made.looks, made.count, made.training.seed)
    return decompose(referee.texts(said.texts), said.places, made.training, each)


def kept(referee: Referee, made: Recipe, each: Each = lambda epoch, loss: None) -> Split:
    """The same from the user's cache, learnt the first time; a referee without a version is not kept."""
    if not referee.version:
        return learn(referee, made, each)
    path = cache("splits", f"{made.key(referee)}.safetensors")
    if not path.exists():
        save(path, learn(referee, made, each), referee, made)
    return load(path, referee)


def save(path: Path, split: Split, referee: Referee, made: Recipe) -> None:
    """W and all it follows from, as safetensors."""
    from safetensors.numpy import save as packed

    told = {"referee": referee.name, "version": referee.version, "recipe": json.dumps(asdict(made))}
    write_bytes(packed({"matrix": split.matrix}, metadata=told), path)


def load(path: str | Path, referee: Referee) -> Split:
    """A kept split, refused where another referee's space was split."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as held:
            told: Mapping[str, str] = held.metadata() or {}
            split = Split(held.get_tensor("matrix"))
    except (OSError, SafetensorError) as error:
        raise SoritesError(f'cannot read the split {path}: {error}. Make one with "sorites decompose train".') from error
    if told.get("version") != referee.version:
        raise SoritesError(f"{path} was learnt on {told.get('referee', 'another referee')}, not on {referee.name} as it is now")
    return split


def grid(referee: Referee, made: Recipe) -> NDArray[np.float32]:
    """Text features of labels x looks x D, each the mean over the look's templates."""
    rows = []
    for label in made.labels:
        said = [template.replace("{}", label) for look in made.looks for template in look]
        parts = np.split(referee.texts(said), np.cumsum([len(look) for look in made.looks])[:-1])
        rows.append(np.stack([part.mean(axis=0) for part in parts]))
    return np.stack(rows)


def judged(referee: Referee, split: Split, made: Recipe, examples: Examples) -> pl.DataFrame:
    """Zero-shot accuracy of class by each half, PCA's halves and the whole (the paper's table 3), and of the look by the same."""
    texts = grid(referee, made)
    of_class = accuracies(split, examples.features, examples.label, texts.mean(axis=1), texts)
    frames = [of_class.with_columns(of=pl.lit("class"), chance=pl.lit(1 / len(made.labels)))]
    if (examples.look >= 0).all():
        of_look = accuracies(split, examples.features, examples.look, texts.mean(axis=0), texts)
        frames.append(of_look.with_columns(of=pl.lit("look"), chance=pl.lit(1 / len(made.looks))))
    return pl.concat(frames).select("of", "part", "value", "n", "chance")


def examples_of(referee: Referee, source: Source) -> Examples:
    """Labelled pictures of a source as examples; their looks are not known."""
    held = [sample for sample in source if sample.label is not None]
    if not held:
        raise SoritesError(f"the source {source.name} has no labelled pictures to check a split on")
    found = features(referee, ((sample.load(), sample.framed) for sample in held))
    labels = np.array([sample.label for sample in held], np.int64)
    return Examples(found, labels, np.full(len(held), -1, np.int64))


def report(referee: Referee, split: Split, made: Recipe, check: str | None, limit: int | None) -> pl.DataFrame | None:
    """``judged`` on the pictures of a source, else on those the referee holds out: first to choose by, then to test by."""
    if check is not None:
        source = core.source(check, labels_of(made.labels))
        fair = sorted(source, key=lambda sample: digest(sample.id))[:limit]
        return judged(referee, split, made, examples_of(referee, Source(source.name, fair)))
    if referee.examples is None or made.labels != referee.labels or made.looks != referee.looks:
        return None
    parts = {part: judged(referee, split, made, referee.examples(part, limit)) for part in ("validation", "test")}
    return pl.concat([frame.select(pl.lit(part).alias("pictures"), "*") for part, frame in parts.items()])
