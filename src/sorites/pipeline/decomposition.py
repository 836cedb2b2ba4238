"""The decomposition of a referee's space into meaning and appearance: learn it, keep it, and test what its halves still know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.core import Examples, Referee, Source
from sorites.errors import SoritesError
from sorites.files import cache, write_bytes
from sorites.labels import labels as labels_of
from sorites.measures._decompose import Decomposition, Training, decompose
from sorites.measures._texts import STYLES, Styles, triplets
from sorites.measures._zero_shot import accuracies
from sorites.referees._features import features
from sorites.rng import digest, fair_order

COUNT = 4000
"""How many triplets are used where no number is given."""

Each = Callable[[int, float], None]
"""A function that is called with the number and the mean loss of every epoch."""


@dataclass(frozen=True)
class Recipe:
    """Everything that a decomposition follows from besides the referee."""

    labels: tuple[str, ...]
    styles: tuple[tuple[str, ...], ...]
    count: int
    training: Training

    def record(self) -> dict[str, object]:
        """Return the recipe as plain data. Its keys are hashed and written to files, so they keep their first names."""
        return {"labels": self.labels, "looks": self.styles, "count": self.count, "training": asdict(self.training)}

    def key(self, referee: Referee) -> str:
        """Return the name under which the decomposition of a referee's space is cached."""
        return digest(referee.version, json.dumps(self.record(), sort_keys=True)).hex()


def recipe(
    referee: Referee, labels: Sequence[str] = (), styles: Styles = (), count: int = COUNT, training: Training | None = None
) -> Recipe:
    """Return a recipe of the texts given, else of those that the referee was made for, else of our own styles."""
    names, groups = tuple(labels or referee.labels), tuple(map(tuple, styles or referee.styles or STYLES))
    if not names:
        raise SoritesError(f"referee {referee.name} has no labels of its own: name some with --labels FILE, one per line")
    return Recipe(names, groups, count, training or Training())


def learn(referee: Referee, how: Recipe, each: Each = lambda epoch, loss: None) -> Decomposition:
    """Learn the decomposition of a referee's space from texts alone."""
    made = triplets(how.labels, how.styles, how.count, how.training.seed)
    return decompose(referee.texts(made.texts), made.places, how.training, each)


def cached(referee: Referee, how: Recipe, each: Each = lambda epoch, loss: None) -> Decomposition:
    """Return the decomposition from the user's cache, learning it the first time; without a version nothing is cached."""
    if not referee.version:
        return learn(referee, how, each)
    path = cache("splits", f"{how.key(referee)}.safetensors")
    if not path.exists():
        save(path, learn(referee, how, each), referee, how)
    return load(path, referee)


def save(path: Path, decomposition: Decomposition, referee: Referee, how: Recipe) -> None:
    """Write W and everything it follows from, as safetensors."""
    from safetensors.numpy import save as packed

    metadata = {"referee": referee.name, "version": referee.version, "recipe": json.dumps(how.record())}
    write_bytes(packed({"matrix": decomposition.matrix}, metadata=metadata), path)


def load(path: str | Path, referee: Referee) -> Decomposition:
    """Read a decomposition; one that was learnt in another referee's space is refused."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            decomposition = Decomposition(file.get_tensor("matrix"))
    except (OSError, SafetensorError) as error:
        raise SoritesError(f'cannot read the decomposition {path}: {error}. Make one with "sorites decompose train".') from error
    if metadata.get("version") != referee.version:
        learnt_on = metadata.get("referee", "another referee")
        raise SoritesError(f"{path} was learnt on {learnt_on}, not on {referee.name} as it is now")
    return decomposition


def text_grid(referee: Referee, how: Recipe) -> NDArray[np.float32]:
    """Return text features of labels x styles x D, each the mean over the style's templates."""
    rows = []
    for label in how.labels:
        texts = [template.replace("{}", label) for style in how.styles for template in style]
        parts = np.split(referee.texts(texts), np.cumsum([len(style) for style in how.styles])[:-1])
        rows.append(np.stack([part.mean(axis=0) for part in parts]))
    return np.stack(rows)


def zero_shot_table(referee: Referee, decomposition: Decomposition, how: Recipe, examples: Examples) -> pl.DataFrame:
    """Return zero-shot accuracy of the class by each half, PCA's halves and the whole (the paper's table 3), and of the style."""
    texts = text_grid(referee, how)
    of_class = accuracies(decomposition, examples.features, examples.label, texts.mean(axis=1), texts)
    frames = [of_class.with_columns(of=pl.lit("class"), chance=pl.lit(1 / len(how.labels)))]
    if (examples.style >= 0).all():
        of_style = accuracies(decomposition, examples.features, examples.style, texts.mean(axis=0), texts)
        frames.append(of_style.with_columns(of=pl.lit("style"), chance=pl.lit(1 / len(how.styles))))
    return pl.concat(frames).select("of", "part", "value", "n", "chance")


def examples_of(referee: Referee, source: Source) -> Examples:
    """Return the labelled pictures of a source as examples; their styles are not known."""
    labelled = [sample for sample in source if sample.label is not None]
    if not labelled:
        raise SoritesError(f"the source {source.name} has no labelled pictures to check a decomposition on")
    found = features(referee, ((sample.load(), sample.framed) for sample in labelled))
    labels = np.array([sample.label for sample in labelled], np.int64)
    return Examples(found, labels, np.full(len(labelled), -1, np.int64))


def report(
    referee: Referee, decomposition: Decomposition, how: Recipe, check: str | None, limit: int | None
) -> pl.DataFrame | None:
    """Return ``zero_shot_table`` on the pictures of a source, else on those that the referee holds out.

    Those are first the validation part, to choose by, then the test part. None where there are no such pictures.
    """
    if check is not None:
        source = core.source(check, labels_of(how.labels))
        fair = fair_order(source, lambda sample: [sample.id])[:limit]
        return zero_shot_table(referee, decomposition, how, examples_of(referee, Source(source.name, fair)))
    if referee.examples is None or how.labels != referee.labels or how.styles != referee.styles:
        return None
    parts = {part: zero_shot_table(referee, decomposition, how, referee.examples(part, limit)) for part in ("validation", "test")}
    return pl.concat([frame.select(pl.lit(part).alias("pictures"), "*") for part, frame in parts.items()])
