"""The verbs that make pictures with lenses: whole photographs through a lens, and a set of lenses as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import LensFolder, LensName, MaxPixels
from sorites.cli.output import say


def photo(
    lens: LensName,
    pictures: Annotated[
        list[Path],
        typer.Argument(metavar="PICTURE", help="Photographs of up to 100 megapixels each: JPEG, PNG, WebP, TIFF ..."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder that the PNG files go to, under the pictures' names.")
    ],
    folder: LensFolder = None,
    corner: Annotated[
        float,
        typer.Option("--corner", metavar="X", help="The place of the pictures' corners; 1 is the edge of the lens's field."),
    ] = 1.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Take whole photographs through a lens.

    Reads a traced lens and photographs; writes one PNG file per photograph,
    in which every place has the blur of its distance from the middle.
    """
    from sorites.datasets.lens_photo import photograph
    from sorites.lenses.store import builtin, load
    from sorites.progress import bars

    entry = load(folder or builtin(), lens)
    with bars() as bar:
        failed = photograph(entry, pictures, out, corner, bar)
    for _, reason in failed:
        say(f"not written: {reason}", err=True)
    say(f"wrote {len(pictures) - len(failed)} of {len(pictures)} pictures to {out}")
    if failed:
        raise typer.Exit(1)


def space(
    folder: LensFolder = None,
    n: Annotated[
        int | None, typer.Option("--n", metavar="N", min=1, help="Mark the lenses that select --n N would choose.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The picture.")] = Path("lens-space.png"),
) -> None:
    """Draw a set of lenses among three kinds of aberration.

    Reads a folder of traced lenses; writes one picture that shows them at five
    fields, and by focal length and field of view.
    """
    from sorites.drawings.lens_space import space as draw_space
    from sorites.drawings.strip import save
    from sorites.lenses.store import builtin, load, names, selected

    store = folder or builtin()
    entries = [load(store, name) for name in names(store)]
    if n is not None and n > len(entries):
        say(f"there are {len(entries)} lenses; all of them are marked", err=True)
    chosen = selected({entry.name: entry.quality for entry in entries}, min(n, len(entries))) if n is not None else []
    save(draw_space(entries, chosen), out)
    say(f"wrote {out}")
