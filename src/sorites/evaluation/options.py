"""Options of the verbs that evaluate models or make images: run, build, check, score, similarity, distance.

The base classes declare what several verbs share. This module is imported for ``sorites --help`` and
therefore imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.options import Options, declare, key_values
from sorites.io.stores import to_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from sorites.core import Model, Source
    from sorites.core.table import RunLike
    from sorites.evaluation.engines import Engine
    from sorites.suites.suite import Suite

    # Accepted models: a spec, a ``Model``, a torch module, or a callable.
    AnyModel = str | Model | Callable[..., Any]

# Images per forward pass.
DEFAULT_BATCH = 8
DEFAULT_MEASURES = ("lpips", "exposure_error", "clipped_share")
# Share of rows with errors above which a run has failed.
MAX_ERRORS = 0.5


@dataclass(frozen=True, kw_only=True)
class ImageOptions(Options):
    """The limit of verbs that decode images."""

    max_pixels: int | None = declare(
        None,
        "Refuse images with more pixels than this; default: 100 million.",
        metavar="N",
        kind=int,
        low=1,
        high=10**15,
    )

    def reading(self) -> AbstractContextManager[None]:
        """Apply the limit while images are read."""
        from sorites.io.decode import pixel_limit

        return pixel_limit(self.max_pixels)


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Options for the machines and the way in which tasks run."""

    engine: str | Engine | None = declare(
        "local",
        "Engine that runs the tasks: local (threads), processes, or ray (also on a cluster).",
        python="Also an ``Engine``.",
        metavar="NAME",
    )
    workers: int | None = declare(
        None, "Number of tasks to run in parallel; default: one per core.", metavar="N", kind=int, low=1
    )
    address: str | None = declare(
        None,
        "Head of the Ray cluster, for the engine ray; default: RAY_ADDRESS, or a local Ray instance.",
        metavar="HOST:PORT",
    )
    gpus_per_worker: float = declare(
        0.0, "Fraction of a GPU for each worker of the engine ray.", metavar="F", kind=float, low=0
    )

    def chosen_engine(self) -> str | Engine:
        """Return the engine; only ray accepts an address and GPU fractions."""
        if self.engine == "ray":
            from sorites.evaluation.engines.ray import ray_engine

            return ray_engine(self.address, self.gpus_per_worker)
        if self.address is not None or self.gpus_per_worker:
            given = f"{option('address', None)} and {option('gpus_per_worker', None)}"
            raise SoritesError(f"{given} require {option('engine', 'ray')}, got {self.engine}")
        assert self.engine is not None
        return self.engine


def _shift_options(texts: list[str]) -> dict[str, Any]:
    return key_values(texts, "option")


def _path_text(text: str) -> str:
    # Options of shifts are stored in run.json, where a path is a text.
    return str(Path(text))


@dataclass(frozen=True, kw_only=True)
class SuiteOptions(Options):
    """A suite and what replaces parts of it; None and empty sequences keep the suite's own value."""

    suite: str | Path | Suite = declare(
        help="A built-in suite, or the path of a .toml file.",
        python="Also a ``Suite``.",
        metavar="SUITE",
        argument=True,
    )
    source: str | Source | None = declare(
        None,
        "Read images from this source: stamps, folder:PATH, webdataset:PATH.",
        python="Also a ``Source``.",
        metavar="NAME[:PATH]",
    )
    shifts: Sequence[str] = declare((), "Apply only these shifts.", metavar="NAME", repeat=True)
    levels: Sequence[int] = declare(
        (), "Apply only these published levels.", metavar="N", kind=int, repeat=True
    )
    severities: Sequence[float] = declare(
        (), "Apply these severities, in the unit of the only shift.", metavar="X", kind=float, repeat=True
    )
    grid: Sequence[str] = declare(
        (),
        (
            "Apply two or three shifts at once, at all combinations of their settings:"
            ' "exposure_stops x defocus_disk", or with severities "exposure_stops=1,3 x defocus_disk=2,4".'
        ),
        metavar='"A x B"',
        repeat=True,
    )
    kernels: str | Path | None = declare(
        None,
        "Blur with this published kernel stack instead of the built-in aberrations.",
        metavar="PATH",
        parse=_path_text,
    )
    padding: str | None = declare(
        None, "How the lens aberrations pad the image border: zeros or reflect.", metavar="zeros|reflect"
    )
    lenses: str | Path | None = declare(
        None, "A folder of your own traced lenses for the shift lens.", metavar="DIR", parse=_path_text
    )
    options: Mapping[str, Any] | None = declare(
        None, "Options of the suite's shifts.", metavar="KEY=VALUE", repeat=True, parse=_shift_options
    )
    labels: str | Path | Sequence[str] | None = declare(
        None,
        "A file of class names, one per line; default: the 1000 classes of ImageNet.",
        python="Also a sequence of names.",
        metavar="FILE",
    )
    follow_links: bool | None = declare(
        None,
        "Follow symbolic links that leave the folder of a source; links inside it are always followed.",
        kind=bool,
        flag="follow-links/no-follow-links",
    )
    limit: int | None = declare(
        None, "Use only the first N samples of a fixed random order.", metavar="N", kind=int
    )
    seed: int | None = declare(None, "Random seed.", metavar="N", kind=int)

    def replaced(self) -> dict[str, Any]:
        """Return the arguments of ``Suite.override``, without those that only some verbs have."""
        own = {"kernels": self.kernels, "padding": self.padding, "lenses": self.lenses}
        texts = {key: str(value) if isinstance(value, Path) else value for key, value in own.items()}
        return {
            "shifts": self.shifts,
            "levels": self.levels,
            "severities": self.severities,
            "grid": self.grid,
            "options": texts | dict(self.options or {}),
            "labels": _labels(self.labels),
            "follow_links": self.follow_links,
            "limit": self.limit,
            "seed": self.seed,
        }


