"""The features that a run kept (``--keep-features``), by image."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.core.table import Table, read
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.tensors import read_tensors
from sorites.io.stores import place
from sorites.metrics.camera import AUTO, DIALS, SETTING, setting_accuracy, with_settings
from sorites.metrics.intervals import Z, wilson_interval
from sorites.metrics.rows import SHIFTED, judged_rows, select_rows

# Image id to the image's feature vector.
Vectors = dict[str, NDArray[np.float32]]
# Takes a model and image ids, and returns the vectors of those that were kept.
Features = Callable[[str, Collection[str]], Vectors]


def kept_features(run: str | Path, model: str, images: Collection[str]) -> Vectors:
    """Return a model's features of these images, as far as the run kept them; images that refine
    a failure severity have none.
    """
    wanted, found = frozenset(images), Vectors()
    for path in shards.all_features(place(run), model) if wanted else ():
        about, arrays = read_tensors(path, ("image_id",), ("features",))
        ids = about["image_id"]
        rows = [row for row, image in enumerate(ids) if image in wanted]
        if rows and "features" in arrays:
            found |= zip(
                [ids[row] for row in rows], arrays["features"][rows].reshape(len(rows), -1), strict=True
            )
    return found


def features_of(run: str | Path) -> Features | None:
    """Return a way to read the features of a run folder, or None where it kept none."""
    folder = place(run)
    if not any((folder / "features").glob("*.safetensors")):
        return None
    return lambda model, images: kept_features(folder, model, images)


# Measure how well features of images cluster by class, and map them in two dimensions. NumPy alone, but
# for t-SNE.


Array = NDArray[np.float64]
DISTANCES = ("cosine", "euclidean")
# The steps and the greatest perplexity of t-SNE, and the fewest points that are worth a map.
TSNE_STEPS, TSNE_PERPLEXITY, TSNE_LEAST = 500, 30.0, 10


def prepared(features: NDArray[np.floating], distance: str = "cosine") -> Array:
    """Return features (N x D) as double precision, of unit length where they are compared by
    cosine; zeros stay zeros.
    """
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
    """Return the distances (N x N) between all pairs of prepared features; the cosine distance is 1
    minus the cosine.
    """
    found: Array = cdist(rows, rows) if distance == "euclidean" else np.clip(1 - rows @ rows.T, 0, 2)
    np.fill_diagonal(found, 0)
    return found


def silhouette(apart: Array, labels: NDArray[np.integer]) -> tuple[float, float | None] | None:
    """Return the mean silhouette (Rousseeuw 1987) and its standard error, or None with fewer than
    two classes or no pair.

    An image's silhouette is (b - a) / max(a, b): a is its mean distance to the others of its
    class, b that to the nearest other class; it is 0 for the only image of a class. The error is
    the jackknife's over images, which holds although silhouettes share their neighbours; it is
    None where a class cannot be spared.
    """
    places = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(places)
    n, rows = len(places), np.arange(len(places))
    if len(counts) < 2 or len(counts) == n:
        return None
    sums = np.stack([apart[:, places == k].sum(axis=1) for k in range(len(counts))], axis=1)
    inside = sums[rows, places] / np.maximum(counts[places] - 1, 1)
    nearest = _Nearest.of(sums, places, counts)
    value = float(_silhouettes(inside, nearest.first, counts[places]).mean())
    left_out = np.array([_without(k, apart, places, counts, sums, nearest, inside) for k in range(n)])
    if not np.isfinite(left_out).all():
        return value, None
    return value, float(np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)))


@dataclass(frozen=True)
class _Nearest:
    """Each image's mean distance to the nearest other class, which class that is, and the
    distance to the second nearest.
    """

    first: Array
    which: NDArray[np.integer]
    second: Array

    @classmethod
    def of(cls, sums: Array, places: NDArray[np.integer], counts: NDArray[np.integer]) -> _Nearest:
        rows, others = np.arange(len(places)), sums / counts
        others[rows, places] = np.inf
        which = others.argmin(axis=1)
        first = others[rows, which].copy()
        others[rows, which] = np.inf
        return cls(first, which, others.min(axis=1))


def _silhouettes(inside: Array, outside: Array, counts: NDArray[np.integer]) -> Array:
    widest = np.maximum(inside, outside)
    found: Array = np.where(
        (counts > 1) & (widest > 0), (outside - inside) / np.where(widest > 0, widest, 1), 0.0
    )
    return found


def _without(
    k: int,
    apart: Array,
    places: NDArray[np.integer],
    counts: NDArray[np.integer],
    sums: Array,
    nearest: _Nearest,
    inside: Array,
) -> float:
    """Return the mean silhouette without image ``k``: only distances to its class change."""
    of, left = places[k], counts[places[k]] - 1
    if left == 0 and len(counts) == 2:
        return float("nan")
    nearer = sums[:, of] - apart[:, k]
    same = places == of
    within = np.where(same, nearer / max(left - 1, 1), inside)
    rest = np.where(nearest.which == of, nearest.second, nearest.first)
    beyond = np.where(same, nearest.first, np.minimum(rest, nearer / left if left else np.inf))
    keep = np.arange(len(places)) != k
    return float(_silhouettes(within, beyond, np.where(same, left, counts[places]))[keep].mean())


def nearest_centroid(rows: Array, labels: NDArray[np.integer]) -> tuple[float, int] | None:
    """Return the share of images that are nearest to the centroid of their own class, and how
    many were judged.

    Each image is left out of its own centroid, so that chance stays chance; the only image of a
    class is not judged. Distances are Euclidean between prepared features and the mean of a class.
    None without two classes or an image to judge.
    """
    places = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(places)
    judged = counts[places] > 1
    if len(counts) < 2 or not judged.any():
        return None
    centroids = np.stack([rows[places == k].mean(axis=0) for k in range(len(counts))])
    apart = cdist(rows, centroids)
    own = np.arange(len(rows)), places
    apart[own] *= counts[places] / np.maximum(counts[places] - 1, 1)
    return float((apart.argmin(axis=1) == places)[judged].mean()), int(judged.sum())


def principal_map(rows: Array) -> tuple[Array, Array]:
    """Return the first two principal components of features (N x 2) and the share of the variance along each.

    The sign of a component is such that its greatest loading is positive, so that the same features
    give the same map.
    """
    centred = rows - rows.mean(axis=0)
    left, size, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    total = float((size**2).sum()) or 1.0
    found = (left * size * signs)[:, :2]
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1]))), size[:2] ** 2 / total


def neighbour_map(rows: Array) -> Array | None:
    """Return t-SNE's map of features (N x 2; van der Maaten & Hinton 2008), or None without
    scikit-learn or for few points.

    It starts from the principal components, with a fixed seed, a fixed number of steps and one
    thread: several threads wait for each other longer than so small a map takes. Keep N to some
    hundreds: 300 points take about a second.
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
        found: Array = TSNE(
            perplexity=perplexity, init="pca", random_state=0, max_iter=TSNE_STEPS
        ).fit_transform(rows)
    return found


