"""Measure and score: ``sorites similarity``, ``distance``, ``slices``, ``filter`` and others of that panel.

``decompose`` and ``features``, and with prediction sets ``conformal`` and ``recalibrate``, are here too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.analysis.options import ConformalOptions, RecalibrateOptions, SlicesOptions
from sorites.cli.options import (
    Address,
    EngineName,
    Format,
    GpusPerWorker,
    MaxPixels,
    RunFolder,
    Seed,
    Workers,
    derived,
    engine_of,
)
from sorites.cli.output import say
from sorites.core.errors import SoritesError
from sorites.evaluation.options import DistanceOptions, SimilarityOptions

if TYPE_CHECKING:
    from sorites.analysis.filter.filtering import Filtered
    from sorites.evaluation.facts.rulers import Distances

decompose_app = typer.Typer(
    help="Separate meaning from appearance in the embedding space of an encoder.", no_args_is_help=True
)

EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Image-text encoder: cifar, cifar:N, open_clip:NAME@WEIGHTS, python:module:name.",
    ),
]


@decompose_app.callback()
def _decompose() -> None:
    """Separate meaning from appearance in the embedding space of an encoder."""


@decompose_app.command()
def train(
    encoder: EncoderName = "cifar",
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|imagenet",
            help=(
                "Classes for the texts, one per line, as in ImageNet-21K's lists; default: the encoder's"
                " classes."
            ),
        ),
    ] = None,
    templates: Annotated[
        Path | None,
        typer.Option(
            "--templates",
            metavar="FILE",
            help="Prompt templates with {} or {c}, one per line; an empty line separates appearances.",
        ),
    ] = None,
    triplets: Annotated[
        int,
        typer.Option("--triplets", metavar="N", min=1, help="Number of text triplets to train on."),
    ] = 4000,
    margin: Annotated[
        float, typer.Option("--margin", metavar="A", help="Margin of the loss, in cosine distance.")
    ] = 1.0,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", min=1, help="Number of passes over the triplets.")
    ] = 20,
    seed: Seed = 0,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="SOURCE",
            help="Labelled images to evaluate on; default: the encoder's examples.",
        ),
    ] = None,
    check_labels: Annotated[
        str | None,
        typer.Option(
            "--check-labels",
            metavar="FILE|imagenet",
            help="Classes for the evaluation; default: those of the texts.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Evaluate on at most N images of each split."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")] = Path(
        "split.safetensors"
    ),
) -> None:
    """Learn a decomposition from texts and evaluate it on images.

    Writes a file for "sorites distance --decomposition", and prints how well
    each half predicts class and appearance.
    """
    from sorites import core
    from sorites.cli.printing import format_frame
    from sorites.core.labels import labels as read_labels
    from sorites.core.progress import bars
    from sorites.evaluation.facts import decomposition
    from sorites.measures.decomposition import Training, read_names, read_styles

    loaded = core.encoder(encoder)
    names = () if not labels else read_labels(labels).names if labels == "imagenet" else read_names(labels)
    classes = read_labels(check_labels) if check_labels else None
    training = Training(margin=margin, epochs=epochs, seed=seed)
    recipe = decomposition.recipe(
        loaded, names, read_styles(templates) if templates else (), triplets, training
    )
    with bars() as bar:
        tick = bar("learning", epochs)
        split = decomposition.learn(loaded, recipe, lambda epoch, loss: tick(1), bar)
        decomposition.save(out, split, loaded, recipe)
        table = decomposition.report(loaded, split, recipe, check, limit, classes, bar)
    no_images = "not evaluated: the encoder has no example images; add --check SOURCE\n"
    say(no_images if table is None else format_frame(table, "table"), nl=False)
    say(f"wrote {out}; W is orthogonal to {split.error:.1e}")
    say(f"next: sorites distance SOURCE --against IN-DISTRIBUTION --decomposition {out}")


@derived(DistanceOptions)
def distance(options: DistanceOptions) -> None:
    """Measure the distance of images from in-distribution images.

    Writes the semantic (meaning) and covariate (appearance) distance and
    level of each image to a file, or for a run folder as facts of the run.
    With --texts, measures texts instead of images.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.facts.distance import measure_distance

    with bars() as bar:
        measured = measure_distance(options, bar)
    _print_levels(measured, "images" if options.texts is None else "texts")


