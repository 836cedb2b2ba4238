"""``sorites distance``, ``decompose``, ``similarity``, ``filter`` and ``features``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import (
    Address,
    EngineName,
    Format,
    GpusPerWorker,
    MaxPixels,
    RunFolder,
    Seed,
    Workers,
    engine_of,
)
from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.analysis.filter.filtering import Filtered
    from sorites.evaluation.facts.rulers import Distances

decompose_app = typer.Typer(
    help="Separate meaning from appearance in the embedding space of an encoder.", no_args_is_help=True
)

# Default output file for the distances of a source.
FILE = Path("distance.parquet")

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


def distance(
    against: Annotated[str, typer.Option("--against", metavar="SOURCE", help="In-distribution images.")],
    what: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE|RUN", help="A source of images, or a run folder.", show_default=False),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option("--texts", metavar="FILE", help="Measure texts instead: a file with one per line."),
    ] = None,
    encoder: EncoderName = "cifar",
    decomposition: Annotated[
        str | None,
        typer.Option(
            "--decomposition", metavar="FILE", help='A decomposition, made by "sorites decompose train".'
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|imagenet",
            help="Use only images of these classes, one per line; default: all images.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            help="Use the first N in-distribution images of a fixed random order.",
        ),
    ] = None,
    k: Annotated[
        int,
        typer.Option("--k", metavar="N", min=1, help="Use the distance to the N-th nearest neighbour."),
    ] = 10,
    levels: Annotated[
        int, typer.Option("--levels", metavar="N", min=2, help="Number of levels per axis.")
    ] = 8,
    sem_edges: Annotated[
        str, typer.Option("--sem-edges", metavar="X,X", help="Inner edges of the semantic levels.")
    ] = "",
    cov_edges: Annotated[
        str, typer.Option("--cov-edges", metavar="X,X", help="Inner edges of the covariate levels.")
    ] = "",
    neighbours: Annotated[
        str,
        typer.Option(
            "--neighbours",
            metavar="exact|ivf|hnsw",
            help=(
                "Search exactly, or approximately with a faiss index, whose recall is measured and printed."
            ),
        ),
    ] = "exact",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help=(
                "Encode and search in resumable tasks on local, processes or ray; run the same command"
                " to continue."
            ),
        ),
    ] = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file for the distances of a source.")
    ] = FILE,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure the distance of images from in-distribution images.

    Writes the semantic (meaning) and covariate (appearance) distance and
    level of each image to a file, or for a run folder as facts of the run.
    With --texts, measures texts instead of images.
    """
    from sorites.core.errors import SoritesError
    from sorites.core.progress import bars
    from sorites.evaluation.facts import distance as distances
    from sorites.evaluation.facts.texts import distance_of_file

    if (what is None) == (texts is None):
        raise SoritesError("expected a source of images, a run folder, or --texts FILE (exactly one)")

    if texts is not None and engine is not None:
        raise SoritesError("--engine does not apply to --texts: texts are measured in this process")
    if engine is None and (workers or address or gpus_per_worker):
        raise SoritesError(
            "--workers, --address and --gpus-per-worker require --engine local, processes or ray"
        )
    if encoder.partition(":")[0] == "cifar":
        say(_note_on_cifar(), err=True)
    how = distances.distance_options(
        sem_edges,
        cov_edges,
        encoder=encoder,
        against=against,
        decomposition=decomposition,
        limit=limit,
        k=k,
        levels=levels,
        neighbours=neighbours,
    )
    with bars() as bar:
        if what is not None:
            start = None if engine is None else engine_of(engine, address, gpus_per_worker)
            measured = distances.distance(what, how, labels, out, bar, start, workers)
        else:
            measured = distance_of_file(str(texts), how, labels, out, bar)
    _print_levels(measured, "images" if what is not None else "texts")


def _note_on_cifar() -> str:
    from sorites.encoders.cifar import CLASSES

    classes = f"the default encoder, cifar, has ten classes at 32 px ({', '.join(CLASSES)})"
    return f"note: {classes}; for other images add --encoder open_clip:NAME@WEIGHTS"


def _print_levels(distances: Distances, kind: str) -> None:
    from sorites.cli.printing import format_frame

    record = distances.record
    say(f"{kind} per level: covariate (appearance) down, semantic (meaning) across")
    say(format_frame(distances.grid().rename({"images": kind}), "table"), nl=False)
    for skipped in record.get("left_out", ()):
        say(skipped, err=True)
    for axis, name in record.get("searched", {}).items():
        say(f"{axis} neighbours: {name}")
    for axis, edges in record["edges"].items():
        say(f"{axis} levels end at {', '.join(f'{edge:.4g}' for edge in edges)} (cosine distance)")
    say(f"wrote {len(distances.rows)} {kind} to {record['path']}")


def similarity(
    run: RunFolder,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="NAME",
            help="Measure to compute: psnr, ssim, lpips, exposure_error, clipped_share. May be repeated.",
        ),
    ] = None,
    lpips_below: Annotated[
        float | None,
        typer.Option(
            "--lpips-below",
            metavar="X",
            help="Mark settings as invalid unless their mean LPIPS is below this.",
        ),
    ] = None,
    lpips_measure: Annotated[
        str | None,
        typer.Option(
            "--lpips-measure",
            metavar="lpips|lpips_linear",
            help="Measure for --lpips-below; default: that of the run's suite.",
        ),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure the similarity of each shifted image to its own clean image.

    Recreates the images of a run and writes facts/similarity.parquet.
    Existing values are kept. For more similar images, PSNR and SSIM are
    higher and LPIPS is lower.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.facts.similarity import DEFAULT_MEASURES as DEFAULT
    from sorites.evaluation.facts.similarity import similarity as measure_similarity
    from sorites.evaluation.storage.folder import read_info
    from sorites.io.files import locked

    read_info(run)
    with locked(run), bars() as bar:
        path = measure_similarity(
            run,
            measure or DEFAULT,
            lpips_below=lpips_below,
            lpips_measure=lpips_measure,
            engine=engine_of(engine, address, gpus_per_worker),
            workers=workers,
            bar=bar,
        )
    say(f"wrote {path}\nnext: sorites report {run}")


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
    from sorites.evaluation.storage.folder import read_info
    from sorites.io.files import locked

    read_info(run)
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
    from sorites.cli.printing import format_frame

    say(format_frame(filtered.counts(), "table"), nl=False)
    if filtered.quality is not None:
        say(
            "against the annotations; tpr: share of out-of-class images removed, fpr: share of others removed"
        )
        say(format_frame(filtered.quality, "table"), nl=False)
    limits = ", ".join(f"{vote} {value:.4g}" for vote, value in filtered.record["thresholds"].items())
    say(f"rule {filtered.record['rule']}, thresholds {filtered.record['from']}: {limits}")


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
    from sorites.cli.printing import format_frame

    say(format_frame(run_clusters(run, distance, every), format), nl=False, exact=format != "table")
