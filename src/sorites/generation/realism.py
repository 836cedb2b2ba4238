"""Measure how near generated pictures are to real ones: distances of features, and how often a classifier is right.

Table 2a of CNS-Bench compares pictures of learnt words with those of plain prompts in this way, at severity 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.errors import SoritesError
from sorites.generation.pictures import MANIFEST
from sorites.labels import imagenet, labels
from sorites.measures._distributions import frechet, kernel, with_interval
from sorites.metrics._intervals import wilson_interval
from sorites.pipeline.encoders import pictures_encoder
from sorites.reading.frames import sheet
from sorites.sources._decode import SUFFIXES, decode

BATCH = 32
DISTANCES = {"frechet": frechet, "kernel": kernel}


def pictures_in(folder: Path) -> list[str]:
    """Return the pictures of a folder: those at severity 0 of a folder with a manifest, each once; else all that are in it."""
    if (folder / MANIFEST).is_file():
        rows = sheet(folder / MANIFEST).filter(pl.col("severity") == 0).unique(["class_name", "seed"], maintain_order=True)
        return list(rows["path"])
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.name.lower().endswith(SUFFIXES))
    if not folder.is_dir() or not names:
        raise SoritesError(f"wanted a folder with pictures, found none in {folder}")
    return names


def plain_features(folder: Path, names: Sequence[str], spec: str) -> NDArray[np.floating]:
    """Return the features of pictures as a named model gives them, N x D."""
    encode, _ = pictures_encoder(spec)
    some = (names[i : i + BATCH] for i in range(0, len(names), BATCH))
    return np.concatenate([np.asarray(encode([decode(folder / name) for name in part], False)) for part in some])


def distances(sets: Mapping[str, Path], real: Path, spec: str) -> pl.DataFrame:
    """Return Fréchet's distance and the kernel's of each set to the real pictures; the model of the features is in the name."""
    names = pictures_in(real)
    known = plain_features(real, names, spec)
    rows = []
    for called, folder in sets.items():
        mine = pictures_in(folder)
        seen = plain_features(folder, mine, spec)
        for kind, distance in DISTANCES.items():
            value, low, high = with_interval(distance, seen, known)
            told = {"pictures": called, "number": f"{kind} [{spec}]", "value": value, "low": low, "high": high}
            rows.append({**told, "n": len(mine), "real": len(names)})
    return pl.DataFrame(rows)


def accuracies(sets: Mapping[str, Path], spec: str) -> pl.DataFrame:
    """Return how often a model is right on the pictures at severity 0 of each set, with Wilson's interval."""
    rows = []
    for called, folder in sets.items():
        right = _right(folder, spec)
        rows.append({"pictures": called, "number": f"accuracy [{spec}]", "value": float(np.mean(right)), "n": len(right)})
    frame = pl.DataFrame(rows)
    return frame.with_columns(**wilson_interval(pl.col("value"), pl.col("n"))).select(
        "pictures", "number", "value", "low", "high", "n", real=pl.lit(None, pl.Int64)
    )


def _right(folder: Path, spec: str) -> list[bool]:
    if not (folder / MANIFEST).is_file():
        raise SoritesError(f"{folder} has no {MANIFEST}, which names the classes that accuracy asks for")
    rows = sheet(folder / MANIFEST).filter(pl.col("severity") == 0).unique(["class_name", "seed"], maintain_order=True)
    names = rows.select("class", "class_name").unique().sort("class")["class_name"].to_list()
    model = core.model(spec)
    space = labels(list(model.labels or names))
    if model.for_classes is not None:
        model = model.for_classes(names)
    ids, found = imagenet().ids, []
    for some in rows.iter_slices(BATCH):
        logits = model([decode(folder / path) for path in some["path"]], False).logits
        if logits is None:
            raise SoritesError(f"the model {spec} gives no labels")
        for number, name, guess in zip(some["class"], some["class_name"], logits.argmax(1), strict=True):
            want = space.get(name, *ids[number : number + 1])
            if want is None:
                raise SoritesError(f"the model {spec} does not know the class {name}")
            found.append(int(guess) == want)
    return found
