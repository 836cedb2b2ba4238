"""Table 6 of ImageNet-ES: six experiments, three of them at three cuts, on ImageNet, ImageNet-C and itself.

Experiments 1 to 3 train on the originals with crops, with digital augmentations, and with AugMix and
DeepAugment. Experiments 4 to 6 do the same with captures of the settings whose LPIPS is below a cut. Baek et
al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, supplement 4.1; the rest follows the
released code (``recipes/imagenet_es_ladder.toml``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar, TextBar
from sorites.core.rng import digest
from sorites.evaluation.run import run
from sorites.io.files import write_bytes
from sorites.io.paths import is_dir, path_of
from sorites.sources.papers.imagenet_es import PARTS
from sorites.suites.suite import Suite, parse
from sorites.suites.suite import load as load_suite
from sorites.training.arms import IMAGES_PER_BATCH, train_members
from sorites.training.captures import DEEP_AUGMENT_FOLDERS
from sorites.training.loop import named_changes, no_progress
from sorites.training.options import CUTS, EXPERIMENTS, LadderOptions
from sorites.training.recipe import Recipe, load

RECIPE = "imagenet_es_ladder"
# What each experiment trains on besides crops and flips; 4 to 6 also have captures.
AUGMENTATIONS = ("crops", "digital", "AugMix, DeepAugment")
# The fifteen corruptions of the published ImageNet-C; four more are for validation only.
CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_disk", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg",
)  # fmt: skip
# The final learning rate for batches of 256 images.
FLOOR = 1e-6
FILE = "ladder.csv"
# The classes of a trained model, in its folder.
LABELS = "labels.txt"
# Printed below the table.
NOTES = (
    "IN: the references of es-test. IN-C: the same images with the fifteen corruptions of ImageNet-C, which"
    " are computed here and not read from its files (frost is drawn). ES: the manual settings of es-test,"
    " lamp on and off.",
    "All three are of the weights after the last epoch. The released code reports the best epoch for IN and"
    " the last one for IN-C and ES.",
)


@dataclass(frozen=True)
class Rung:
    """One training: an experiment and, with captures, the cut of their settings."""

    experiment: int
    cut: float | None
    changes: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the trained model in result tables, and of its folder."""
        return str(self.experiment) if self.cut is None else f"{self.experiment}@{self.cut:g}"

    def folder(self, out: Path) -> Path:
        return out / "models" / self.name

    def recipe(self, base: Recipe) -> Recipe:
        """Return the recipe of the experiment; all are variants of one file, so ``base`` is not used.

        The final rate depends on the batch size, as in the released code.
        """
        cut = {} if self.cut is None else {"data.captures.cut": self.cut}
        made = load(f"{RECIPE}@{self.experiment}").override({**self.changes, **cut})
        if made.schedule.kind != "cosine" or "schedule.floor" in self.changes:
            return made
        return made.override({"schedule.floor": FLOOR * 256 / made.batch})


class Ladder(NamedTuple):
    """The table of a ladder, one row per training, and its file."""

    table: pl.DataFrame
    file: Path


def ladder(
    root: str | Path,
    out: str | Path,
    *,
    experiments: Sequence[int] = EXPERIMENTS,
    cuts: Sequence[float] = CUTS,
    deep_augment: str | Path | None = None,
    model: str | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    seed: int | None = None,
    limit: int | None = None,
    levels: Sequence[int] = (),
    device: str | None = None,
    workers: int = 1,
    max_pixels: int | None = None,
    bar: Bar | None = None,
    training_bar: TextBar = no_progress,
    **changes: Any,
) -> Ladder:
    """Train the experiments of ImageNet-ES's Table 6 and evaluate them on IN, IN-C and ES.

    Finished trainings and evaluations in ``out`` are reused; experiments and cuts can be added later.

    Args:
        root: The folder of ImageNet-ES, with es-val and es-test.
        out: The folder for the trained models, the runs and ladder.csv.
        experiments: Experiments to train, 1 to 6; default: all.
        cuts: LPIPS cuts of experiments 4 to 6; default: 0.6, 0.8 and 1.0.
        deep_augment: The folder with DeepAugment's images (EDSR and CAE), for experiments 3 and 6; default:
            the folder that the dataset is in.
        model: Initial model; default: ResNet-50, as published.
        epochs: Number of training epochs.
        steps: Number of training steps.
        batch: Batch size.
        seed: Random seed.
        limit: Evaluate on at most N samples of a fixed random order.
        levels: Levels of the corruptions of IN-C; default: 1 to 5.
        device: cpu, cuda, cuda:1; default: a GPU if available.
        workers: Number of trainings to run in parallel.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        changes: Further keys of all recipes: optimiser.lr=0.01. As keywords, such as ``size=32``.
        bar: Opens progress bars of evaluations.
        training_bar: Opens progress bars of trainings.

    Returns:
        The table with one row per training, and the file it was written to.

    Raises:
        SoritesError: A part of the data is missing, or a training is refused.
    """
    options = LadderOptions(
        root=root,
        out=out,
        experiments=experiments,
        cuts=cuts,
        deep_augment=deep_augment,
        model=model,
        epochs=epochs,
        steps=steps,
        batch=batch,
        seed=seed,
        limit=limit,
        levels=levels,
        device=device,
        workers=workers,
        max_pixels=max_pixels,
        changes=changes,
    )
    return train_ladder(options, bar, training_bar)


