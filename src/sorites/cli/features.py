"""The verb that says how well a run's features cluster by class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format
from sorites.cli.output import say


def features(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made with --keep-features.")],
    distance: Annotated[
        str, typer.Option("--distance", metavar="cosine|euclidean", help="The distance between feature vectors.")
    ] = "cosine",
    every: Annotated[
        bool, typer.Option("--all", help="Answer for every camera setting, not only for the best, the worst and the automatic.")
    ] = False,
    format: Format = "table",
) -> None:
    """Say how well a run's features cluster by class at each setting.

    Reads the features that the run kept; prints the silhouette, the share
    nearest to the centroid of their class and the distance from the clean
    picture, each with n and its 95 % interval. Writes no file.
    """
    from sorites.cli.printing import format_frame
    from sorites.pipeline.clusters import run_clusters

    say(format_frame(run_clusters(run, distance, every), format), nl=False, exact=format != "table")
