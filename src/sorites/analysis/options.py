"""Options of the verbs that read runs or describe one model: report, show, compare, passport.

This module is imported for ``sorites --help`` and therefore imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.core.options import Options, declare, key_values
from sorites.evaluation.options import DEFAULT_BATCH, ImageOptions
from sorites.io.stores import to_path

if TYPE_CHECKING:
    from PIL import Image as Pillow

    from sorites.core import ImageU8
    from sorites.core.table import RunLike, Table

# Rate at which two equal models raise a false alarm on any shift.
FALSE_ALARMS = 0.05


def _paths(texts: Sequence[str]) -> list[Path]:
    return [to_path(text) for text in texts]


@dataclass(frozen=True, kw_only=True)
class ReportContent(Options):
    """Options of ``report``: the runs, and the file to write."""

    runs: str | Path | Table | Sequence[str | Path | Table] = declare(
        help='Run folders, made by "sorites run".',
        python="Also runs and tables, alone or in a sequence.",
        metavar="RUN",
        argument=True,
        repeat=True,
        parse=_paths,
    )
    out: str | Path | None = declare(
        None,
        "The HTML file to write; default: report.html in the run folder, for several runs in the working"
        " folder.",
        metavar="FILE",
    )
    partial: bool = declare(
        False, "Use all rows, including samples that only some models, settings or runs cover.", kind=bool
    )


@dataclass(frozen=True, kw_only=True)
class ReportOptions(ImageOptions, ReportContent):
    """Options of ``report``."""


def _settings(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [key_values(text.split(","), "setting") for text in texts]


def _shift_options(texts: list[str]) -> dict[str, Any]:
    return key_values(texts, "option")


@dataclass(frozen=True, kw_only=True)
class StripContent(Options):
    """Options of ``show``: what to draw."""

    shift: str = declare(help="A shift.", typed='See "sorites list shifts".', metavar="SHIFT", argument=True)
    image: str | Path | ImageU8 | Pillow.Image = declare(
        help="An image file, or with a source the name of an image of it.",
        python="Also an 8-bit array of (height, width, 3), or a Pillow image.",
        metavar="IMAGE",
        argument=True,
    )
    severities: Sequence[float] = declare(
        (), "Draw these severities instead of the published levels.", metavar="X", kind=float, repeat=True
    )
    settings: Sequence[Mapping[str, Any]] = declare(
        (),
        "Draw the settings of a grid with these parameters: iso=250.",
        python='Mappings: ``[{"iso": 250}]``.',
        metavar="KEY=VALUE,...",
        repeat=True,
        parse=_settings,
    )
    options: Mapping[str, Any] | None = declare(
        None, "Options of the shift.", metavar="KEY=VALUE", repeat=True, parse=_shift_options
    )
    source: str | None = declare(
        None,
        (
            "Take the image from this source, with its ground-truth boxes (coco:FILE, yolo:DIR) or its own"
            " shifts."
        ),
        metavar="NAME:PATH",
    )
    labels: str = declare(
        "coco", "Classes of the boxes: a file with one name per line, or coco.", metavar="FILE"
    )
    seed: int = declare(0, "Random seed.", metavar="N", kind=int)
    out: str | Path | None = declare(
        None, "The image to write.", typed="Default: IMAGE-SHIFT.png.", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class ShowOptions(ImageOptions, StripContent):
    """Options of ``show``."""


@dataclass(frozen=True, kw_only=True)
class KeptLogitsOptions(Options):
    """Options of verbs that read the kept logits of a run."""

    run: str | Path | RunLike = declare(
        help='A run folder, made by "sorites run" with kept features.',
        python="Also a ``Run``.",
        metavar="RUN",
        argument=True,
        parse=to_path,
    )
    models: Sequence[str] = declare(
        (), "Only these models; default: all with kept logits.", metavar="NAME", repeat=True
    )


@dataclass(frozen=True, kw_only=True)
class ConformalOptions(KeptLogitsOptions):
    """Options of ``conformal``."""

    alpha: float = declare(
        0.1, "Share of clean images whose set may miss the correct class.", metavar="X", kind=float
    )
    methods: Sequence[str] = declare(
        ("thr", "aps", "raps"), "Conformity scores: thr, aps, raps.", metavar="NAME", repeat=True
    )
    measure: str | None = declare(
        None,
        "Also weigh calibration images by this measure of the run: semantic, covariate, lpips.",
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class RecalibrateOptions(KeptLogitsOptions):
    """Options of ``recalibrate``."""

    methods: Sequence[str] = declare(
        ("none", "temperature", "isotonic"),
        "How to recalibrate: none, temperature, vector, isotonic.",
        metavar="NAME",
        repeat=True,
    )


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """Options of ``compare``."""

    base: str | Path = declare(
        help="Run folder or passport of the baseline model.", metavar="BASE", argument=True, parse=Path
    )
    new: str | Path | None = declare(
        None,
        "Run folder or passport of the new model; default: BASE, for two of its models.",
        metavar="NEW",
        argument=True,
        parse=Path,
    )
    base_model: str | None = declare(None, "Model of BASE, if it has several.", metavar="NAME")
    model: str | None = declare(None, "Model of NEW, if it has several.", metavar="NAME")
    shared: bool = declare(
        False,
        "Compare only the images for which both have predictions.",
        python="By default different images are refused.",
        kind=bool,
    )
    other_versions: bool = declare(
        False, "Allow different versions of the libraries that make images.", kind=bool
    )
    conf: float | None = declare(
        None,
        (
            "Of detectors: the confidence from which a box finds an object, for the objects lost and gained;"
            " default 0.25."
        ),
        metavar="X",
        kind=float,
    )
    rate: float = declare(
        FALSE_ALARMS, "Rate at which two equal models raise a false alarm on any shift.", shell=False
    )


@dataclass(frozen=True, kw_only=True)
class SlicesOptions(Options):
    """Options of ``slices``."""

    run: str | Path | RunLike = declare(
        help='A run folder, made by "sorites run".', python="Also a ``Run``.", metavar="RUN", argument=True
    )
    rate: float = declare(
        0.05,
        "False discovery rate: the share of slices called weak that are expected not to be.",
        metavar="F",
        kind=float,
    )
    conf: float = declare(
        0.25, "Of detectors: the confidence from which a box finds an object.", metavar="X", kind=float
    )


@dataclass(frozen=True, kw_only=True)
class GuardOptions(Options):
    """Options of ``guard``."""

    run: str | Path | RunLike = declare(
        help='A run folder, made by "sorites run".', python="Also a ``Run``.", metavar="RUN", argument=True
    )
    scorer: str = declare(help="A scorer of the run: energy, 'knn(k=10)'.", metavar="NAME")
    at: str = declare(
        "tpr=0.95",
        (
            "How the threshold is chosen: tpr=0.95 (clean images without an alarm), risk=0.05 (errors among"
            " images without an alarm), beyond=SHIFT:SEVERITY (an alarm for images at or beyond it) or"
            " cost=FILE."
        ),
        metavar="RULE",
    )
    model: str | None = declare(None, "Model of the run, if it has several.", metavar="NAME")
    power: float = declare(
        0.9, "With beyond: the share of those images that raise an alarm.", metavar="F", kind=float
    )
    confidence: float = declare(
        0.95, "With risk and beyond: the confidence of the promise.", metavar="F", kind=float
    )
    coverage: float = declare(
        0.9,
        "The share of prediction sets that contain the class, for runs with kept features.",
        metavar="F",
        kind=float,
    )
    out: str | Path = declare("guard", "The folder to write.", metavar="DIR")


@dataclass(frozen=True, kw_only=True)
class GuardCheckOptions(ImageOptions):
    """Options of ``guard check``."""

    file: str | Path = declare(
        help="A guard: guard.json, or its folder.", metavar="FILE", argument=True, parse=Path
    )
    source: str = declare(help="New images: folder:PATH.", metavar="NAME[:PATH]")
    limit: int | None = declare(
        None, "Use only the first N samples of a fixed random order.", metavar="N", kind=int, low=1
    )
    rate: float = declare(
        0.01,
        "Rate at which all tests together raise a false alarm if nothing has changed.",
        metavar="F",
        kind=float,
    )


@dataclass(frozen=True, kw_only=True)
class Battery(Options):
    """A model and the battery of suites to run on it."""

    model: str = declare(
        help=(
            "The model: lite0, timm:NAME, onnx:PATH, python:module:callable; or a detector: picodet,"
            " boxes:PATH."
        ),
        metavar="[NAME=]MODEL",
        argument=True,
    )
    source: str | None = declare(
        None,
        "Source of the images: folder:PATH; default: stamps, for detectors composites.",
        metavar="NAME[:PATH]",
    )
    labels: str | None = declare(
        None,
        (
            "A file of class names, one per line; default: the 1000 classes of ImageNet, for detectors the 80"
            " of COCO."
        ),
        metavar="FILE",
    )
    battery: str = declare(
        "short",
        (
            "Battery of suites: short, standard, full (about 5 minutes, 30 minutes or hours on two cores),"
            " boxes (the default for detectors), or a TOML file."
        ),
        metavar="short|standard|full|boxes|FILE",
    )
    out: str | Path | None = declare(
        None, "The folder to write; default: passports/MODEL-BATTERY.", metavar="DIR"
    )
    limit: int | None = declare(
        None, "Use only the first N samples of a fixed random order.", metavar="N", kind=int
    )
    batch: int = declare(DEFAULT_BATCH, "Batch size.", metavar="N", kind=int, low=1)
    workers: int | None = declare(
        None, "Number of tasks to run in parallel; default: one per core.", metavar="N", kind=int, low=1
    )


@dataclass(frozen=True, kw_only=True)
class PassportOptions(ImageOptions, Battery):
    """Options of ``passport``."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """Options of ``verify``."""

    file: str | Path = declare(
        help="A passport (passport.json or its folder), or the page of a comparison.",
        metavar="FILE",
        argument=True,
        parse=Path,
    )
    folders: Sequence[str | Path] = declare(
        (),
        (
            "Where the folders are now, if they have moved: that of the passport, or BASE and NEW of the"
            " comparison."
        ),
        metavar="DIR",
        repeat=True,
        parse=_paths,
    )


@dataclass(frozen=True, kw_only=True)
class LeaderboardOptions(Options):
    """Options of ``leaderboard``."""

    files: Sequence[str | Path] = declare(
        help="Run folders, and files of results of earlier calls.",
        metavar="FILE",
        argument=True,
        repeat=True,
        parse=_paths,
    )
    out: str | Path = declare("leaderboard.html", "The HTML file to write.", metavar="FILE")
    results: str | Path | None = declare(
        None,
        "Also write all results to this JSON file, which can be merged later or elsewhere.",
        metavar="FILE",
        parse=Path,
    )
    framework: str = declare(
        "semantic",
        "What counts as in-distribution in run folders: semantic (clean images) or full_spectrum.",
        metavar="NAME",
    )