def train_ladder(
    options: LadderOptions, bar: Bar | None = None, training_bar: TextBar = no_progress
) -> Ladder:
    """Train and evaluate the experiments, like ``ladder``, with options as one object."""
    out, root = Path(options.out), _dataset(options.root)
    climbed = rungs(options, root)
    with options.reading():
        # An invalid key is refused before any training.
        recipes = [rung.recipe(load(f"{RECIPE}@1")) for rung in climbed]
        train_members(
            recipes[0], out, climbed, device=options.device, workers=options.workers, bar=training_bar
        )
        table = evaluate(climbed, out, root, options, bar)
    write_bytes(table.write_csv().encode(), out / FILE)
    return Ladder(table, out / FILE)


def _dataset(root: str | Path) -> Path:
    """Return the folder with the parts of the dataset, which may be in one called ImageNet-ES."""
    given = path_of(str(root))
    folder = given / "ImageNet-ES" if is_dir(given / "ImageNet-ES") else given
    missing = [part.folder for part in PARTS if part.captured and not is_dir(folder / part.folder)]
    if missing:
        raise SoritesError(
            f"expected the folder of ImageNet-ES with es-val and es-test, but {folder} has no"
            f" {' and no '.join(missing)}"
        )
    return folder


def rungs(options: LadderOptions, root: Path) -> list[Rung]:
    """Return the trainings in the order of the table: experiments without captures have no cut."""
    unknown = [number for number in options.experiments if number not in EXPERIMENTS]
    if unknown or not options.experiments:
        raise SoritesError(f"{option('experiments', [])} must be from 1 to 6, got {unknown or 'none'}")
    deep = Path(options.deep_augment) if options.deep_augment is not None else root.parent
    shared: dict[str, Any] = {
        "data.source": f"imagenet_es:{root}/es-val",
        "data.validation": {"source": f"imagenet_es:{root}/es-test", "shifted": True, "limit": 4000},
        **named_changes(options.recipe_changes()),
    }
    made = []
    for number in sorted(set(options.experiments)):
        own = {**shared, "data.deep_augment.root": str(deep)} if number % 3 == 0 else shared
        if number % 3 == 0:
            _refuse_without(deep, number)
        made += [Rung(number, cut, own) for cut in (sorted(set(options.cuts)) if number > 3 else [None])]
    return made


def _refuse_without(deep: Path, number: int) -> None:
    missing = [name for name in DEEP_AUGMENT_FOLDERS if not is_dir(deep / name)]
    if missing:
        others = option("experiments", [1, 2, 4, 5])
        raise SoritesError(
            f"experiment {number} needs the images of DeepAugment, but {deep} has no"
            f" {' and no '.join(missing)}. Name their folder with {option('deep_augment', 'DIR')}, or leave"
            f" experiments 3 and 6 out: {others}"
        )


def corruption_suite(levels: Sequence[int] = ()) -> Suite:
    """Return the suite of ImageNet-C for the classes of ImageNet-ES, at levels 1 to 5 or ``levels``."""
    own = load_suite("imagenet_es")
    dials = [{"name": name, "levels": list(levels) or [1, 2, 3, 4, 5]} for name in CORRUPTIONS]
    frame = None if own.frame is None else own.frame.model_dump()
    return parse(
        {"name": "ladder_c", "labels": list(own.labels), "frame": frame, "shifts": dials}, "ladder_c"
    )


def evaluate(
    climbed: Sequence[Rung], out: Path, root: Path, options: LadderOptions, bar: Bar | None
) -> pl.DataFrame:
    """Return one row per training with its accuracy on IN, IN-C and ES and their intervals.

    Each combination of models and limits has its own run folders.
    """
    part = next(part for part in PARTS if part.split == "test")
    models = {rung.name: f"trained:{rung.folder(out)}" for rung in climbed}
    key = digest(*models, options.limit, *options.levels, size=4).hex()
    shared: dict[str, Any] = {
        "models": models,
        # The classes of the training images: of the published dataset, the 200 of Tiny-ImageNet.
        "labels": climbed[0].folder(out) / LABELS,
        "limit": options.limit,
        "batch": IMAGES_PER_BATCH,
        "device": options.device,
        "bar": bar,
    }
    captured = run(
        "imagenet_es", source=f"imagenet_es:{root / part.folder}", out=out / "runs" / f"es_{key}", **shared
    )
    corrupted = run(
        corruption_suite(options.levels),
        source=f"folder:{root / part.folder / part.references}",
        out=out / "runs" / f"c_{key}",
        **shared,
    )
    clean = metrics.accuracy(captured.table.filter(pl.col("shift") == CLEAN), ["model"])
    worn = metrics.mean_accuracy(corrupted.table.filter(pl.col("shift") != CLEAN), ["model"])
    shots = metrics.setting_table(captured.table).filter(what="average", light="both")
    return _joined(climbed, {"in": clean, "in_c": worn, "es": shots})


def _joined(climbed: Sequence[Rung], parts: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    table = pl.DataFrame(
        {
            "model": [rung.name for rung in climbed],
            "experiment": [rung.experiment for rung in climbed],
            "augmentation": [AUGMENTATIONS[(rung.experiment - 1) % 3] for rung in climbed],
            "cut": [rung.cut for rung in climbed],
        },
        schema_overrides={"cut": pl.Float64},
    )
    for name, answer in parts.items():
        columns = {"value": name, "low": f"{name}_low", "high": f"{name}_high", "n": f"{name}_n"}
        table = table.join(answer.select("model", *columns).rename(columns), on="model", how="left")
    return table.drop("model")