def _print_levels(distances: Distances, kind: str) -> None:
    from sorites.cli.printing import print_frame

    record = distances.record
    say(f"{kind} per level: covariate (appearance) down, semantic (meaning) across")
    print_frame(distances.grid().rename({"images": kind}))
    for skipped in record.left_out:
        say(skipped, err=True)
    for axis, name in record.searched.items():
        say(f"{axis} neighbours: {name}")
    for axis, edges in record.edges.items():
        say(f"{axis} levels end at {', '.join(f'{edge:.4g}' for edge in edges)} (cosine distance)")
    say(f"wrote {len(distances.rows)} {kind} to {record.path}")


@derived(SimilarityOptions)
def similarity(options: SimilarityOptions) -> None:
    """Measure the similarity of each shifted image to its own clean image.

    Recreates the images of a run and writes facts/similarity.parquet.
    Existing values are kept. For more similar images, PSNR and SSIM are
    higher and LPIPS is lower.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.facts.similarity import measure_similarity

    with bars() as bar:
        path = measure_similarity(options, bar)
    say(f"wrote {path}\nnext: sorites report {options.run}")


@derived(SlicesOptions, format=(Format, "table"))
def slices(options: SlicesOptions, format: str) -> None:
    """Find properties of images on which models fail more often.

    Measures brightness, contrast, sharpness, colourfulness and size of the
    clean images of a run (facts/properties.parquet), and for detectors the
    size and number of objects. Prints the weak slices; the report shows them
    with images.
    """
    from sorites.analysis.slices import slices as found_slices
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars

    with bars() as bar:
        found = found_slices(**vars(options), bar=bar)
    weak = found.filter("weak").drop("weak")
    print_frame(weak, format)
    say(
        f"{len(weak)} of {len(found)} slices are weak at a false discovery rate of {options.rate:g}\n"
        f"next: sorites report {options.run}",
        err=True,
    )


def filter_(
    run: RunFolder,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="Image-text encoder: open_clip:NAME@WEIGHTS, python:module:name, cifar.",
        ),
    ] = None,
    second: Annotated[
        str | None,
        typer.Option(
            "--second",
            metavar="NAME",
            help="Image-only encoder: timm:NAME, onnx:FILE, lite0, or another encoder.",
        ),
    ] = None,
    thresholds: Annotated[
        str,
        typer.Option(
            "--thresholds",
            metavar="published|calibrated|FILE",
            help="Thresholds; a similarity at or below its threshold votes against the image.",
        ),
    ] = "published",
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="paper|code|text",
            help="Votes that an image needs: three of four, two of four, or only that of the class text.",
        ),
    ] = "paper",
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            metavar="FILE",
            help=(
                "Manual labels: image_id, or sample, shift and scale; and label (in, partial, out) or"
                " outside (true, false)."
            ),
        ),
    ] = None,
    shift_text: Annotated[
        list[str] | None,
        typer.Option(
            "--shift-text",
            metavar="SHIFT=WORDS",
            help='Text for a shift; default for heavy_snow: "in heavy snow". May be repeated.',
        ),
    ] = None,
    softmax: Annotated[
        bool,
        typer.Option(
            "--softmax", help="Apply a softmax to the second encoder's features, as the published code does."
        ),
    ] = False,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            metavar="whole|framed",
            help="What the encoders see: whole images as published (default), or the crop of the models.",
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Keep only complete trajectories, as in the published dataset."),
    ] = False,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Mark images that no longer show their class as invalid.

    Recreates the images of a run and writes four similarities of each shifted
    image and its validity to facts/out_of_class.parquet. Run it again without
    encoders to apply other thresholds or another rule.
    """
    from sorites.analysis.filter.filtering import filter_run
    from sorites.core.progress import bars
    from sorites.evaluation.storage.record import read_record
    from sorites.io.files import locked

    read_record(run)
    phrases = _phrases(shift_text or [])
    if encoder and thresholds == "published":
        say(_note_on_thresholds(), err=True)
    with locked(run), bars() as bar:
        filtered = filter_run(
            run,
            encoder,
            second,
            thresholds=thresholds,
            rule=rule,
            annotations=annotations,
            phrases=phrases,
            softmax=softmax,
            view=view,
            whole=whole,
            engine=engine_of(engine, address, gpus_per_worker),
            workers=workers,
            bar=bar,
        )
    _print_filtered(filtered)
    say(f"wrote {filtered.path}\nnext: sorites report {run}")


