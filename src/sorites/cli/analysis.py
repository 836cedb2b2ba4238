"""The verbs that measure how far images stand from in-distribution images: ``sorites distance`` and
``sorites decompose``.
"""

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
    help="Separate meaning from appearance in the space of an image-text model.", no_args_is_help=True
)

# The default file of a source's distances.
FILE = Path("distance.parquet")

EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="The image-text model that judges: cifar, cifar:N, open_clip:NAME@WEIGHTS, python:module:name.",
    ),
]


@decompose_app.callback()
def _decompose() -> None:
    """Separate meaning from appearance in the space of an image-text model."""


@decompose_app.command()
def train(
    encoder: EncoderName = "cifar",
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|imagenet",
            help=(
                "The classes to make texts of, one per line, as ImageNet-21K's; the default is the encoder's"
                " classes."
            ),
        ),
    ] = None,
    templates: Annotated[
        Path | None,
        typer.Option(
            "--templates",
            metavar="FILE",
            help="Sentences with {} or {c}, one per line, as CLIP's; an empty line ends an appearance.",
        ),
    ] = None,
    triplets: Annotated[
        int,
        typer.Option("--triplets", metavar="N", min=1, help="The number of triplets of texts to learn from."),
    ] = 4000,
    margin: Annotated[
        float, typer.Option("--margin", metavar="A", help="The margin of the loss, in cosine distance.")
    ] = 1.0,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", min=1, help="The number of passes over the triplets.")
    ] = 20,
    seed: Seed = 0,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="SOURCE",
            help="Labelled images to check on; the default is the encoder's examples.",
        ),
    ] = None,
    check_labels: Annotated[
        str | None,
        typer.Option(
            "--check-labels",
            metavar="FILE|imagenet",
            help="The classes among which those images are told apart; the default is those of the texts.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Check on at most N images of each part."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file of the decomposition.")] = Path(
        "split.safetensors"
    ),
) -> None:
    """Learn the decomposition from texts alone, and check it on images.

    Reads an encoder and its texts; writes a file for "sorites distance
    --decomposition", and prints how well class and appearance can still be
    told from each half.
    """
    from sorites import core
    from sorites.cli.printing import format_frame
    from sorites.core.labels import labels as read_labels
    from sorites.core.progress import bars
    from sorites.evaluation.facts import decomposition
    from sorites.measures.decomposition import Training, read_names, read_styles

    judge = core.encoder(encoder)
    names = () if not labels else read_labels(labels).names if labels == "imagenet" else read_names(labels)
    classes = read_labels(check_labels) if check_labels else None
    training = Training(margin=margin, epochs=epochs, seed=seed)
    recipe = decomposition.recipe(
        judge, names, read_styles(templates) if templates else (), triplets, training
    )
    with bars() as bar:
        tick = bar("learning", epochs)
        split = decomposition.learn(judge, recipe, lambda epoch, loss: tick(1), bar)
        decomposition.save(out, split, judge, recipe)
        table = decomposition.report(judge, split, recipe, check, limit, classes, bar)
    no_images = "there are no images to check on; name some with --check SOURCE\n"
    say(no_images if table is None else format_frame(table, "table"), nl=False)
    say(f"wrote {out}; W is orthogonal to {split.error:.1e}")
    say(f"next: sorites distance SOURCE --against IN-DISTRIBUTION --decomposition {out}")