# Measure how well features cluster by class at each setting: clean, the best, worst and automatic one of
# a camera, or a dial.


# The most samples per setting; of more, a fair thousand is taken. ImageNet-ES has as many per
# split.
MOST = 1000
# About this many feature vectors are held at a time.
AT_ONCE = 20_000
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
class Place:
    """One setting for one model, and its images there: one per sample, with its label and whether
    it is right.
    """

    model: str
    shift: str
    what: str
    """``clean``, ``best``, ``worst``, ``auto``, ``manual`` (any other camera setting) or ``severity``."""
    images: pl.DataFrame = field(repr=False)
    light: str | None = None
    severity: float | None = None
    dials: tuple[float | None, ...] = (None, None, None)

    def names(self) -> dict[str, Any]:
        """Return what a row of the answer says of the place."""
        told = {
            "model": self.model,
            "shift": self.shift,
            "what": self.what,
            "light": self.light,
            "severity": self.severity,
        }
        return told | dict(zip(DIALS, self.dials, strict=True))


def run_clusters(run: str | Path, distance: str = "cosine", every: bool = False) -> pl.DataFrame:
    """Return the cluster numbers of a run folder that kept features."""
    features = features_of(run)
    table = read(run)
    if features is None:
        raise SoritesError(f"{run} kept no features: type the run's command again with --keep-features")
    models = sorted(table.select(pl.col("model").unique()).collect(engine="streaming")["model"].drop_nulls())
    return pl.concat([clusters(places(table, model, every), features, distance) for model in models])


