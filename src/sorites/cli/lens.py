"""The verbs about real lenses: trace prescriptions into a set of lenses, rank the set, choose from it and draw it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.lens_pictures import photo, space
from sorites.cli.lens_tolerance import tolerance
from sorites.cli.options import Format, Glasses, LensFolder, LensName
from sorites.cli.output import say

app = typer.Typer(help="Trace real lenses from their prescriptions, rank them, choose some and draw them.", no_args_is_help=True)


@app.command(name="import")
def import_(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Zemax .zmx files, folders of them, or names of optiland's objectives.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the traced lenses go to.")],
    focus: Annotated[
        str, typer.Option("--focus", metavar="best|file", help="Put the sensor at the best focus, or where the file has it.")
    ] = "best",
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="The number of lenses traced at a time.")] = 1,
    glass: Glasses = None,
    format: Format = "table",
) -> None:
    """Trace prescriptions into blur kernels.

    Reads Zemax files; writes one file per accepted lens, and prints which
    were accepted and why the others were refused.
    """
    from sorites.cli.printing import format_frame
    from sorites.lenses.batch import trace_all
    from sorites.lenses.trace import read_glasses
    from sorites.progress import bars

    with bars() as bar:
        table = trace_all(files, out, focus, workers, read_glasses(glass or ()), bar)
    say(format_frame(table, format), nl=False, exact=format != "table")
    kept = int(table["accepted"].sum())
    say(f"{kept} of {len(table)} lenses are in {out}\nnext: sorites lens list --lenses {out}", err=True)


@app.command(name="list")
def list_(folder: LensFolder = None, format: Format = "table") -> None:
    """Rank lenses by quality, the mean MTF50 of their kernels over the field.

    Reads a folder of traced lenses; prints one row per lens, MTF50 in cycles
    per pixel.
    """
    from sorites.cli.printing import format_frame
    from sorites.lenses.store import builtin, ranked

    say(format_frame(ranked(folder or builtin()), format), nl=False, exact=format != "table")


@app.command()
def select(
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="The number of lenses to choose.")] = 100,
    folder: LensFolder = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Copy the chosen lenses into this folder.")] = None,
) -> None:
    """Choose lenses spread evenly over quality.

    Reads a folder of traced lenses; prints the names of the chosen ones, the
    worst first, and copies them into a folder with --out.
    """
    from sorites.lenses.store import builtin, load, names, selected

    store = folder or builtin()
    quality = {name: load(store, name).quality for name in names(store)}
    if n > len(quality):
        say(f"there are {len(quality)} lenses; all of them are chosen", err=True)
    chosen = selected(quality, min(n, len(quality)))
    if out is not None:
        _copy_lenses(chosen, store, out)
    say("\n".join(chosen))
    if out is not None:
        say(f"next: sorites run lens_corruptions --lenses {out}", err=True)


def _copy_lenses(chosen: Sequence[str], store: Path, out: Path) -> None:
    """Copy the chosen lenses from the folder ``store``; refuse a folder that holds others."""
    import shutil

    from sorites.errors import SoritesError
    from sorites.lenses.store import SUFFIX
    from sorites.lenses.store import existing_names as lenses_in
    from sorites.reading.places import resolved

    others = set(lenses_in(out)) - set(chosen) if resolved(out) != resolved(store) else ()
    if others:
        raise SoritesError(f"{out} holds other lenses ({', '.join(sorted(others)[:3])}); choose another --out DIR")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            shutil.copyfile(store / f"{name}{SUFFIX}", out / f"{name}{SUFFIX}")
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
    lens: LensName,
    folder: LensFolder = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The picture; the default is LENS.png in this folder.")
    ] = None,
) -> None:
    """Draw a lens: its kernels over the field, MTF curves and Zernike content.

    Reads a traced lens; writes one picture.
    """
    from sorites.drawings.lens_sheet import sheet
    from sorites.drawings.strip import save
    from sorites.lenses.store import builtin, load

    path = out or Path(f"{lens}.png")
    save(sheet(load(folder or builtin(), lens)), path)
    say(f"wrote {path}")


app.command()(photo)
app.command()(space)
app.command()(tolerance)
