"""Check generated images: text alignment by severity, out-of-class filter, nearest real images, realism."""

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
from sorites.analysis.filter.encoders import load_image_encoder
from sorites.analysis.filter.filtering import RULES
from sorites.analysis.filter.rules import is_kept, read_thresholds, similarities_of_features
from sorites.apps.generation.concepts import shift_words
from sorites.apps.generation.images import BY_TEXT, MANIFEST
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import imagenet, labels
from sorites.core.messages import command, option
from sorites.core.samples import ImageU8
from sorites.io.decode import SUFFIXES, decode
from sorites.io.files import write_bytes
from sorites.io.tables import sheet
from sorites.measures.distributions import frechet, kernel, with_interval
from sorites.measures.neighbours import directions
from sorites.metrics.intervals import wilson_interval

Texts = Callable[[Sequence[str]], NDArray[np.floating]]
Images = Callable[[Sequence[ImageU8]], NDArray[np.floating]]
IMAGES_PER_BATCH = 32
# Generated images that are compared with all real ones at a time, which bounds the memory.
ROWS_PER_SEARCH = 256


def manifest(folder: Path) -> pl.DataFrame:
    """Read the manifest of a folder of generated images, without images shifted by text."""
    if not (folder / MANIFEST).is_file():
        raise SoritesError(
            f"{folder} has no {MANIFEST}: expected a finished folder of "
            f"{command('generate images', out='DIR')}; repeat that call"
        )
    frame = sheet(folder / MANIFEST)
    missing = {"path", "shift", "class_name", "seed", "severity"} - set(frame.columns)
    if missing:
        raise SoritesError(
            f"{folder / MANIFEST}: missing the column {', '.join(sorted(missing))}; is it a "
            "manifest of images?"
        )
    if frame["severity"].null_count():
        raise SoritesError(
            f"{folder} has images with two sliders at once, which have no severity to check; evaluate them:"
            f" {command('run', 'cns_bench')} and {command('metrics', 'interaction')}"
        )
    return frame.filter(~pl.col("shift").str.ends_with(BY_TEXT))


def features(folder: Path, paths: Sequence[str], encode: Images) -> NDArray[np.floating]:
    """Return an encoder's features of images, N x D."""
    batches = (paths[start : start + IMAGES_PER_BATCH] for start in range(0, len(paths), IMAGES_PER_BATCH))
    return np.concatenate(
        [np.asarray(encode([decode(folder / path) for path in batch])) for batch in batches]
    )


def aligned(rows: pl.DataFrame, image_features: NDArray[np.floating], texts: Texts) -> pl.DataFrame:
    """Add the column ``alignment``: 100 x the cosine to the text "a photo in SHIFT"."""
    shifts = rows["shift"].unique(maintain_order=True).to_list()
    text_features = directions(
        np.asarray(texts([f"a photo in {shift_words(shift)}" for shift in shifts])), "texts"
    )
    column = {shift: i for i, shift in enumerate(shifts)}
    cosine = 100 * (image_features * text_features[[column[shift] for shift in rows["shift"]]]).sum(1)
    return rows.with_columns(alignment=pl.Series(cosine, dtype=pl.Float64))