def distance(
    against: Annotated[str, typer.Option("--against", metavar="SOURCE", help="The in-distribution images.")],
    what: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE|RUN", help="Images by source, or a run folder.", show_default=False),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option("--texts", metavar="FILE", help="Measure the texts of a file instead, one per line."),
    ] = None,
    encoder: EncoderName = "cifar",
    decomposition: Annotated[
        str | None,
        typer.Option(
            "--decomposition", metavar="FILE", help='A decomposition made by "sorites decompose train".'
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|imagenet",
            help="Take only images of these classes, one per line; the default is images of any class.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            help="Take N in-distribution images, the first of a fixed shuffled order.",
        ),
    ] = None,
    k: Annotated[
        int,
        typer.Option("--k", metavar="N", min=1, help="Measure the distance to the N-th nearest neighbour."),
    ] = 10,
    levels: Annotated[
        int, typer.Option("--levels", metavar="N", min=2, help="The number of levels of each axis.")
    ] = 8,
    sem_edges: Annotated[
        str, typer.Option("--sem-edges", metavar="X,X", help="The inner edges of the semantic levels.")
    ] = "",
    cov_edges: Annotated[
        str, typer.Option("--cov-edges", metavar="X,X", help="The inner edges of the covariate levels.")
    ] = "",
    neighbours: Annotated[
        str,
        typer.Option(
            "--neighbours",
            metavar="exact|ivf|hnsw",
            help=(
                "Compare all pairs, or let an index of faiss find most of the nearest; its recall is measured"
                " and named."
            ),
        ),
    ] = "exact",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help=(
                "Encode and search on local, processes or ray, in units that are kept; type the same command"
                " to continue."
            ),
        ),
    ] = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The table of a source's distances.")
    ] = FILE,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure how far images stand from in-distribution images.

    Reads a source or a run folder, and a source of in-distribution images; writes
    the semantic (meaning) and covariate (appearance) distance and level of
    each image to a file, or for a run as facts beside its table. With
    --texts, the same of each text against the in-distribution images.
    """
    from sorites.core.errors import SoritesError
    from sorites.core.progress import bars
    from sorites.evaluation.facts import distance as distances
    from sorites.evaluation.facts.texts import distance_of_file

    if (what is None) == (texts is None):
        raise SoritesError(
            "name what to measure: either a source of images or a run folder, or a file with --texts FILE"
        )

    if texts is not None and engine is not None:
        raise SoritesError("--engine is for images; texts are measured in this process")
    if engine is None and (workers or address or gpus_per_worker):
        raise SoritesError(
            "--workers, --address and --gpus-per-worker need an engine: give --engine local, processes or"
            " ray too"
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
            found = distances.distance(what, how, labels, out, bar, start, workers)
        else:
            found = distance_of_file(str(texts), how, labels, out, bar)
    _print_levels(found, "images" if what is not None else "texts")


def _note_on_cifar() -> str:
    from sorites.encoders.cifar import CLASSES

    kinds = f"the default encoder, cifar, knows ten kinds of objects at 32 px ({', '.join(CLASSES)})"
    return f"note: {kinds}; give --encoder open_clip:NAME@WEIGHTS for others"


def _print_levels(found: Distances, kind: str) -> None:
    from sorites.cli.printing import format_frame

    say(f"{kind} per level: appearance (covariate) down, meaning (semantic) across")
    say(format_frame(found.grid().rename({"images": kind}), "table"), nl=False)
    for left in found.record.get("left_out", ()):
        say(left, err=True)
    for half, name in found.record.get("searched", {}).items():
        say(f"{half} neighbours by {name}")
    for half, edges in found.record["edges"].items():
        say(f"{half} levels end at {', '.join(f'{edge:.4g}' for edge in edges)} (cosine distance)")
    say(f"wrote {len(found.rows)} {kind} to {found.record['path']}")


# The verb that measures how near every shifted image of a run is to its own clean image.


def similarity(
    run: RunFolder,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="NAME",
            help="Measure this: psnr, ssim, lpips, exposure_error, clipped_share. May be repeated.",
        ),
    ] = None,
    lpips_below: Annotated[
        float | None,
        typer.Option(
            "--lpips-below",
            metavar="X",
            help="Mark settings as not valid unless their mean LPIPS is below this.",
        ),
    ] = None,
    lpips_measure: Annotated[
        str | None,
        typer.Option(
            "--lpips-measure",
            metavar="lpips|lpips_linear",
            help="The measure that --lpips-below goes by. The default is the one that the run's suite names.",
        ),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure how near every shifted image is to its own clean image.

    Reads a run folder and makes its images again; writes
    facts/similarity.parquet beside its table. What was measured before is
    not measured again. PSNR and SSIM are higher for nearer images, LPIPS
    is lower.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.facts.similarity import DEFAULT
    from sorites.evaluation.facts.similarity import similarity as measure_similarity
    from sorites.evaluation.storage.folder import read_info
    from sorites.io.files import locked

    read_info(run)
    with locked(run), bars() as bar:
        path = measure_similarity(
            run, measure or DEFAULT, lpips_below=lpips_below, lpips_measure=lpips_measure,
            engine=engine_of(engine, address, gpus_per_worker), workers=workers, bar=bar,
        )  # fmt: skip
    say(f"wrote {path}\nnext: sorites report {run}")


# The verb that sets aside the images of a run that no longer show their class.


def filter_(
    run: RunFolder,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="The image-text encoder: open_clip:NAME@WEIGHTS, python:module:name, cifar.",
        ),
    ] = None,
    second: Annotated[
        str | None,
        typer.Option(
            "--second",
            metavar="NAME",
            help="The encoder of images alone: timm:NAME, onnx:FILE, lite0, or another encoder.",
        ),
    ] = None,
    thresholds: Annotated[
        str,
        typer.Option(
            "--thresholds",
            metavar="published|calibrated|FILE",
            help="A similarity at or below its threshold is a vote against the image.",
        ),
    ] = "published",
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="paper|code|text",
            help="The votes of four that an image needs: three, two, or only that of the class text.",
        ),
    ] = "paper",
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            metavar="FILE",
            help=(
                "Labels by hand: image_id, or sample, shift and scale; and label (in, partial, out) or"
                " outside (true, false)."
            ),
        ),
    ] = None,
    shift_text: Annotated[
        list[str] | None,
        typer.Option(
            "--shift-text",
            metavar="SHIFT=WORDS",
            help='The words for a shift; the default for heavy_snow is "in heavy snow". May be repeated.',
        ),
    ] = None,
    softmax: Annotated[
        bool,
        typer.Option(
            "--softmax", help="Take the softmax of the second encoder's features, as the published code does."
        ),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Keep only trajectories of which every image stays, as the published set does."
        ),
    ] = False,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Set aside the images of a run that no longer show their class.

    Reads a run folder and makes its images again; writes four similarities
    of every shifted image and whether it stays to facts/out_of_class.parquet
    beside its table. Type it again without encoders to judge the same
    similarities by other thresholds or another rule.
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
        found = filter_run(
            run, encoder, second, thresholds=thresholds, rule=rule, annotations=annotations, phrases=phrases,
            softmax=softmax, whole=whole, engine=engine_of(engine, address, gpus_per_worker), workers=workers, bar=bar,
        )  # fmt: skip
    _print(found)
    say(f"wrote {found.path}\nnext: sorites report {run}")


def _phrases(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        shift, _, words = text.partition("=")
        if not shift or not words.strip():
            raise SoritesError(
                f'--shift-text wants SHIFT=WORDS, such as heavy_snow="in heavy snow", got {text!r}'
            )
        found[shift] = words.strip()
    return found


def _note_on_thresholds() -> str:
    return (
        "note: the published thresholds hold for --encoder open_clip:ViT-B-16@openai and the softmax of"
        " DINOv2 ViT-L/14's features; for other encoders give --thresholds calibrated --annotations FILE"
    )


def _print(found: Filtered) -> None:
    from sorites.cli.printing import format_frame

    say(format_frame(found.counts(), "table"), nl=False)
    if found.quality is not None:
        say(
            "against the annotations; tpr is the share of out-of-class images set aside, fpr that of the"
            " others"
        )
        say(format_frame(found.quality, "table"), nl=False)
    limits = ", ".join(f"{vote} {value:.4g}" for vote, value in found.record["thresholds"].items())
    say(f"rule {found.record['rule']}, thresholds {found.record['from']}: {limits}")


# The verb that says how well a run's features cluster by class.


def features(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made with --keep-features.")],
    distance: Annotated[
        str,
        typer.Option("--distance", metavar="cosine|euclidean", help="The distance between feature vectors."),
    ] = "cosine",
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Answer for every camera setting, not only for the best, the worst and the automatic.",
        ),
    ] = False,
    format: Format = "table",
) -> None:
    """Say how well a run's features cluster by class at each setting.

    Reads the features that the run kept; prints the silhouette, the share
    nearest to the centroid of their class and the distance from the clean
    image, each with n and its 95 % interval. Writes no file.
    """
    from sorites.analysis.features import run_clusters
    from sorites.cli.printing import format_frame

    say(format_frame(run_clusters(run, distance, every), format), nl=False, exact=format != "table")