def _labels(labels: str | Path | Sequence[str] | None) -> str | tuple[str, ...] | None:
    if labels is None:
        return None
    return str(labels) if isinstance(labels, str | Path) else tuple(labels)


def _batch(text: str) -> int | str:
    """Parse a batch size."""
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise SoritesError(f"{option('batch', None)} must be a positive integer or auto, got {text!r}")
    return int(text)


def named_sources(texts: Sequence[str], name: str) -> dict[str, str]:
    """Parse ``[GROUP:]NAME=SPEC`` texts of the option ``name``."""
    named = {}
    for text in texts:
        label, equals, spec = str(text).partition("=")
        if not equals or not label.rpartition(":")[2] or not spec:
            wanted = option(name, "[GROUP:]NAME=SPEC")
            raise SoritesError(f"expected {wanted}, such as far:textures=folder:PATH, got {text!r}")
        named[label] = spec
    return named


def _ood(texts: Sequence[str]) -> dict[str, str]:
    return named_sources(texts, "ood")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(SuiteOptions):
    """Options of ``run``: what to evaluate and where to write it."""

    source: str | Source | None = declare(
        None,
        "Read images from this source: stamps, folder:PATH, webdataset:PATH. NAME= sets its name.",
        python="Also a ``Source``.",
        metavar="[NAME=]SPEC",
        repeat=True,
        flag="source",
    )
    id_sources: Mapping[str, str | Source] | None = declare(
        None, "Further in-distribution sources, with labels of the suite, by name.", shell=False
    )
    ood: Mapping[str, str | Source] | None = declare(
        None,
        "Sources of OOD images by name, perhaps with a group: far:textures=folder:PATH; without labels.",
        python='A mapping: ``{"far:textures": "folder:PATH"}``.',
        metavar="[GROUP:]NAME=SPEC",
        repeat=True,
        flag="ood",
        parse=_ood,
    )
    models: Sequence[AnyModel] | Mapping[str, AnyModel] = declare(
        (),
        (
            "Evaluate these models: lite0, timm:NAME, timm:NAME@WEIGHTS, onnx:PATH, python:module:callable."
            " NAME= sets the name in the table: v2=onnx:PATH."
        ),
        python='Also torch modules, functions and ``Model`` objects; a mapping names them: ``{"v2": net}``.',
        metavar="[NAME=]SPEC",
        repeat=True,
    )
    scorers: Sequence[str] = declare(
        (),
        "Compute these OOD scores besides those of the suite: energy, knn, 'knn(k=10)'.",
        metavar="NAME",
        repeat=True,
    )
    only_scorers: Sequence[str] = declare(
        (), "Compute these OOD scores instead of those of the suite.", metavar="NAME", repeat=True
    )
    fit: str | Source | None = declare(
        None, "Training images for scorers that are fitted.", python="Also a ``Source``.", metavar="SOURCE"
    )
    order: str | None = declare(
        None,
        "Read whole shards in hash order, and no more of a large source than the limit needs.",
        metavar="shards",
    )
    batch: int | Literal["auto"] = declare(
        "auto",
        "Batch size; auto uses 8 on a CPU and finds one that fits on a GPU.",
        metavar="N|auto",
        parse=_batch,
    )
    device: str | None = declare(
        None, "Device for the models; default: a GPU if available.", metavar="auto|cpu|cuda[:N]|mps"
    )
    precision: str | None = declare(
        None, "Floating-point precision of torch models.", metavar="float32|bfloat16|float16|int8"
    )
    unseen_by: Sequence[str] = declare(
        (),
        "Leave out the images that this model was trained on: trained:DIR.",
        metavar="MODEL",
        repeat=True,
    )
    refine: float | None = declare(
        None,
        "Bisect each failure severity to this fraction of the shift's highest level.",
        metavar="F",
        kind=float,
    )
    keep_features: bool = declare(
        False, 'Keep logits and features in the run folder, for "sorites score".', kind=bool
    )
    out: str | Path | None = declare(
        None,
        "The run folder, or s3://BUCKET/RUN; default: runs/SUITE-ID.",
        metavar="DIR",
        parse=to_path,
    )
    max_errors: float = declare(
        MAX_ERRORS,
        "Fail if more than this share of the rows have errors. The rows stay in the run folder.",
        metavar="SHARE",
        kind=float,
        low=0,
        high=1,
    )

    def models_device(self) -> str | None:
        """Return the device to store in the suite; None chooses one when the models are loaded."""
        return None if self.device == "auto" else self.device