def _phrases(texts: list[str]) -> dict[str, str]:
    phrases = {}
    for text in texts:
        shift, _, words = text.partition("=")
        if not shift or not words.strip():
            raise SoritesError(
                f'--shift-text expects SHIFT=WORDS, such as heavy_snow="in heavy snow", got {text!r}'
            )
        phrases[shift] = words.strip()
    return phrases


def _note_on_thresholds() -> str:
    return (
        "note: the published thresholds are for --encoder open_clip:ViT-B-16@openai and the softmax of"
        " DINOv2 ViT-L/14's features; for other encoders add --thresholds calibrated --annotations FILE"
    )


def _print_filtered(filtered: Filtered) -> None:
    from sorites.cli.printing import print_frame

    print_frame(filtered.counts())
    if filtered.quality is not None:
        say(
            "against the annotations; tpr: share of out-of-class images removed, fpr: share of others removed"
        )
        print_frame(filtered.quality)
    limits = ", ".join(f"{vote} {value:.4g}" for vote, value in filtered.record.thresholds.items())
    say(f"rule {filtered.record.rule}, thresholds {filtered.record.origin}: {limits}")


def features(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made with --keep-features.")],
    distance: Annotated[
        str,
        typer.Option("--distance", metavar="cosine|euclidean", help="Distance between feature vectors."),
    ] = "cosine",
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Print every camera setting, not only the best, the worst and the automatic ones.",
        ),
    ] = False,
    format: Format = "table",
) -> None:
    """Print how well the features of a run cluster by class at each setting.

    Reads the kept features; prints the silhouette, the nearest-centroid
    accuracy and the distance from the clean image, with n and 95 % intervals.
    """
    from sorites.analysis.features import run_clusters
    from sorites.cli.printing import print_frame

    print_frame(run_clusters(run, distance, every), format)


@derived(ConformalOptions, format=(Format, "table"))
def conformal(options: ConformalOptions, format: str) -> None:
    """Compute the coverage and size of prediction sets at each severity.

    Reads the logits that "sorites run --keep-features" keeps. Sets are
    calibrated on the clean images of one half of the samples and evaluated
    on the other, and the other way round.
    """
    from sorites.analysis.uncertainty.conformal import conformal as compute
    from sorites.analysis.uncertainty.conformal import promised_range
    from sorites.cli.printing import print_frame

    answer = compute(
        options.run,
        alpha=options.alpha,
        methods=options.methods,
        models=options.models,
        measure=options.measure,
    )
    print_frame(answer, format)
    aside = format != "table"
    unweighted = answer.filter(weights="none")
    if unweighted.height:
        calibration = int(unweighted["calibration"].min())  # type: ignore[arg-type]
        low, high = promised_range(options.alpha, calibration)
        varies = (
            f"with {calibration} calibration images, 95 % of calibration sets cover {100 * low:.1f} to"
            f" {100 * high:.1f} % of them"
            if low < 1
            else f"{calibration} calibration images are too few, so that every set has all classes"
        )
        say(
            f"promised: {100 * (1 - options.alpha):g} % of clean images; {varies}. Nothing is promised for"
            " shifted images, and by a measure.",
            err=aside,
        )


@derived(RecalibrateOptions, format=(Format, "table"))
def recalibrate(options: RecalibrateOptions, format: str) -> None:
    """Recalibrate models on clean images, and judge them at each severity.

    Reads the logits that "sorites run --keep-features" keeps; prints NLL,
    Brier score and calibration errors. What is fitted on one half of the
    samples is judged on the other, and the other way round.
    """
    from sorites.analysis.uncertainty.recalibration import recalibrate as compute
    from sorites.cli.printing import print_frame

    print_frame(compute(options.run, methods=options.methods, models=options.models), format)
