"""Analyse stored features: how well images cluster by class at each setting, and two-dimensional maps."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sorites.core import CLEAN
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.core.table import Table, read
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.tensors import read_tensors
from sorites.io.stores import to_path
from sorites.metrics.camera import AUTO, DIALS, SETTING, setting_accuracy, with_settings
from sorites.metrics.intervals import Z, wilson_interval
from sorites.metrics.rows import SHIFTED, judged_rows, select_rows

# Feature vectors by image id.
Vectors = dict[str, NDArray[np.float32]]
# Takes a model name and image ids; returns the stored vectors.
Features = Callable[[str, Collection[str]], Vectors]


def read_features(run: str | Path, model: str, images: Collection[str]) -> Vectors:
    """Return the stored features of a model for these images.

    Images without stored features, such as refinement probes, are left out.
    """
    requested, vectors = frozenset(images), Vectors()
    for path in shards.all_features(to_path(run), model) if requested else ():
        header, arrays = read_tensors(path, ("image_id",), ("features",))
        ids = header["image_id"]
        rows = [row for row, image in enumerate(ids) if image in requested]
        if rows and "features" in arrays:
            vectors |= zip(
                [ids[row] for row in rows], arrays["features"][rows].reshape(len(rows), -1), strict=True
            )
    return vectors


def features_reader(run: str | Path) -> Features | None:
    """Return a reader of the features of a run folder, or None if it has none."""
    folder = to_path(run)
    if not shards.tensor_files(folder, shards.FEATURES):
        return None
    return lambda model, images: read_features(folder, model, images)


# --- Cluster quality and maps (NumPy; t-SNE needs scikit-learn, UMAP umap-learn)


Array = NDArray[np.float64]
DISTANCES = ("cosine", "euclidean")
# Iterations and maximum perplexity of t-SNE, and the fewest points it is run on.
TSNE_STEPS, TSNE_PERPLEXITY, TSNE_LEAST = 500, 30.0, 10
UMAP_NEIGHBOURS = 15


def prepared(features: NDArray[np.floating], distance: str = "cosine") -> Array:
    """Return features (N x D) in float64, scaled to unit length for the cosine distance; zeros stay zeros."""
    if distance not in DISTANCES:
        raise UnknownName(
            "distance of features", distance, DISTANCES, f"There are {' and '.join(DISTANCES)}."
        )
    rows = np.asarray(features, np.float64)
    if distance == "euclidean":
        return rows
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def distances(rows: Array, distance: str = "cosine") -> Array:
    """Return the pairwise distances (N x N) of prepared features; cosine distance is 1 - cosine."""
    pairwise: Array = cdist(rows, rows) if distance == "euclidean" else np.clip(1 - rows @ rows.T, 0, 2)
    np.fill_diagonal(pairwise, 0)
    return pairwise


def silhouette(apart: Array, labels: NDArray[np.integer]) -> tuple[float, float | None] | None:
    """Return the mean silhouette (Rousseeuw 1987) and its standard error.

    An image's silhouette is (b - a) / max(a, b), where a is its mean distance to the other images of its
    class and b that to the nearest other class; it is 0 for the only image of a class. The error is the
    jackknife over images, which is valid although silhouettes share neighbours.

    Args:
        apart: Pairwise distances (N x N).
        labels: Class of each image.

    Returns:
        None with fewer than two classes, or if no class has two images. The error is None if
        leaving out one image would leave a single class.
    """
    classes = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(classes)
    n, rows = len(classes), np.arange(len(classes))
    if len(counts) < 2 or len(counts) == n:
        return None
    sums = np.stack([apart[:, classes == k].sum(axis=1) for k in range(len(counts))], axis=1)
    inside = sums[rows, classes] / np.maximum(counts[classes] - 1, 1)
    nearest = _Nearest.of(sums, classes, counts)
    value = float(_silhouettes(inside, nearest.first, counts[classes]).mean())
    left_out = np.array([_without(k, apart, classes, counts, sums, nearest, inside) for k in range(n)])
    if not np.isfinite(left_out).all():
        return value, None
    return value, float(np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)))


@dataclass(frozen=True)
class _Nearest:
    """Mean distance of each image to its nearest other class, that class, and the second nearest distance."""

    first: Array
    which: NDArray[np.integer]
    second: Array

    @classmethod
    def of(cls, sums: Array, classes: NDArray[np.integer], counts: NDArray[np.integer]) -> _Nearest:
        rows, others = np.arange(len(classes)), sums / counts
        others[rows, classes] = np.inf
        which = others.argmin(axis=1)
        first = others[rows, which].copy()
        others[rows, which] = np.inf
        return cls(first, which, others.min(axis=1))


def _silhouettes(inside: Array, outside: Array, counts: NDArray[np.integer]) -> Array:
    widest = np.maximum(inside, outside)
    scores: Array = np.where(
        (counts > 1) & (widest > 0), (outside - inside) / np.where(widest > 0, widest, 1), 0.0
    )
    return scores


def _without(
    k: int,
    apart: Array,
    classes: NDArray[np.integer],
    counts: NDArray[np.integer],
    sums: Array,
    nearest: _Nearest,
    inside: Array,
) -> float:
    """Return the mean silhouette without image ``k``; only distances to its class change."""
    own_class, remaining = classes[k], counts[classes[k]] - 1
    if remaining == 0 and len(counts) == 2:
        return float("nan")
    sums_without = sums[:, own_class] - apart[:, k]
    same = classes == own_class
    within = np.where(same, sums_without / max(remaining - 1, 1), inside)
    rest = np.where(nearest.which == own_class, nearest.second, nearest.first)
    beyond = np.where(
        same, nearest.first, np.minimum(rest, sums_without / remaining if remaining else np.inf)
    )
    keep = np.arange(len(classes)) != k
    return float(_silhouettes(within, beyond, np.where(same, remaining, counts[classes]))[keep].mean())


def nearest_centroid(rows: Array, labels: NDArray[np.integer]) -> tuple[float, int] | None:
    """Return the share of images nearest to the centroid of their own class, and the number evaluated.

    Each image is left out of its own centroid, so that chance level stays unbiased; the only image of a
    class is not evaluated. Distances are Euclidean between prepared features and class means. Returns None
    without two classes or an image to evaluate.
    """
    classes = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(classes)
    judged = counts[classes] > 1
    if len(counts) < 2 or not judged.any():
        return None
    centroids = np.stack([rows[classes == k].mean(axis=0) for k in range(len(counts))])
    apart = cdist(rows, centroids)
    own = np.arange(len(rows)), classes
    apart[own] *= counts[classes] / np.maximum(counts[classes] - 1, 1)
    return float((apart.argmin(axis=1) == classes)[judged].mean()), int(judged.sum())


def principal_map(rows: Array) -> tuple[Array, Array]:
    """Return the first two principal components (N x 2) and the share of variance along each.

    The sign of a component makes its greatest loading positive, so that equal features give equal maps.
    """
    centred = rows - rows.mean(axis=0)
    left, size, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    total = float((size**2).sum()) or 1.0
    components = (left * size * signs)[:, :2]
    return np.pad(components, ((0, 0), (0, 2 - components.shape[1]))), size[:2] ** 2 / total


def neighbour_map(rows: Array) -> Array | None:
    """Return a t-SNE map of features (N x 2; van der Maaten & Hinton 2008).

    Deterministic: initialised from the principal components, with a fixed seed and number of iterations,
    on one thread (thread synchronisation costs more than such a small map). Keep N to a few hundred: 300
    points take about a second. Returns None without scikit-learn or for too few points.
    """
    if len(rows) < TSNE_LEAST:
        return None
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None
    perplexity = min(TSNE_PERPLEXITY, (len(rows) - 1) / 3)
    with threadpool_limits(1):
        embedding: Array = TSNE(
            perplexity=perplexity, init="pca", random_state=0, max_iter=TSNE_STEPS
        ).fit_transform(rows)
    return embedding


def manifold_map(rows: Array) -> Array:
    """Return a UMAP map of features (N x 2; McInnes et al. 2018), with a fixed seed, on one thread.

    Raises:
        MissingExtra: umap-learn is not installed.
        SoritesError: There are too few points.
    """
    if len(rows) < TSNE_LEAST:
        raise SoritesError(f"UMAP needs at least {TSNE_LEAST} images, got {len(rows)}")
    try:
        library = importlib.import_module("umap")
    except ImportError as error:
        raise MissingExtra("a UMAP map", "umap") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells that a seed means one thread
        reduced = library.UMAP(n_neighbors=min(UMAP_NEIGHBOURS, len(rows) - 1), random_state=0, n_jobs=1)
        embedding: Array = np.asarray(reduced.fit_transform(rows), np.float64)
    return embedding


# --- Cluster numbers at each setting: clean, camera settings and severities

# Maximum number of samples per setting; larger sets are subsampled. ImageNet-ES has 1000 per split.
MAX_SAMPLES_PER_SETTING = 1000
# Number of feature vectors held in memory at a time, approximately.
VECTORS_IN_MEMORY = 20_000
NUMBERS = ("silhouette", "nearest centroid", "from clean")
PLACE = {
    "model": pl.String, "shift": pl.String, "what": pl.String, "light": pl.String, "severity": pl.Float64,
    **dict.fromkeys(DIALS, pl.Float64),
}  # fmt: skip
SCHEMA = pl.Schema(
    {
        **PLACE,
        "number": pl.String,
        "value": pl.Float64,
        "n": pl.Int64,
        "low": pl.Float64,
        "high": pl.Float64,
        "classes": pl.Int64,
    }
)


@dataclass(frozen=True)
class SettingImages:
    """One setting for one model, with one image per sample, its label and whether it is correct."""

    model: str
    shift: str
    what: str
    """``clean``, ``best``, ``worst``, ``auto``, ``manual`` (any other camera setting) or ``severity``."""
    images: pl.DataFrame = field(repr=False)
    light: str | None = None
    severity: float | None = None
    dials: tuple[float | None, ...] = (None, None, None)

    def names(self) -> dict[str, Any]:
        """Return the columns that identify the setting."""
        columns = {
            "model": self.model,
            "shift": self.shift,
            "what": self.what,
            "light": self.light,
            "severity": self.severity,
        }
        return columns | dict(zip(DIALS, self.dials, strict=True))


def run_clusters(run: str | Path, distance: str = "cosine", every: bool = False) -> pl.DataFrame:
    """Return the cluster numbers of a run folder that has stored features; see ``clusters``."""
    features = features_reader(run)
    table = read(run)
    if features is None:
        raise SoritesError(f"{run} has no stored features; repeat the run with {option('keep_features')}.")
    models = sorted(table.select(pl.col("model").unique()).collect(engine="streaming")["model"].drop_nulls())
    return pl.concat([clusters(setting_images(table, model, every), features, distance) for model in models])


def clusters(at: Sequence[SettingImages], features: Features, distance: str = "cosine") -> pl.DataFrame:
    """Return three numbers per setting, each with ``n`` and a 95 % interval; ``classes`` counts the classes.

    ``silhouette`` runs from -1 to 1 (jackknife interval). ``nearest centroid`` is the share of images nearest
    to the centroid of their class, leave-one-out (Wilson interval). ``from clean`` is the mean distance
    between the features of an image and those of its own clean image (normal interval over samples). A
    number that cannot be computed, as with one class, is null.
    """
    clean = next((place.images for place in at if place.what == CLEAN), None)
    rows: list[dict[str, Any]] = []
    for batch in _batches(at):
        by_image = features(
            batch[0].model, _images([*(place.images for place in batch), *([] if clean is None else [clean])])
        )
        rows += [row for place in batch for row in _numbers(place, clean, by_image, distance)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _batches(at: Sequence[SettingImages]) -> Iterator[list[SettingImages]]:
    batch: list[SettingImages] = []
    for setting in at:
        if batch and sum(other.images.height for other in batch) + setting.images.height > VECTORS_IN_MEMORY:
            yield batch
            batch = []
        batch.append(setting)
    if batch:
        yield batch


def _images(frames: Sequence[pl.DataFrame]) -> Collection[str]:
    return {image for frame in frames for image in frame["image_id"]}


def vectors(place: SettingImages, by_image: Vectors) -> tuple[pl.DataFrame, Array]:
    """Return the images of a setting that have features, and their features as rows in the same order."""
    available = place.images.filter(pl.col("image_id").is_in(list(by_image)))
    rows = [by_image[image] for image in available["image_id"]]
    return available, np.stack(rows).astype(np.float64) if rows else np.zeros((0, 0))


def _numbers(
    place: SettingImages, clean: pl.DataFrame | None, by_image: Vectors, distance: str
) -> Iterator[dict[str, Any]]:
    available, raw = vectors(place, by_image)
    if not available.height:
        return
    rows, labels = prepared(raw, distance), available["label"].to_numpy()
    answers = {
        "silhouette": _silhouette(rows, labels, distance),
        "nearest centroid": _centroid(rows, labels),
        "from clean": _distance_from_clean(available, rows, clean, by_image, distance)
        if place.what != CLEAN
        else None,
    }
    shared = {**place.names(), "classes": len(set(labels))}
    for name, (value, n, low, high) in (
        (name, answer) for name, answer in answers.items() if answer is not None
    ):
        yield {**shared, "number": name, "value": value, "n": n, "low": low, "high": high}


Answer = tuple[float | None, int, float | None, float | None]


def _silhouette(rows: Array, labels: Any, distance: str) -> Answer:
    result = silhouette(distances(rows, distance), labels)
    if result is None:
        return None, len(rows), None, None
    value, error = result
    return (
        (value, len(rows), None, None) if error is None else (value, len(rows), *_within(value, error, -1, 1))
    )


def _within(value: float, error: float, least: float, most: float) -> tuple[float, float]:
    return max(least, value - Z * error), min(most, value + Z * error)


def _centroid(rows: Array, labels: Any) -> Answer:
    result = nearest_centroid(rows, labels)
    if result is None:
        return None, 0, None, None
    low, high = pl.DataFrame().select(**wilson_interval(pl.lit(result[0]), pl.lit(result[1]))).row(0)
    return *result, low, high


def _distance_from_clean(
    available: pl.DataFrame, rows: Array, clean: pl.DataFrame | None, by_image: Vectors, distance: str
) -> Answer | None:
    clean_images = {} if clean is None else dict(clean.select("sample_id", "image_id").iter_rows())
    pairs = [
        (i, by_image[clean_images[sample]])
        for i, sample in enumerate(available["sample_id"])
        if clean_images.get(sample) in by_image
    ]
    if not pairs:
        return None
    here, before = rows[[i for i, _ in pairs]], prepared(np.stack([row for _, row in pairs]), distance)
    apart = (
        np.linalg.norm(here - before, axis=1) if distance == "euclidean" else 1 - (here * before).sum(axis=1)
    )
    mean, n = float(apart.mean()), len(apart)
    if n < 2:
        return mean, n, None, None
    return (
        mean,
        n,
        *_within(mean, float(apart.std(ddof=1)) / n**0.5, 0, np.inf if distance == "euclidean" else 2),
    )


def setting_images(table: Table, model: str, every: bool = False) -> list[SettingImages]:
    """Return the settings of a model: clean, then those of its camera by light, then all severities.

    Of a camera grid, the best, worst and automatic settings under each light are taken (the best as in
    ``setting_table``); ``every`` adds the others. Of several automatic shots of a sample the first counts.
    Grids other than camera grids contribute nothing.
    """
    evaluated = judged_rows(select_rows(table.lazy().filter(pl.col("model") == model), ())[0])
    rows = evaluated.drop_nulls("label").select(COLUMNS).collect(engine="streaming")
    clean = _one_per_sample(rows.filter(pl.col("shift") == CLEAN))
    settings = [SettingImages(model, CLEAN, CLEAN, clean)] if clean.height else []
    settings += _camera_settings(with_settings(rows).collect(), model, every)
    for (shift, severity), part in (
        rows.filter(SHIFTED).sort("shift", "severity").group_by("shift", "severity", maintain_order=True)
    ):
        settings.append(
            SettingImages(model, str(shift), "severity", _one_per_sample(part), severity=float(severity))
        )
    return settings


def _camera_settings(rows: pl.DataFrame, model: str, every: bool) -> Iterator[SettingImages]:
    """Yield the settings of a camera, light on first; ties are ordered as in ``setting_table``."""
    settings = (
        setting_accuracy(rows, ["shift", *SETTING])
        .filter(pl.col("n") > 0)
        .sort("shift", "light", descending=[False, True])
    )
    rows_by_setting = rows.partition_by("shift", *SETTING, as_dict=True)
    for (shift, light), part in settings.group_by("shift", "light", maintain_order=True):
        manual, auto = part.filter(~AUTO), part.filter(AUTO)
        ends = {
            what: manual.sort("value", *DIALS, descending=[what == "best", False, False, False])
            for what in ("best", "worst")
        }
        chosen = [(what, row) for what, ordered in ends.items() for row in ordered.head(1).to_dicts()]
        chosen += [("auto", row) for row in auto.to_dicts()]
        rest = [row for row in manual.sort(DIALS).to_dicts() if row not in [row for _, row in chosen]]
        for what, row in [*chosen, *(("manual", row) for row in rest if every)]:
            images = _one_per_sample(rows_by_setting[shift, *(row[name] for name in SETTING)])
            dials = tuple(row[name] for name in DIALS)
            yield SettingImages(
                model, str(shift), what, images, None if light is None else str(light), dials=dials
            )


COLUMNS = (
    "run_id", "source", "split", "sample_id", "image_id", "label", "correct", "shift", "severity", "params",
    "model", "output", "valid", "probe", "error",
)  # fmt: skip


def _one_per_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one image per sample, at most ``MOST``, sorted by sample."""
    shot = pl.col("params").str.json_path_match("$.shot").cast(pl.Int64, strict=False)
    columns = ("source", "sample_id", "image_id", "label", "correct", "run_id")
    ordered = rows.select(*columns, shot=shot).sort("source", "sample_id", "shot", "image_id")
    first = ordered.unique(["source", "sample_id"], keep="first", maintain_order=True).drop("shot")
    if first.height <= MAX_SAMPLES_PER_SETTING:
        return first
    subsample = sorted(range(first.height), key=lambda i: digest(first["sample_id"][i]))[
        :MAX_SAMPLES_PER_SETTING
    ]
    return first[sorted(subsample)]
