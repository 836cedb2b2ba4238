"""``sorites view``: open runs and models in the workbench, a local web app."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import LensFolder, MaxPixels
from sorites.cli.output import say
from sorites.core.errors import SoritesError


def view(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|MODEL]...",
            help="Run folders, folders with runs, and models (lite0, onnx:m.onnx); default: runs here.",
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="Suite whose images, classes and frame the models get; default: demo.",
        ),
    ] = "demo",
    selections: Annotated[
        Path,
        typer.Option("--selections", metavar="DIR", help="Folder for selected images; default: selections."),
    ] = Path("selections"),
    bind: Annotated[
        str,
        typer.Option("--bind", metavar="ADDRESS", help="Address to listen on; default: this machine only."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 selects a free one.")
    ] = 8711,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser of this machine.")
    ] = True,
    lenses: LensFolder = None,
    max_pixels: MaxPixels = None,
) -> None:
    """Look at runs, filter their images, and turn a shift by hand.

    Serves a web page on this machine until Ctrl-C: the runs with their curves,
    a grid of images with filters, the trajectory of each sample, a dial with
    the live answers of the models, and a bench for lenses. Nothing leaves the
    machine.
    """
    import contextlib

    from sorites.apps.serving import address, open_listener, runner
    from sorites.apps.workbench.lenses import Lenses
    from sorites.apps.workbench.library import Library, sorted_out
    from sorites.apps.workbench.server import Workbench, workbench_app
    from sorites.io.decode import pixel_limit
    from sorites.suites.suite import load

    folders, models = sorted_out(items or ["."])
    if models:
        load(suite)  # a wrong name fails here, not on the page
    workbench = Workbench(Library(folders, models, suite), selections, Lenses(lenses))
    if not workbench.library.runs() and not models:
        raise SoritesError(
            "no run was found. Make one: sorites run demo --out runs/demo, or name a model:"
            " sorites view lite0"
        )
    app, listener = workbench_app(workbench, bind), open_listener(bind, port)
    url = f"{address(bind, listener)}/{workbench.token}/"
    say(f"workbench: {url}\nstop it with Ctrl-C")
    if open_browser:
        typer.launch(url)
    # Uvicorn shuts down cleanly, then raises Ctrl-C again.
    with pixel_limit(max_pixels), contextlib.suppress(KeyboardInterrupt):
        runner(app).run(sockets=[listener])
