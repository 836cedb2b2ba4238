"""The verb that makes a run folder of prediction files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Prediction files (CSV or parquet), or folders of them.")],
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="csv|cns|counts",
            help="The layout: columns by their names, CNS-Bench's result files, or counts of right answers per setting.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    columns: Annotated[
        Path | None,
        typer.Option(
            "--columns", metavar="FILE.toml", help="A TOML file that maps columns of the files to columns of the table."
        ),
    ] = None,
    labels: options.LabelFile = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model of all rows, where the files do not say.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="The name of the pictures' source; no pictures are read.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", metavar="MODEL|FILE.csv", help="The model that errors are relative to, or a file of its errors."
        ),
    ] = None,
) -> None:
    """Turn prediction files into a run folder, without pictures.

    Reads released or own predictions; writes a run folder, for which
    "sorites metrics", "report" and "check" work. The same command again finds
    its work done.
    """
    from sorites.cli.printing import print_run_summary
    from sorites.pipeline.imports.write import import_predictions

    done = import_predictions(
        files, as_, out, labels=labels or "imagenet", columns=columns, model=model, source=source, reference=reference
    )
    if renamed := {name: mine for name, mine in done.called.items() if name != mine}:
        say(f"read {', '.join(f'{name} from {mine}' for name, mine in renamed.items())}", err=True)
    print_run_summary(done.folder, worked=done.worked)
