"""The verbs that look through a capture: sheets, and the review of them."""

from __future__ import annotations

from typing import Annotated

import typer

from sorites.cli.output import say
from sorites.cli.studio_options import Bind, CaptureFolderArgument


def sheets(folder: CaptureFolderArgument) -> None:
    """Compose one sheet per picture: all settings under both lights.

    Reads the folder of a capture; writes DIR/sheets/CLASS/NAME.jpg.
    """
    from sorites.progress import bars
    from sorites.studio.folder import open_folder
    from sorites.studio.sheets import pictures_of, write_sheets

    opened = open_folder(folder)
    with bars() as bar:
        made = write_sheets(opened, bar("sheets", len(pictures_of(opened))))
    say(f"{len(made)} sheets are in {folder / 'sheets'}")
    say(f"next: sorites studio review {folder}", err=True)


def review(
    folder: CaptureFolderArgument,
    reviewers: Annotated[
        str, typer.Option("--reviewers", metavar="NAME,NAME", help="The reviewers; each gets their own link.")
    ] = "first,second,third",
    bind: Bind = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the pages.")] = 0,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="Stop after this many seconds.", hidden=True)] = None,
) -> None:
    """Serve the sheets to reviewers, who flag what is wrong.

    Crop error, missed picture, label mismatch, note. Anyone's flag counts:
    "sorites studio capture --reshoot" repeats just those pictures.
    """
    from sorites.studio.folder import open_folder
    from sorites.studio.review.serve import serve

    serve(open_folder(folder), reviewers, bind, port, seconds, say)