@dataclass(frozen=True, kw_only=True)
class RunOptions(ImageOptions, EngineOptions, EvaluationOptions):
    """Options of ``run``."""

    engine: str | Engine | None = declare(
        "auto",
        (
            "Engine that runs the tasks: local (threads), processes, or ray (also on a cluster); auto chooses"
            " local or processes."
        ),
        python="Also an ``Engine``.",
        metavar="NAME",
    )
    producers: int | None = declare(
        None,
        (
            "Number of processes that make images; default: none if the models run on a CPU, else one per"
            " core but one."
        ),
        metavar="N",
        kind=int,
        low=0,
    )

    cpus_per_worker: int = declare(
        1,
        (
            "CPUs for each worker of the engine ray; all but one make images, in processes of their own,"
            " while the models evaluate."
        ),
        metavar="N",
        kind=int,
        low=1,
    )
    models_per_worker: int | None = declare(
        None,
        (
            "Number of models that each worker of the engine ray holds; default: as many as have weights of 4"
            " GB together."
        ),
        metavar="N",
        kind=int,
        low=1,
    )

    log: str | None = declare(
        None,
        (
            "Log the accuracy so far while the run works, and its curves at the end: mlflow[:URI],"
            " wandb[:PROJECT] or tensorboard[:DIR]."
        ),
        metavar="TRACKER",
    )

    def chosen_engine(self) -> str | Engine:
        """Return the engine; only ray accepts resources of workers."""
        if self.engine == "ray":
            from sorites.evaluation.engines.ray import ray_engine

            return ray_engine(self.address, self.gpus_per_worker, self.cpus_per_worker)
        if self.cpus_per_worker != 1 or self.models_per_worker is not None:
            given = f"{option('cpus_per_worker', None)} and {option('models_per_worker', None)}"
            raise SoritesError(f"{given} require {option('engine', 'ray')}, got {self.engine}")
        return super().chosen_engine()

    @classmethod
    def from_shell(cls, typed: Mapping[str, Any]) -> Self:
        """Return the options; in a shell, further in-distribution sources repeat the option ``source``."""
        first, *others = typed.get("source") or (None,)
        further = named_sources(others, "source") or None
        return replace(super().from_shell({**typed, "source": None}), source=first, id_sources=further)


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(SuiteOptions):
    """Options of ``build``: the dataset to write and its folder."""

    out: str | Path = declare(help="The dataset folder to write.", metavar="DIR", parse=to_path)
    quality: int | None = declare(
        None, "Write JPEG files of this quality instead of PNG.", metavar="N", kind=int
    )


