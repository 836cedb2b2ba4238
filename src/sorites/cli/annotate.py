"""The verbs about people's answers: show pictures to annotators, say how far they are and how they agree, export and import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Labelling = Annotated[Path, typer.Argument(metavar="FILE", help='A labelling, made by "sorites annotate serve".')]

app = typer.Typer(help="Let people answer questions about pictures, and use what they answered.", no_args_is_help=True)


@app.command()
def status(file: Labelling) -> None:
    """Say how far a labelling is.

    Reads a labelling; prints how many pictures are done and what each
    annotator did.
    """
    from sorites.annotation.answers import chosen_answers
    from sorites.cli.output import say

    say(f"{chosen_answers(file)['picture'].n_unique()} pictures are answered")
