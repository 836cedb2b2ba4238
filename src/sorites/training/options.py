"""Options of the verbs that use torch: train, explain, attack.

This module is imported for ``sorites --help`` and therefore imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.options import Options, declare, key_values
from sorites.evaluation.options import FolderOptions, ImageOptions

if TYPE_CHECKING:
    from sorites.core import Model
    from sorites.training.recipe import Recipe

CHECKPOINT_SECONDS = 60.0
ATTACK_STEPS = 100
ATTACK_RESTARTS = 1
MAX_EXPLAINED = 12
# Masks of RISE per image, and the confidence from which a box finds an object.
MASKS = 500
FOUND_CONFIDENCE = 0.25


def _changes(texts: list[str]) -> dict[str, Any]:
    return key_values(texts, "set")


def _share(text: str) -> float | str:
    """Parse a fraction of the images, or keep the name of a source."""
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True, kw_only=True)
class Trained(Options):
    """Options of ``train``; None keeps the value of the recipe."""

    recipe: str | Path | Recipe = declare(
        help="A recipe (NAME or NAME@VARIANT), or the path of a .toml file.",
        typed='See "sorites list recipes".',
        metavar="RECIPE",
        argument=True,
    )
    out: str | Path = declare(help="The folder for the trained model.", metavar="DIR")
    model: str | None = declare(
        None,
        (
            "Initial model: small, lite0, timm:NAME, timm:NAME@WEIGHTS, trained:DIR; NAME@random has random"
            " weights."
        ),
        metavar="SPEC",
    )
    source: str | None = declare(
        None, "Read images from this source: stamps, folder:PATH, webdataset:PATH.", metavar="NAME[:PATH]"
    )
    labels: str | None = declare(
        None, "A file of class names, or found: the classes of the source.", metavar="FILE|found"
    )
    validation: float | str | None = declare(
        None,
        "Validate on a fraction of the images (0.1), or on this source.",
        metavar="SHARE|SOURCE",
        parse=_share,
    )
    augment: str | None = declare(
        None, "Augmentations: optics, augmix, optics,augmix, cascade, none.", metavar="NAMES"
    )
    head_only: bool | None = declare(
        None, "Train only the last layer.", kind=bool, flag="head-only/all-layers"
    )
    epochs: int | None = declare(None, "Number of training epochs.", metavar="N", kind=int, low=1)
    steps: int | None = declare(None, "Number of training steps.", metavar="N", kind=int, low=1)
    batch: int | None = declare(None, "Batch size.", metavar="N", kind=int, low=1)
    limit: int | None = declare(
        None, "Use only the first N samples of a fixed random order.", metavar="N", kind=int
    )
    seed: int | None = declare(None, "Random seed.", metavar="N", kind=int)
    device: str | None = declare(None, "cpu, cuda, cuda:1; default: a GPU if available.", metavar="NAME")
    workers: int | None = declare(
        None, "Number of threads or processes that decode images.", metavar="N", kind=int, low=1
    )
    loader: str | None = declare(
        None,
        "Decode and augment images in threads or in processes; default: processes with a GPU, else threads.",
        metavar="threads|processes",
    )
    checkpoint_seconds: float = declare(
        CHECKPOINT_SECONDS, "Write a checkpoint at least this often.", metavar="S", kind=float, low=0
    )


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ImageOptions, Trained):
    """Options of ``train``."""

    changes: Mapping[str, Any] | None = declare(
        None,
        "Further keys of the recipe: optimiser.lr=0.01.",
        python=(
            'As keywords, such as ``size=32`` or ``**{"optimiser.lr": 0.01}``; ``size`` and ``lr`` are short'
            " for ``data.size`` and ``optimiser.lr``."
        ),
        metavar="KEY=VALUE",
        repeat=True,
        flag="set",
        parse=_changes,
    )

    def recipe_changes(self) -> dict[str, Any]:
        """Return the keys of the recipe that the options replace."""
        names = ("model", "source", "labels", "validation", "augment", "head_only", "epochs", "steps")
        values = {name: getattr(self, name) for name in (*names, "batch", "limit", "seed")}
        return {**values, **(self.changes or {})}


# The experiments of ImageNet-ES's Table 6, and the published LPIPS cuts of those with captures.
EXPERIMENTS = (1, 2, 3, 4, 5, 6)
CUTS = (0.6, 0.8, 1.0)


@dataclass(frozen=True, kw_only=True)
class LadderOptions(ImageOptions):
    """Options of ``train ladder``; None keeps the value of the recipe."""

    root: str | Path = declare(
        help="The folder of ImageNet-ES, with es-val and es-test.", metavar="PATH", argument=True
    )
    out: str | Path = declare(
        help="The folder for the trained models, the runs and ladder.csv.", metavar="DIR"
    )
    experiments: Sequence[int] = declare(
        EXPERIMENTS, "Experiments to train, 1 to 6; default: all.", metavar="N", kind=int, repeat=True
    )
    cuts: Sequence[float] = declare(
        CUTS,
        "LPIPS cuts of experiments 4 to 6; default: 0.6, 0.8 and 1.0.",
        metavar="X",
        kind=float,
        repeat=True,
    )
    deep_augment: str | Path | None = declare(
        None,
        (
            "The folder with DeepAugment's images (EDSR and CAE), for experiments 3 and 6; default: the"
            " folder that the dataset is in."
        ),
        metavar="DIR",
    )
    model: str | None = declare(None, "Initial model; default: ResNet-50, as published.", metavar="SPEC")
    epochs: int | None = declare(None, "Number of training epochs.", metavar="N", kind=int, low=1)
    steps: int | None = declare(None, "Number of training steps.", metavar="N", kind=int, low=1)
    batch: int | None = declare(None, "Batch size.", metavar="N", kind=int, low=1)
    seed: int | None = declare(None, "Random seed.", metavar="N", kind=int)
    limit: int | None = declare(
        None, "Evaluate on at most N samples of a fixed random order.", metavar="N", kind=int, low=1
    )
    levels: Sequence[int] = declare(
        (), "Levels of the corruptions of IN-C; default: 1 to 5.", metavar="N", kind=int, repeat=True
    )
    device: str | None = declare(None, "cpu, cuda, cuda:1; default: a GPU if available.", metavar="NAME")
    workers: int = declare(1, "Number of trainings to run in parallel.", metavar="N", kind=int, low=1)
    changes: Mapping[str, Any] | None = declare(
        None,
        "Further keys of all recipes: optimiser.lr=0.01.",
        python="As keywords, such as ``size=32``.",
        metavar="KEY=VALUE",
        repeat=True,
        flag="set",
        parse=_changes,
    )

    def recipe_changes(self) -> dict[str, Any]:
        """Return the keys of the recipes that the options replace."""
        values = {name: getattr(self, name) for name in ("model", "epochs", "steps", "batch", "seed")}
        return {**values, **(self.changes or {})}


def _layers(texts: list[str]) -> str | dict[str, str]:
    """Parse one name for all models, or one name per model."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    named = dict(text.rpartition("=")[::2] for text in texts)
    if "" in named:
        raise SoritesError(f"repeated {option('layer', None)} expects MODEL=NAME, got {' '.join(texts)}")
    return named


