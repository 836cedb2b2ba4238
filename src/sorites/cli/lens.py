"""``sorites lens``: prescriptions traced into a set of lenses, the set ranked, thinned out and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.lens_pictures import photo, space
from sorites.cli.lens_tolerance import tolerance

app = typer.Typer(help="Real lenses from their prescriptions: trace, rank, choose, look.", no_args_is_help=True)
Folder = Annotated[
    Path | None, typer.Option("--lenses", metavar="DIR", help="A folder of traced lenses; default the built-in ones.")
]
Format = Annotated[str, typer.Option("--format", metavar="table|csv|json", help="How to print.")]


@app.command(name="import")
def import_(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Zemax .zmx files, folders of them, or names of optiland's objectives.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of traced lenses.")],
    focus: Annotated[str, typer.Option("--focus", metavar="best|file", help="Where the sensor stands.")] = "best",
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Lenses at a time.")] = 1,
    glass: Annotated[
        list[str] | None,
        typer.Option(
            "--glass", metavar="NAME=ND,VD", help="A glass no catalogue here has: index and Abbe number; may be repeated."
        ),
    ] = None,
    format: Format = "table",
) -> None:
    """Trace each prescription and keep its blurs; what is refused is named with its reason."""
    from sorites.cli.printing import printed
    from sorites.lenses.batch import trace_all
    from sorites.lenses.trace import read_glasses
    from sorites.progress import bars

    with bars() as bar:
        table = trace_all(files, out, focus, workers, read_glasses(glass or ()), bar)
    typer.echo(printed(table, format), nl=False)
    kept = int(table["accepted"].sum())
    typer.echo(f"{kept} of {len(table)} lenses are in {out}\nnext: sorites lens list --lenses {out}", err=True)


@app.command(name="list")
def list_(folder: Folder = None, format: Format = "table") -> None:
    """Rank the lenses by quality: the mean over the field of the MTF50 of their kernels, in cycles/pixel."""
    from sorites.cli.printing import printed
    from sorites.lenses.store import builtin, ranked

    typer.echo(printed(ranked(folder or builtin()), format), nl=False)


@app.command()
def select(
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="How many lenses.")] = 100,
    folder: Folder = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Copy the chosen lenses into this folder.")] = None,
) -> None:
    """Choose a subset spread evenly over quality, worst first."""
    from sorites.lenses.store import builtin, load, names, selected

    held = folder or builtin()
    known = {name: load(held, name).quality for name in names(held)}
    if n > len(known):
        typer.echo(f"there are {len(known)} lenses: all of them", err=True)
    chosen = selected(known, min(n, len(known)))
    if out is not None:
        _copy(chosen, held, out)
    typer.echo("\n".join(chosen))
    if out is not None:
        typer.echo(f"next: sorites run lens_corruptions --lenses {out}", err=True)


def _copy(chosen: Sequence[str], held: Path, out: Path) -> None:
    import shutil

    from sorites.errors import SoritesError
    from sorites.lenses.store import SUFFIX
    from sorites.lenses.store import existing_names as lenses_in

    others = set(lenses_in(out)) - set(chosen) if out.resolve() != held.resolve() else ()
    if others:
        raise SoritesError(f"{out} holds other lenses ({', '.join(sorted(others)[:3])}); choose another --out DIR")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            shutil.copyfile(held / f"{name}{SUFFIX}", out / f"{name}{SUFFIX}")
    except shutil.SameFileError as error:
        raise SoritesError(
            f"wanted another folder for the chosen lenses, got the one they are in; choose another --out than {out}"
        ) from error
    except OSError as error:
        raise SoritesError(
            f"cannot copy the chosen lenses into {out}: {error.strerror or error}; choose another --out DIR"
        ) from error


@app.command()
def show(
    lens: Annotated[str, typer.Argument(metavar="LENS", help="A name from sorites lens list.")],
    folder: Folder = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The picture; default LENS.png here.")] = None,
) -> None:
    """Draw a lens as one picture: its kernels over the field, MTF curves and Zernike content."""
    from sorites.drawings.lens_sheet import sheet
    from sorites.drawings.strip import save
    from sorites.lenses.store import builtin, load

    path = out or Path(f"{lens}.png")
    save(sheet(load(folder or builtin(), lens)), path)
    typer.echo(f"wrote {path}")


app.command()(photo)
app.command()(space)
app.command()(tolerance)
