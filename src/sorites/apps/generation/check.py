"""Check generated images against their words: text alignment step by step, the filter's cut, and
the nearest real images.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.analysis.filter.encoders import images_encoder
from sorites.analysis.filter.rules import read_thresholds, stays
from sorites.analysis.filter.rules import similarities_of_features as similarities
from sorites.apps.generation.concepts import shift_words
from sorites.apps.generation.images import BY_TEXT, MANIFEST
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet, labels
from sorites.core.samples import ImageU8
from sorites.io.files import write_bytes
from sorites.io.tables import sheet
from sorites.measures.distributions import frechet, kernel, with_interval
from sorites.measures.neighbours import directions
from sorites.metrics.intervals import wilson_interval
from sorites.sources.decode import SUFFIXES, decode

Texts = Callable[[Sequence[str]], NDArray[np.floating]]
Images = Callable[[Sequence[ImageU8]], NDArray[np.floating]]
BATCH = 32


def manifest(folder: Path) -> pl.DataFrame:
    """Return the manifest of a folder of generated images."""
    if not (folder / MANIFEST).is_file():
        raise SoritesError(
            f'{folder} has no {MANIFEST}: wanted the folder of "sorites generate images --out DIR",'
            " finished; type that again"
        )
    frame = sheet(folder / MANIFEST)
    missing = {"path", "shift", "class_name", "seed", "severity"} - set(frame.columns)
    if missing:
        raise SoritesError(
            f"{folder / MANIFEST}: wanted a column {', '.join(sorted(missing))}; is it a manifest of images?"
        )
    return frame.filter(~pl.col("shift").str.ends_with(BY_TEXT))


def features(folder: Path, paths: Sequence[str], encode: Images) -> NDArray[np.floating]:
    """Return an encoder's features of images, N x D, of length 1."""
    batches = (paths[start : start + BATCH] for start in range(0, len(paths), BATCH))
    parts = [np.asarray(encode([decode(folder / path) for path in batch])) for batch in batches]
    return directions(np.concatenate(parts), "images")


def aligned(rows: pl.DataFrame, seen: NDArray[np.floating], texts: Texts) -> pl.DataFrame:
    """Return the rows with 100 x the cosine to "a photo in SHIFT" beside each."""
    shifts = rows["shift"].unique(maintain_order=True).to_list()
    named = directions(np.asarray(texts([f"a photo in {shift_words(shift)}" for shift in shifts])), "texts")
    place = {shift: i for i, shift in enumerate(shifts)}
    cosine = 100 * (seen * named[[place[shift] for shift in rows["shift"]]]).sum(1)
    return rows.with_columns(alignment=pl.Series(cosine, dtype=pl.Float64))


def rises(rows: pl.DataFrame) -> pl.DataFrame:
    """Return per shift how often a step of the severity raises the alignment, among steps from a
    severity above 0 and among all.

    The paper counts the former: 73 % over all shifts. ``n`` is the number of those steps.
    """
    by = ("shift", "class_name", "seed")
    steps = rows.sort("severity").with_columns(
        before=pl.col("alignment").shift().over(by), at=pl.col("severity").shift().over(by)
    )
    steps = steps.filter(pl.col("before").is_not_null()).with_columns(
        up=pl.col("alignment") > pl.col("before")
    )
    both = [steps, steps.with_columns(shift=pl.lit("all"))] if steps["shift"].n_unique() > 1 else [steps]
    return (
        pl.concat(both)
        .group_by("shift", maintain_order=True)
        .agg(
            rises=pl.col("up").filter(pl.col("at") > 0).mean(),
            n=(pl.col("at") > 0).sum(),
            rises_from_0_too=pl.col("up").mean(),
            steps=pl.len(),
        )
    )


def cut(
    rows: pl.DataFrame, seen: NDArray[np.floating], alone: NDArray[np.floating], texts: Texts,
    thresholds: Mapping[str, float], rule: str = "paper",
) -> pl.DataFrame:  # fmt: skip
    """Return how many images the out-of-class filter keeps, per shift and severity, held against
    severity 0.
    """
    zero = {key: i for i, key in enumerate(_keys(rows)) if rows["severity"][i] == 0}
    places = [i for i, key in enumerate(_keys(rows)) if rows["severity"][i] != 0 and key in zero]
    if not places:
        raise SoritesError("the filter compares images with those at severity 0, and there are none")
    starts = [zero[key] for i, key in enumerate(_keys(rows)) if i in set(places)]
    some = rows[places]
    plain = [f"a photo of a {name}" for name in some["class_name"]]
    told = [f"{text} in {shift_words(shift)}" for text, shift in zip(plain, some["shift"], strict=True)]
    named = (np.asarray(texts(plain)), np.asarray(texts(told)))
    scores = similarities((seen[places], seen[starts]), named, (alone[places], alone[starts]))
    kept = some.with_columns(kept=stays(scores, thresholds, rule))
    return (
        kept.group_by("shift", "severity")
        .agg(before=pl.len(), after=pl.col("kept").sum())
        .sort("shift", "severity")
    )