@dataclass(frozen=True, kw_only=True)
class BuildOptions(ImageOptions, EngineOptions, DatasetOptions):
    """Options of ``build``."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Options):
    """Options of ``check``."""

    what: str | Path = declare(
        help="A folder written by Sorites, a built-in suite or a .toml file.",
        metavar="FOLDER|SUITE",
        argument=True,
    )
    repair: bool = declare(
        False,
        "Move damaged files of a run folder to RUN/damaged, so that the run can recreate them.",
        kind=bool,
    )


@dataclass(frozen=True, kw_only=True)
class FolderOptions(Options):
    """A run folder to read or extend."""

    run: str | Path | RunLike = declare(
        help='A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN.',
        python="Also a ``Run``.",
        metavar="RUN",
        argument=True,
        parse=to_path,
    )


@dataclass(frozen=True, kw_only=True)
class Exported(FolderOptions):
    """A run folder and the format to write its results in."""

    kind: str = declare(
        help=(
            "Format: coco (boxes), openood (result tables), csv, parquet, huggingface (a dataset) or"
            " fiftyone."
        ),
        metavar="coco|openood|csv|parquet|huggingface|fiftyone",
        flag="as",
    )
    out: str | Path = declare(help="The folder to make.", metavar="DIR")
    models: Sequence[str] = declare((), "Export only these models of the run.", metavar="NAME", repeat=True)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ImageOptions, Exported):
    """Options of ``export``."""


@dataclass(frozen=True, kw_only=True)
class Logged(FolderOptions):
    """A finished run and the tracker to log it to."""

    to: str = declare(
        help="The tracker: mlflow[:URI], wandb[:PROJECT] or tensorboard[:DIR].",
        metavar="TRACKER",
    )
    passport: str | Path | None = declare(
        None, "Also store the files of this passport folder.", metavar="DIR", parse=Path
    )


@dataclass(frozen=True, kw_only=True)
class LogOptions(ImageOptions, Logged):
    """Options of ``log``."""


@dataclass(frozen=True, kw_only=True)
class AddedScorers(FolderOptions):
    """A run folder and the scorers to add to it."""

    scorers: str | Sequence[str] = declare(
        help="Scorers to add: energy, 'knn(k=10)'. The run must have been made with kept features.",
        metavar="NAME",
        repeat=True,
    )


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(EngineOptions, AddedScorers):
    """Options of ``score``."""


@dataclass(frozen=True, kw_only=True)
class SimilarityMeasures(FolderOptions):
    """A run folder and the measures to compute for it."""

    measures: Sequence[str] = declare(
        DEFAULT_MEASURES,
        "Measures to compute: psnr, ssim, lpips, exposure_error, clipped_share.",
        metavar="NAME",
        repeat=True,
    )
    lpips_below: float | None = declare(
        None,
        "Mark settings as invalid unless their mean LPIPS is below this.",
        python="ImageNet-ES uses 0.8 (and 0.6 and 1.0) before training. None keeps an earlier filter.",
        metavar="X",
        kind=float,
    )
    lpips_measure: str | None = declare(
        None,
        "Measure for the LPIPS threshold; default: that of the run's suite.",
        metavar="lpips|lpips_linear",
    )


@dataclass(frozen=True, kw_only=True)
class SimilarityOptions(ImageOptions, EngineOptions, SimilarityMeasures):
    """Options of ``similarity``."""


def _edges(text: str) -> tuple[float, ...]:
    from sorites.io.readers import numbers

    return numbers(text, "edges of levels")


@dataclass(frozen=True, kw_only=True)
class DistanceMeasures(Options):
    """Options of ``distance``: the images and how to measure."""

    what: str | Path | RunLike | None = declare(
        None,
        "A source of images, or a run folder.",
        python="Also a ``Run``.",
        metavar="SOURCE|RUN",
        argument=True,
    )
    against: str = declare(help="In-distribution images.", metavar="SOURCE")
    texts: str | Path | None = declare(
        None, "Measure texts instead: a file with one per line.", metavar="FILE"
    )
    encoder: str = declare(
        "cifar",
        "Image-text encoder: cifar, cifar:N, open_clip:NAME@WEIGHTS, python:module:name.",
        metavar="NAME",
    )
    decomposition: str | None = declare(
        None, 'A decomposition, made by "sorites decompose train".', metavar="FILE"
    )
    labels: str | None = declare(
        None,
        "Use only in-distribution images of these classes, one per line; the source keeps its own classes;"
        " default: all images.",
        metavar="FILE|imagenet",
    )
    limit: int | None = declare(
        None, "Use the first N in-distribution images of a fixed random order.", metavar="N", kind=int, low=1
    )
    k: int = declare(10, "Use the distance to the k-th nearest neighbour.", metavar="N", kind=int, low=1)
    levels: int = declare(8, "Number of levels per axis.", metavar="N", kind=int, low=2)
    sem_edges: Sequence[float] = declare(
        (), "Inner edges of the semantic levels.", metavar="X,X", parse=_edges
    )
    cov_edges: Sequence[float] = declare(
        (), "Inner edges of the covariate levels.", metavar="X,X", parse=_edges
    )
    neighbours: str = declare(
        "exact",
        "Search exactly, or approximately with a faiss index (ivf, hnsw), whose recall is measured.",
        metavar="exact|ivf|hnsw",
    )
    out: str | Path = declare("distance.parquet", "The file for the distances of a source.", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class DistanceOptions(ImageOptions, EngineOptions, DistanceMeasures):
    """Options of ``distance``."""

    engine: str | Engine | None = declare(
        None,
        (
            "Encode and search in resumable tasks on local, processes or ray; run the same command to"
            " continue."
        ),
        python="Also an ``Engine``.",
        metavar="NAME",
    )
