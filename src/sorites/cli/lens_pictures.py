"""``sorites lens photo`` and ``sorites lens space``: whole photographs through a lens, and a set of lenses as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path | None, typer.Option("--lenses", metavar="DIR", help="A folder of traced lenses; default the built-in ones.")
]


def photo(
    lens: Annotated[str, typer.Argument(metavar="LENS", help="A name from sorites lens list.")],
    pictures: Annotated[
        list[Path], typer.Argument(metavar="PICTURE...", help="Up to 178 megapixels each: JPEG, PNG, WebP, TIFF ...")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the PNG files go, under the pictures' own names.")],
    folder: Folder = None,
    corner: Annotated[
        float, typer.Option("--corner", metavar="X", help="Where the pictures' corners stand, 1 at the edge of the lens's field.")
    ] = 1.0,
) -> None:
    """Take whole photographs through a lens: every place gets the blur of its distance from the middle."""
    from sorites.datasets.lens_photo import photograph
    from sorites.lenses.store import builtin, load
    from sorites.progress import bars

    entry = load(folder or builtin(), lens)
    with bars() as bar:
        failed = photograph(entry, pictures, out, corner, bar)
    for _, reason in failed:
        typer.echo(f"not written: {reason}", err=True)
    typer.echo(f"wrote {len(pictures) - len(failed)} of {len(pictures)} pictures to {out}")
    if failed:
        raise typer.Exit(1)


def space(
    folder: Folder = None,
    n: Annotated[int | None, typer.Option("--n", metavar="N", min=1, help="Mark those that select --n N would choose.")] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The picture.")] = Path("lens-space.png"),
) -> None:
    """Draw a set of lenses among three kinds of aberration, at five fields, and by focal length and field of view."""
    from sorites.drawings.lens_space import space as drawn
    from sorites.drawings.strip import save
    from sorites.lenses.store import builtin, load, names, selected

    held = folder or builtin()
    entries = [load(held, name) for name in names(held)]
    if n is not None and n > len(entries):
        typer.echo(f"there are {len(entries)} lenses: all of them", err=True)
    chosen = selected({entry.name: entry.quality for entry in entries}, min(n, len(entries))) if n is not None else []
    save(drawn(entries, chosen), out)
    typer.echo(f"wrote {out}")