def clusters(at: Sequence[Place], features: Features, distance: str = "cosine") -> pl.DataFrame:
    """Return three numbers per place, each with ``n`` and its 95 % interval; ``classes`` counts the
    classes there.

    ``silhouette`` runs from -1 to 1 (jackknife interval). ``nearest centroid`` is the share of
    images nearest to the centroid of their class, themselves left out (Wilson). ``from clean`` is
    the mean distance of an image's features from those of its own clean image (normal, over
    samples). A number that cannot be had, as with one class, is null.
    """
    clean = next((place.images for place in at if place.what == CLEAN), None)
    rows: list[dict[str, Any]] = []
    for some in _batches(at):
        held = features(
            some[0].model, _images([*(place.images for place in some), *([] if clean is None else [clean])])
        )
        rows += [row for place in some for row in _numbers(place, clean, held, distance)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _batches(at: Sequence[Place]) -> Iterator[list[Place]]:
    some: list[Place] = []
    for setting in at:
        if some and sum(held.images.height for held in some) + setting.images.height > AT_ONCE:
            yield some
            some = []
        some.append(setting)
    if some:
        yield some


def _images(frames: Sequence[pl.DataFrame]) -> Collection[str]:
    return {image for frame in frames for image in frame["image_id"]}


def vectors(place: Place, held: Vectors) -> tuple[pl.DataFrame, Array]:
    """Return the images of a place whose features were kept, and these as rows in the same order."""
    there = place.images.filter(pl.col("image_id").is_in(list(held)))
    rows = [held[image] for image in there["image_id"]]
    return there, np.stack(rows).astype(np.float64) if rows else np.zeros((0, 0))


def _numbers(
    place: Place, clean: pl.DataFrame | None, held: Vectors, distance: str
) -> Iterator[dict[str, Any]]:
    there, raw = vectors(place, held)
    if not there.height:
        return
    rows, labels = prepared(raw, distance), there["label"].to_numpy()
    answers = {
        "silhouette": _silhouette(rows, labels, distance),
        "nearest centroid": _centroid(rows, labels),
        "from clean": _moved(there, rows, clean, held, distance) if place.what != CLEAN else None,
    }
    shared = {**place.names(), "classes": len(set(labels))}
    for name, (value, n, low, high) in (
        (name, answer) for name, answer in answers.items() if answer is not None
    ):
        yield {**shared, "number": name, "value": value, "n": n, "low": low, "high": high}


Answer = tuple[float | None, int, float | None, float | None]


def _silhouette(rows: Array, labels: Any, distance: str) -> Answer:
    found = silhouette(distances(rows, distance), labels)
    if found is None:
        return None, len(rows), None, None
    value, error = found
    return (
        (value, len(rows), None, None) if error is None else (value, len(rows), *_within(value, error, -1, 1))
    )


def _within(value: float, error: float, least: float, most: float) -> tuple[float, float]:
    return max(least, value - Z * error), min(most, value + Z * error)


def _centroid(rows: Array, labels: Any) -> Answer:
    found = nearest_centroid(rows, labels)
    if found is None:
        return None, 0, None, None
    low, high = pl.DataFrame().select(**wilson_interval(pl.lit(found[0]), pl.lit(found[1]))).row(0)
    return *found, low, high


def _moved(
    there: pl.DataFrame, rows: Array, clean: pl.DataFrame | None, held: Vectors, distance: str
) -> Answer | None:
    start = {} if clean is None else dict(clean.select("sample_id", "image_id").iter_rows())
    pairs = [
        (i, held[start[sample]]) for i, sample in enumerate(there["sample_id"]) if start.get(sample) in held
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


def places(table: Table, model: str, every: bool = False) -> list[Place]:
    """Return the places of a model in order: clean, then those of its camera by light, then every
    severity of its dials.

    Of a camera the best, the worst and the automatic setting are taken under each light, ``every``
    takes the others too; the best is that of ``setting_table``. Of several automatic shots of a
    sample the first counts. Grids that are no camera have none.
    """
    wanted = judged_rows(select_rows(table.lazy().filter(pl.col("model") == model), ())[0])
    rows = wanted.drop_nulls("label").select(COLUMNS).collect(engine="streaming")
    clean = _of(rows.filter(pl.col("shift") == CLEAN))
    found = [Place(model, CLEAN, CLEAN, clean)] if clean.height else []
    found += _of_camera(with_settings(rows).collect(), model, every)
    for (shift, severity), part in (
        rows.filter(SHIFTED).sort("shift", "severity").group_by("shift", "severity", maintain_order=True)
    ):
        found.append(Place(model, str(shift), "severity", _of(part), severity=float(severity)))
    return found


def _of_camera(rows: pl.DataFrame, model: str, every: bool) -> Iterator[Place]:
    """Yield the settings of a camera, first those with the lamp on; equal ones are ordered as
    ``setting_table`` orders them.
    """
    settings = (
        setting_accuracy(rows, ["shift", *SETTING])
        .filter(pl.col("n") > 0)
        .sort("shift", "light", descending=[False, True])
    )
    held = rows.partition_by("shift", *SETTING, as_dict=True)
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
            images = _of(held[shift, *(row[name] for name in SETTING)])
            dials = tuple(row[name] for name in DIALS)
            yield Place(model, str(shift), what, images, None if light is None else str(light), dials=dials)


COLUMNS = (
    "run_id", "source", "sample_id", "image_id", "label", "correct", "shift", "severity", "params", "model", "output", "valid",
    "probe", "error",
)  # fmt: skip


def _of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one image per sample, at most ``MOST`` of them, sorted by sample."""
    shot = pl.col("params").str.json_path_match("$.shot").cast(pl.Int64, strict=False)
    columns = ("source", "sample_id", "image_id", "label", "correct", "run_id")
    ordered = rows.select(*columns, shot=shot).sort("source", "sample_id", "shot", "image_id")
    first = ordered.unique(["source", "sample_id"], keep="first", maintain_order=True).drop("shot")
    if first.height <= MOST:
        return first
    fair = sorted(range(first.height), key=lambda i: digest(first["sample_id"][i]))[:MOST]
    return first[sorted(fair)]
