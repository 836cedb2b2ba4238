"""``sorites decompose train`` and ``sorites measure``: how strange pictures are, by degree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sorites.pipeline.distance import Distances

decompose_app = typer.Typer(help="Part meaning from appearance in the space of an image-text model.", no_args_is_help=True)

RefereeName = Annotated[
    str, typer.Option("--referee", metavar="NAME", help="cifar[:N], open_clip:NAME@WEIGHTS, python:module:name.")
]
LabelFile = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE|imagenet", help="Classes to tell apart, one a line; default the referee's own."),
]
SourceLabels = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE|imagenet", help="Only sources of these classes, one a line; default of any."),
]


@decompose_app.callback()
def _decompose() -> None:
    """Part meaning from appearance in the space of an image-text model."""


@decompose_app.command()
def train(
    referee: RefereeName = "cifar",
    labels: LabelFile = None,
    templates: Annotated[
        Path | None, typer.Option("--templates", metavar="FILE", help="Sentences with {}, one a line; an empty line ends a look.")
    ] = None,
    triplets: Annotated[int, typer.Option("--triplets", metavar="N", min=1, help="Triplets of texts.")] = 4000,
    margin: Annotated[float, typer.Option("--margin", metavar="A", help="In cosine distance.")] = 1.0,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", min=1)] = 20,
    seed: Annotated[int, typer.Option("--seed", metavar="N")] = 0,
    check: Annotated[
        str | None, typer.Option("--check", metavar="SOURCE", help="Labelled pictures to check on; default the referee's own.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only so many pictures of each part to check on.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The split.")] = Path("split.safetensors"),
) -> None:
    """Learn the split from texts alone, and print what each half still knows of class and look."""
    from sorites import core
    from sorites.cli.printing import printed
    from sorites.labels import labels as read_labels
    from sorites.measures._decompose import Training
    from sorites.measures._texts import read_styles
    from sorites.pipeline import decomposition as splits
    from sorites.progress import bars

    judge = core.referee(referee)
    names = read_labels(labels).names if labels else ()
    training = Training(margin=margin, epochs=epochs, seed=seed)
    made = splits.recipe(judge, names, read_styles(templates) if templates else (), triplets, training)
    with bars() as bar:
        tick = bar("learning", epochs)
        split = splits.learn(judge, made, lambda epoch, loss: tick(1))
    splits.save(out, split, judge, made)
    found = splits.report(judge, split, made, check, limit)
    typer.echo(
        printed(found, "table") if found is not None else "no pictures to check on: name some with --check SOURCE\n", nl=False
    )
    typer.echo(
        f"wrote {out}; W is orthogonal to {split.error:.1e}\nnext: sorites measure SOURCE --against FAMILIAR --split {out}"
    )


def measure(
    what: Annotated[str, typer.Argument(metavar="SOURCE|RUN", help="Pictures by source, or a run folder.")],
    against: Annotated[str, typer.Option("--against", metavar="SOURCE", help="The familiar pictures.")],
    referee: RefereeName = "cifar",
    split: Annotated[str | None, typer.Option("--split", metavar="FILE", help='Made by "sorites decompose train".')] = None,
    labels: SourceLabels = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Familiar pictures, in a fair order.")] = None,
    k: Annotated[int, typer.Option("--k", metavar="N", min=1, help="The neighbour that counts.")] = 10,
    levels: Annotated[int, typer.Option("--levels", metavar="N", min=2, help="Levels of each axis.")] = 8,
    sem_edges: Annotated[str, typer.Option("--sem-edges", metavar="X,X", help="Inner edges of the semantic levels.")] = "",
    cov_edges: Annotated[str, typer.Option("--cov-edges", metavar="X,X", help="Inner edges of the covariate levels.")] = "",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The table of a source's degrees.")] = Path(
        "degrees.parquet"
    ),
) -> None:
    """Give every picture its semantic and covariate degree and its level: distances to the familiar, by halves of a referee."""
    from sorites.pipeline import distance as measuring
    from sorites.progress import bars

    if referee.partition(":")[0] == "cifar":
        typer.echo(_known(), err=True)
    how = measuring.distance_options(
        sem_edges, cov_edges, referee=referee, against=against, decomposition=split, limit=limit, k=k, levels=levels
    )
    with bars() as bar:
        found = measuring.distance(what, how, labels, out, bar)
    _said(found, what, out)


def _known() -> str:
    from sorites.referees._captions import CLASSES

    kinds = f"the default referee, cifar, knows ten kinds of things at 32 px ({', '.join(CLASSES)})"
    return f"note: {kinds}; give --referee open_clip:NAME@WEIGHTS for others"


def _said(found: Distances, what: str, out: Path) -> None:
    from sorites.cli.printing import printed

    typer.echo("pictures by level: appearance (covariate) down, meaning (semantic) across")
    typer.echo(printed(found.grid(), "table"), nl=False)
    for half, edges in found.record["edges"].items():
        typer.echo(f"{half} levels end at {', '.join(f'{edge:.4g}' for edge in edges)} (cosine distance)")
    typer.echo(f"wrote {len(found.rows)} pictures to {found.record['path']}")


def degrees(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", metavar="NAME", help="psnr, ssim, lpips, exposure_error, clipped_share; may be repeated."),
    ] = None,
    lpips_below: Annotated[
        float | None, typer.Option("--lpips-below", metavar="X", help="Set aside settings whose mean LPIPS is not below this.")
    ] = None,
) -> None:
    """Measure how far every shifted picture of a run moved from its clean one."""
    from sorites.pipeline.folder import locked, read_info
    from sorites.pipeline.similarity import DEFAULT
    from sorites.pipeline.similarity import similarity as measured
    from sorites.progress import bars

    read_info(run)
    with locked(run), bars() as bar:
        path = measured(run, measure or DEFAULT, lpips_below=lpips_below, bar=bar)
    typer.echo(f"wrote {path}\nnext: sorites report {run}")
