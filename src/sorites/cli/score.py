"""The verb that adds a scorer to a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Address, EngineName, GpusPerWorker, Workers, engine_of
from sorites.cli.output import say
from sorites.stores import place


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", parser=place, help="A run folder, made with --keep-features.")],
    scorer: Annotated[
        list[str],
        typer.Option("--scorer", metavar="NAME", help='The scorer to add, from "sorites list scorers". May be repeated.'),
    ],
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    """Add a scorer's strangeness to a finished run, without running a model.

    Reads the features that the run kept; writes further rows into its table.
    """
    from sorites.pipeline.rescore import score as add_scorers

    added = add_scorers(run, scorer, engine=engine_of(engine, address, gpus_per_worker), workers=workers)
    for name, rows in added.items():
        say(f"{name}: added {rows} rows to {run / 'predictions'}" if rows else f"{name}: all its rows are there already")