def rises(rows: pl.DataFrame) -> pl.DataFrame:
    """Return per shift how often a step in severity raises the alignment.

    ``rises`` counts steps from a severity above 0, ``rises_from_0_too`` all steps.

    The paper counts the former: 73 % over all shifts. ``n`` is the number of those steps.
    """
    by = ("shift", "class_name", "seed")
    steps = rows.sort("severity").with_columns(
        before=pl.col("alignment").shift().over(by), at=pl.col("severity").shift().over(by)
    )
    steps = steps.filter(pl.col("before").is_not_null()).with_columns(
        up=pl.col("alignment") > pl.col("before")
    )
    groups = [steps, steps.with_columns(shift=pl.lit("all"))] if steps["shift"].n_unique() > 1 else [steps]
    return (
        pl.concat(groups)
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
    thresholds: Mapping[str, float], rule: str = "paper", softmax: bool = False,
) -> pl.DataFrame:  # fmt: skip
    """Return how many images the out-of-class filter keeps, per shift and severity, compared with severity 0.

    Args:
        rows: The manifest.
        seen: Features of the image-text encoder.
        alone: Features of the second encoder.
        texts: Text encoder.
        thresholds: Thresholds of the filter.
        rule: Rule of the filter.
        softmax: Apply a softmax to the features of the second encoder.
    """
    keys, severities = _trajectory_keys(rows), rows["severity"].to_list()
    unshifted = {key: i for i, key in enumerate(keys) if severities[i] == 0}
    indices = [i for i, key in enumerate(keys) if severities[i] != 0 and key in unshifted]
    if not indices:
        raise SoritesError("the filter compares images with those at severity 0, and there are none")
    starts = [unshifted[keys[i]] for i in indices]
    shifted = rows[indices]
    plain = [f"a photo of a {name}" for name in shifted["class_name"]]
    shifted_texts = [
        f"{text} in {shift_words(shift)}" for text, shift in zip(plain, shifted["shift"], strict=True)
    ]
    text_features = (np.asarray(texts(plain)), np.asarray(texts(shifted_texts)))
    scores = similarities_of_features(
        (seen[indices], seen[starts]), text_features, (alone[indices], alone[starts]), softmax
    )
    filtered = shifted.with_columns(kept=is_kept(scores, thresholds, rule))
    return (
        filtered.group_by("shift", "severity")
        .agg(before=pl.len(), after=pl.col("kept").sum())
        .sort("shift", "severity")
    )


