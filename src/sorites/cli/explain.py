"""The verb that explains the pictures of a run that changed sides."""

from __future__ import annotations

from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say


def explain(
    run: options.RunFolder,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="A model of the run: two are compared, one is explained clean and shifted."),
    ] = None,
    shift: Annotated[
        list[str] | None, typer.Option("--shift", metavar="NAME", help="Only under this shift; clean is one. May be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Explain at most N pictures, in a fair order.")] = 12,
    target: Annotated[
        str, typer.Option("--target", metavar="prediction|truth", help="The class whose evidence is shown.")
    ] = "prediction",
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer", metavar="[MODEL=]NAME", help="Look at this layer; the default is the last one with maps. May be repeated."
        ),
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Show where models looked, for pictures that changed sides.

    Reads a run folder and makes its pictures again; writes Grad-CAM and
    guided Grad-CAM into RUN/explanations, which the report shows. What is
    there already is not made again. For torch models only.
    """
    from sorites.pipeline.explanations import ROOM
    from sorites.progress import bars
    from sorites.training.explain import explain as explain_run

    with bars() as bar:
        found = explain_run(run, model or (), shifts=shift or (), limit=limit, target=target, layer=_layers(layer), bar=bar)
    if not found:
        say("no picture of this run changed sides there, or none of them can be made again")
        return
    say(f"explained {len(found)} pictures in {run / ROOM}\nnext: sorites report {run}")


def _layers(given: list[str] | None) -> str | dict[str, str] | None:
    """Return the words after --layer: one name for all models, or one by model."""
    from sorites.errors import SoritesError

    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    named = dict(one.rpartition("=")[::2] for one in given)
    if "" in named:
        raise SoritesError(f"wanted --layer MODEL=NAME where --layer is repeated, got {' '.join(given)}")
    return named