@dataclass(frozen=True, kw_only=True)
class Explained(FolderOptions):
    """Options of ``explain``: the predictions of a run to explain."""

    models: Sequence[str] = declare(
        (),
        "Models of the run. Two models are compared; one is compared clean and shifted.",
        metavar="NAME",
        repeat=True,
    )
    shifts: Sequence[str] = declare(
        (), "Use only these shifts; clean counts as one.", metavar="NAME", repeat=True
    )
    limit: int | None = declare(
        MAX_EXPLAINED,
        "Explain at most N images, in a fixed random order.",
        python="None explains all.",
        metavar="N",
        kind=int,
    )
    target: str = declare(
        "prediction", "Class to explain: prediction or ground_truth.", metavar="prediction|ground_truth"
    )
    layer: str | Mapping[str, str] | None = declare(
        None,
        "Layer to explain, for all models or by model; default: the last one with feature maps.",
        metavar="[MODEL=]NAME",
        repeat=True,
        flag="layer",
        parse=_layers,
    )
    method: str = declare(
        "auto",
        (
            "Grad-CAM for torch classifiers (gradcam), or by hiding parts of images of any model: rise (for"
            " detectors D-RISE) or occlusion; auto is gradcam if it can be used, else rise."
        ),
        metavar="auto|gradcam|rise|occlusion",
    )
    masks: int = declare(
        MASKS,
        "Number of masks of rise per image; the noise falls with its square root.",
        metavar="N",
        kind=int,
        low=2,
    )
    conf: float = declare(
        FOUND_CONFIDENCE,
        "Of detectors: the confidence from which a box finds an object.",
        metavar="X",
        kind=float,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ImageOptions, Explained):
    """Options of ``explain``."""


@dataclass(frozen=True, kw_only=True)
class Attacked(Options):
    """Options of ``attack``: the models, and the attack."""

    models: str | Model | Sequence[str | Model] = declare(
        help="Models to attack: lite0, timm:NAME@WEIGHTS, trained:DIR. Torch models only.",
        python="Also ``Model`` objects.",
        metavar="MODEL...",
        argument=True,
        repeat=True,
    )
    eps: str | Sequence[float] = declare(
        help="Perturbation sizes, for pixels in 0..1: 4/255,.1,.25.", metavar="X,..."
    )
    norm: str = declare("l2", "Norm of the perturbation: l2 or linf.", metavar="l2|linf")
    losses: str | Sequence[str] | None = declare(
        None,
        (
            "APGD on the cross-entropy (ce), on the difference of logits ratio (dlr, needs three classes), or"
            " both; default: all that the models support."
        ),
        metavar="ce,dlr",
        flag="attack",
    )
    steps: int = declare(ATTACK_STEPS, "Steps per restart.", metavar="N", kind=int)
    restarts: int = declare(
        ATTACK_RESTARTS, "Number of restarts for images that stay correct.", metavar="N", kind=int
    )
    source: str = declare("stamps", "Source of labelled clean images.", metavar="NAME[:PATH]")
    labels: str | Sequence[str] | None = declare(
        None, "A file of class names; default: the classes of the first model.", metavar="FILE"
    )
    limit: int | None = declare(
        None, "Use only the first N samples of a fixed random order.", metavar="N", kind=int
    )
    seed: int = declare(0, "Random seed.", metavar="N", kind=int)
    out: str | Path | None = declare(None, "The run folder; default: runs/attack-ID.", metavar="DIR")
    workers: int | None = declare(
        None, "Number of tasks to run in parallel; default: one per core.", metavar="N", kind=int, low=1
    )


@dataclass(frozen=True, kw_only=True)
class AttackOptions(ImageOptions, Attacked):
    """Options of ``attack``."""
