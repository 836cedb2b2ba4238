"""The verbs that measure how far pictures stand from familiar pictures: ``sorites distance`` and ``sorites decompose``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Address, GpusPerWorker, MaxPixels, Seed, Workers, engine_of
from sorites.cli.output import say

if TYPE_CHECKING:
    from sorites.pipeline.levels import Distances

decompose_app = typer.Typer(help="Separate meaning from appearance in the space of an image-text model.", no_args_is_help=True)

FILE = Path("distance.parquet")
"""The default file of a source's distances."""

RefereeName = Annotated[
    str,
    typer.Option(
        "--referee",
        metavar="NAME",
        help="The image-text model that judges: cifar, cifar:N, open_clip:NAME@WEIGHTS, python:module:name.",
    ),
]


@decompose_app.callback()
def _decompose() -> None:
    """Separate meaning from appearance in the space of an image-text model."""


@decompose_app.command()
def train(
    referee: RefereeName = "cifar",
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|imagenet",
            help="The classes to make texts of, one per line, as ImageNet-21K's; the default is the referee's classes.",
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
        int, typer.Option("--triplets", metavar="N", min=1, help="The number of triplets of texts to learn from.")
    ] = 4000,
    margin: Annotated[float, typer.Option("--margin", metavar="A", help="The margin of the loss, in cosine distance.")] = 1.0,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", min=1, help="The number of passes over the triplets.")] = 20,
    seed: Seed = 0,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="SOURCE", help="Labelled pictures to check on; the default is the referee's examples."),
    ] = None,
    check_labels: Annotated[
        str | None,
        typer.Option(
            "--check-labels",
            metavar="FILE|imagenet",
            help="The classes among which those pictures are told apart; the default is those of the texts.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Check on at most N pictures of each part.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file of the decomposition.")] = Path(
        "split.safetensors"
    ),
) -> None:
    """Learn the decomposition from texts alone, and check it on pictures.

    Reads a referee and its texts; writes a file for "sorites distance
    --decomposition", and prints how well class and appearance can still be
    told from each half.
    """
    from sorites import core
    from sorites.cli.printing import format_frame
    from sorites.labels import labels as read_labels
    from sorites.measures._decompose import Training
    from sorites.measures._texts import read_names, read_styles
    from sorites.pipeline import decomposition
    from sorites.progress import bars

    judge = core.referee(referee)
    names = () if not labels else read_labels(labels).names if labels == "imagenet" else read_names(labels)
    classes = read_labels(check_labels) if check_labels else None
    training = Training(margin=margin, epochs=epochs, seed=seed)
    recipe = decomposition.recipe(judge, names, read_styles(templates) if templates else (), triplets, training)
    with bars() as bar:
        tick = bar("learning", epochs)
        split = decomposition.learn(judge, recipe, lambda epoch, loss: tick(1), bar)
        decomposition.save(out, split, judge, recipe)
        table = decomposition.report(judge, split, recipe, check, limit, classes, bar)
    no_pictures = "there are no pictures to check on; name some with --check SOURCE\n"
    say(no_pictures if table is None else format_frame(table, "table"), nl=False)
    say(f"wrote {out}; W is orthogonal to {split.error:.1e}")
    say(f"next: sorites distance SOURCE --against FAMILIAR --decomposition {out}")


def distance(
    against: Annotated[str, typer.Option("--against", metavar="SOURCE", help="The familiar pictures.")],
    what: Annotated[
        str | None, typer.Argument(metavar="SOURCE|RUN", help="Pictures by source, or a run folder.", show_default=False)
    ] = None,
    texts: Annotated[
        Path | None, typer.Option("--texts", metavar="FILE", help="Measure the texts of a file instead, one per line.")
    ] = None,
    referee: RefereeName = "cifar",
    decomposition: Annotated[
        str | None,
        typer.Option("--decomposition", metavar="FILE", help='A decomposition made by "sorites decompose train".'),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|imagenet",
            help="Take only pictures of these classes, one per line; the default is pictures of any class.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Take N familiar pictures, the first of a fixed shuffled order."),
    ] = None,
    k: Annotated[int, typer.Option("--k", metavar="N", min=1, help="Measure the distance to the N-th nearest neighbour.")] = 10,
    levels: Annotated[int, typer.Option("--levels", metavar="N", min=2, help="The number of levels of each axis.")] = 8,
    sem_edges: Annotated[str, typer.Option("--sem-edges", metavar="X,X", help="The inner edges of the semantic levels.")] = "",
    cov_edges: Annotated[str, typer.Option("--cov-edges", metavar="X,X", help="The inner edges of the covariate levels.")] = "",
    neighbours: Annotated[
        str,
        typer.Option(
            "--neighbours",
            metavar="exact|ivf|hnsw",
            help="Compare all pairs, or let an index of faiss find most of the nearest; its recall is measured and named.",
        ),
    ] = "exact",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Encode and search on local, processes or ray, in units that are kept; type the same command to continue.",
        ),
    ] = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The table of a source's distances.")] = FILE,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure how far pictures stand from familiar pictures.

    Reads a source or a run folder, and a source of familiar pictures; writes
    the semantic (meaning) and covariate (appearance) distance and level of
    each picture to a file, or for a run as facts beside its table. With
    --texts, the same of each text against the familiar pictures.
    """
    from sorites.errors import SoritesError
    from sorites.pipeline import distance as distances
    from sorites.pipeline.distance_of_texts import distance_of_file
    from sorites.progress import bars

    if (what is None) == (texts is None):
        raise SoritesError("name what to measure: either a source of pictures or a run folder, or a file with --texts FILE")

    if texts is not None and engine is not None:
        raise SoritesError("--engine is for pictures; texts are measured in this process")
    if engine is None and (workers or address or gpus_per_worker):
        raise SoritesError("--workers, --address and --gpus-per-worker need an engine: give --engine local, processes or ray too")
    if referee.partition(":")[0] == "cifar":
        say(_note_on_cifar(), err=True)
    how = distances.distance_options(
        sem_edges,
        cov_edges,
        referee=referee,
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
    _print_levels(found, "pictures" if what is not None else "texts")


def _note_on_cifar() -> str:
    from sorites.referees._captions import CLASSES

    kinds = f"the default referee, cifar, knows ten kinds of things at 32 px ({', '.join(CLASSES)})"
    return f"note: {kinds}; give --referee open_clip:NAME@WEIGHTS for others"


def _print_levels(found: Distances, kind: str) -> None:
    from sorites.cli.printing import format_frame

    say(f"{kind} per level: appearance (covariate) down, meaning (semantic) across")
    say(format_frame(found.grid().rename({"pictures": kind}), "table"), nl=False)
    for left in found.record.get("left_out", ()):
        say(left, err=True)
    for half, name in found.record.get("searched", {}).items():
        say(f"{half} neighbours by {name}")
    for half, edges in found.record["edges"].items():
        say(f"{half} levels end at {', '.join(f'{edge:.4g}' for edge in edges)} (cosine distance)")
    say(f"wrote {len(found.rows)} {kind} to {found.record['path']}")