def _trajectory_keys(rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    return list(rows.select("shift", "class_name", "seed").iter_rows())


def nearest(
    rows: pl.DataFrame,
    image_features: NDArray[np.floating],
    real: Sequence[str],
    real_features: NDArray[np.floating],
    count: int = 3,
) -> pl.DataFrame:
    """Return for each generated image the most similar real images in an encoder's features (Figure 4)."""
    if not real:
        raise SoritesError("the folder of real images is empty")
    orders, values = [], []
    for start in range(0, len(image_features), ROWS_PER_SEARCH):
        similar = image_features[start : start + ROWS_PER_SEARCH] @ real_features.T
        orders.append(np.argsort(-similar, axis=1, kind="stable")[:, :count])
        values.append(np.take_along_axis(similar, orders[-1], 1))
    columns = {
        "path": rows["path"].to_list(),
        "nearest": [[real[j] for j in row] for row in np.concatenate(orders)],
        "similarity": np.concatenate(values).astype(np.float64).tolist(),
    }
    return pl.DataFrame(columns)


# Realism: feature distances to real images, and classifier accuracy.


DISTANCES = {"frechet": frechet, "kernel": kernel}


def images_in(folder: Path) -> list[str]:
    """Return the images at severity 0 of a folder with a manifest, or else all images of a folder."""
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
        raise SoritesError(f"no images found in {folder}")
    return names


def plain_features(folder: Path, names: Sequence[str], spec: str) -> NDArray[np.floating]:
    """Return a model's features of images, N x D."""
    encode, _ = load_image_encoder(spec)
    batches = (names[i : i + IMAGES_PER_BATCH] for i in range(0, len(names), IMAGES_PER_BATCH))
    return np.concatenate(
        [np.asarray(encode([decode(folder / name) for name in part], False)) for part in batches]
    )


def distances(sets: Mapping[str, Path], real: Path, spec: str) -> pl.DataFrame:
    """Return the Fréchet and kernel distances of each set to the real images, for one feature model."""
    names = images_in(real)
    real_features = plain_features(real, names, spec)
    rows = []
    for set_name, folder in sets.items():
        generated = images_in(folder)
        generated_features = plain_features(folder, generated, spec)
        for kind, distance in DISTANCES.items():
            value, low, high = with_interval(distance, generated_features, real_features)
            row = {
                "images": set_name,
                "number": f"{kind} [{spec}]",
                "value": value,
                "low": low,
                "high": high,
            }
            rows.append({**row, "n": len(generated), "real": len(names)})
    return pl.DataFrame(rows)


def accuracies(sets: Mapping[str, Path], spec: str) -> pl.DataFrame:
    """Return a model's accuracy on the images at severity 0 of each set, with Wilson intervals."""
    rows = []
    for set_name, folder in sets.items():
        correct = _correct(folder, spec)
        rows.append(
            {
                "images": set_name,
                "number": f"accuracy [{spec}]",
                "value": float(np.mean(correct)),
                "n": len(correct),
            }
        )
    frame = pl.DataFrame(rows)
    return frame.with_columns(**wilson_interval(pl.col("value"), pl.col("n"))).select(
        "images", "number", "value", "low", "high", "n", real=pl.lit(None, pl.Int64)
    )


def _correct(folder: Path, spec: str) -> list[bool]:
    if not (folder / MANIFEST).is_file():
        raise SoritesError(f"{folder} has no {MANIFEST}, which names the classes needed for accuracy")
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
    ids, correct = imagenet().ids, []
    for batch in rows.iter_slices(IMAGES_PER_BATCH):
        logits = model([decode(folder / path) for path in batch["path"]], False).logits
        if logits is None:
            raise SoritesError(f"the model {spec} predicts no labels")
        for number, name, guess in zip(batch["class"], batch["class_name"], logits.argmax(1), strict=True):
            expected = space.get(name, *ids[number : number + 1])
            if expected is None:
                raise SoritesError(f"the model {spec} does not know the class {name}")
            correct.append(int(guess) == expected)
    return correct


# Checks of a folder, with encoders by name.


@dataclass(frozen=True)
class Checked:
    """Results of a check: alignment steps, filter counts, and nearest real images if requested."""

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
    """Return distances to real images and a model's accuracy, for one or two folders.

    Args:
        folder: Generated images.
        plain: Images of plain prompts to compare with.
        real: Real images, needed for distances.
        features: Model that provides features for distances.
        model: Model whose accuracy is measured.
    """
    sets = {str(folder): folder, **({} if plain is None else {str(plain): plain})}
    if features is not None and real is None:
        raise SoritesError(
            f"{option('features', None)} needs real images to compare with: add {option('real', 'DIR')}"
        )
    parts = [distances(sets, real, features)] if real is not None and features is not None else []
    parts += [accuracies(sets, model)] if model is not None else []
    return pl.concat(parts, how="vertical_relaxed") if parts else None


def check_images(
    folder: Path, encoder: str, second: str | None = None, thresholds: str = "published", rule: str = "paper",
    real: Path | None = None, out: Path | None = None, softmax: bool = False,
) -> Checked:  # fmt: skip
    """Check the images of a folder.

    The out-of-class filter sees whole images, as that of a run does.

    Args:
        folder: Folder with a manifest.
        encoder: Image-text encoder.
        second: Image encoder of the filter; by default ``encoder``.
        thresholds: ``"published"`` or a file.
        rule: Rule of the filter.
        real: Folder of real images to find nearest neighbours in.
        out: File for the nearest neighbours.
        softmax: Apply a softmax to the features of the filter's second encoder, as the released code does.
    """
    rows = manifest(folder)
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES, "Available: paper, code, text.")
    limits = read_thresholds(thresholds).values
    if limits is None:
        raise SoritesError(
            f"{option('thresholds', None)} must be published or a file; calibration needs manual "
            f"labels: {command('filter', 'RUN')}"
        )
    known = [] if real is None else _real_images(real)
    judge = core.encoder(encoder)
    encode, _ = load_image_encoder(second or encoder)

    def joint(images: Sequence[ImageU8]) -> NDArray[np.floating]:
        return judge.images(images, False)

    def alone(images: Sequence[ImageU8]) -> NDArray[np.floating]:
        return encode(images, False)

    paths = rows["path"].to_list()
    joint_features, own_features = features(folder, paths, joint), features(folder, paths, alone)
    with_alignment = aligned(rows, directions(joint_features, "images"), judge.texts)
    filtered = cut(rows, joint_features, own_features, judge.texts, limits, rule, softmax)
    return Checked(
        rises(with_alignment),
        filtered,
        None
        if real is None
        else _nearest(rows, own_features, (real, known), alone, out or folder / "nearest.parquet"),
    )


def _real_images(folder: Path) -> list[str]:
    """Return the images below a folder of real images."""
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.name.lower().endswith(SUFFIXES)
    )
    if not folder.is_dir() or not names:
        raise SoritesError(f"{option('real', None)}: no images found in {folder}")
    return names


def _nearest(
    rows: pl.DataFrame,
    own_features: NDArray[np.floating],
    real: tuple[Path, Sequence[str]],
    alone: Images,
    out: Path,
) -> Path:
    folder, names = real
    generated, known = (directions(part, "images") for part in (own_features, features(folder, names, alone)))
    table = nearest(rows, generated, names, known)
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    write_bytes(buffer.getvalue(), out)
    return out