def _keys(rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    return list(rows.select("shift", "class_name", "seed").iter_rows())


def nearest(
    rows: pl.DataFrame,
    seen: NDArray[np.floating],
    real: Sequence[str],
    known: NDArray[np.floating],
    count: int = 3,
) -> pl.DataFrame:
    """Return for each generated image the real ones nearest to it in an encoder's features
    (Figure 4), the nearest first.
    """
    if not real:
        raise SoritesError("wanted a folder with real images, found none")
    similar = seen @ known.T
    order = np.argsort(-similar, axis=1, kind="stable")[:, :count]
    found = {
        "path": rows["path"].to_list(),
        "nearest": [[real[j] for j in row] for row in order],
        "similarity": [[float(similar[i, j]) for j in row] for i, row in enumerate(order)],
    }
    return pl.DataFrame(found)


# Measure how near generated images are to real ones: distances of features, and how often a classifier
# is right.


DISTANCES = {"frechet": frechet, "kernel": kernel}


def images_in(folder: Path) -> list[str]:
    """Return the images of a folder: those at severity 0 of a folder with a manifest, each once;
    else all that are in it.
    """
    if (folder / MANIFEST).is_file():
        rows = (
            sheet(folder / MANIFEST)
            .filter(pl.col("severity") == 0)
            .unique(["class_name", "seed"], maintain_order=True)
        )
        return list(rows["path"])
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.name.lower().endswith(SUFFIXES)
    )
    if not folder.is_dir() or not names:
        raise SoritesError(f"wanted a folder with images, found none in {folder}")
    return names


def plain_features(folder: Path, names: Sequence[str], spec: str) -> NDArray[np.floating]:
    """Return the features of images as a named model gives them, N x D."""
    encode, _ = images_encoder(spec)
    some = (names[i : i + BATCH] for i in range(0, len(names), BATCH))
    return np.concatenate(
        [np.asarray(encode([decode(folder / name) for name in part], False)) for part in some]
    )


def distances(sets: Mapping[str, Path], real: Path, spec: str) -> pl.DataFrame:
    """Return Fréchet's distance and the kernel's of each set to the real images; the model of the
    features is in the name.
    """
    names = images_in(real)
    known = plain_features(real, names, spec)
    rows = []
    for called, folder in sets.items():
        mine = images_in(folder)
        seen = plain_features(folder, mine, spec)
        for kind, distance in DISTANCES.items():
            value, low, high = with_interval(distance, seen, known)
            told = {
                "images": called,
                "number": f"{kind} [{spec}]",
                "value": value,
                "low": low,
                "high": high,
            }
            rows.append({**told, "n": len(mine), "real": len(names)})
    return pl.DataFrame(rows)


def accuracies(sets: Mapping[str, Path], spec: str) -> pl.DataFrame:
    """Return how often a model is right on the images at severity 0 of each set, with Wilson's interval."""
    rows = []
    for called, folder in sets.items():
        right = _right(folder, spec)
        rows.append(
            {
                "images": called,
                "number": f"accuracy [{spec}]",
                "value": float(np.mean(right)),
                "n": len(right),
            }
        )
    frame = pl.DataFrame(rows)
    return frame.with_columns(**wilson_interval(pl.col("value"), pl.col("n"))).select(
        "images", "number", "value", "low", "high", "n", real=pl.lit(None, pl.Int64)
    )


def _right(folder: Path, spec: str) -> list[bool]:
    if not (folder / MANIFEST).is_file():
        raise SoritesError(f"{folder} has no {MANIFEST}, which names the classes that accuracy asks for")
    rows = (
        sheet(folder / MANIFEST)
        .filter(pl.col("severity") == 0)
        .unique(["class_name", "seed"], maintain_order=True)
    )
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


# The check of a folder of generated images, with encoders by name.


@dataclass(frozen=True)
class Checked:
    """Results: how often the likeness rises, what the filter cuts, and the page of nearest real
    images, if some were given.
    """

    rises: pl.DataFrame
    cut: pl.DataFrame
    nearest: Path | None = None


def check_realism(
    folder: Path,
    plain: Path | None = None,
    real: Path | None = None,
    features: str | None = None,
    model: str | None = None,
) -> pl.DataFrame | None:
    """Return how near images are to real ones and how often a model is right on them, beside
    those of plain prompts.
    """
    sets = {str(folder): folder, **({} if plain is None else {str(plain): plain})}
    if features is not None and real is None:
        raise SoritesError("--features wants real images to measure against: add --real DIR")
    parts = [distances(sets, real, features)] if real is not None and features is not None else []
    parts += [accuracies(sets, model)] if model is not None else []
    return pl.concat(parts, how="vertical_relaxed") if parts else None


def check_images(
    folder: Path, encoder: str, second: str | None = None, thresholds: str = "published", rule: str = "paper",
    real: Path | None = None, out: Path | None = None,
) -> Checked:  # fmt: skip
    """Check the images of a folder with an encoder and, for the filter, a second encoder; the
    encoder is both by default.
    """
    rows = manifest(folder)
    judge = core.encoder(encoder)
    encode, _ = images_encoder(second or encoder)

    def joint(images: Sequence[ImageU8]) -> NDArray[np.floating]:
        return judge.images(images, False)

    def alone(images: Sequence[ImageU8]) -> NDArray[np.floating]:
        return encode(images, False)

    paths = rows["path"].to_list()
    seen, own = features(folder, paths, joint), features(folder, paths, alone)
    found = aligned(rows, seen, judge.texts)
    limits = read_thresholds(thresholds).values
    if limits is None:
        raise SoritesError(
            "--thresholds: wanted published or a file; calibrating needs labels by hand: sorites filter RUN"
        )
    kept = cut(rows, seen, own, judge.texts, limits, rule)
    return Checked(
        rises(found),
        kept,
        None if real is None else _nearest(rows, own, real, alone, out or folder / "nearest.parquet"),
    )


def _nearest(rows: pl.DataFrame, own: NDArray[np.floating], real: Path, alone: Images, out: Path) -> Path:
    names = sorted(
        path.relative_to(real).as_posix() for path in real.rglob("*") if path.name.lower().endswith(SUFFIXES)
    )
    if not real.is_dir() or not names:
        raise SoritesError(f"--real: wanted a folder with images, found none in {real}")
    found = nearest(rows, own, names, features(real, names, alone))
    buffer = io.BytesIO()
    found.write_parquet(buffer)
    write_bytes(buffer.getvalue(), out)
    return out
