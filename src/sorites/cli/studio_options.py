"""Options that the verbs of the studio share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CameraSpec = Annotated[
    str, typer.Option("--camera", metavar="ccapi:URL|ptp|virtual", help="The camera: Canon over HTTP, USB, or the virtual one.")
]
LampSpec = Annotated[
    str, typer.Option("--lamps", metavar="hue:IP|hue1:IP|virtual|none", help="The lamps: a Hue bridge (v2, v1), virtual, none.")
]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the capture.")]
CaptureFolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help='The folder of a capture, made by "sorites studio capture".')
]
Bind = Annotated[
    str, typer.Option("--bind", metavar="IP", help="The address that pages are served at; 0.0.0.0 lets other devices open them.")
]
Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", metavar="SHA256", help="The certificate of a device that signs its own.")
]
Megapixels = Annotated[
    float,
    typer.Option("--megapixels", metavar="X", min=0.05, max=26, help="The size of the virtual camera's frames, in millions."),
]
Place = Annotated[str, typer.Option("--place", metavar="centre|left-top", help="The place on the screen for pictures.")]
AutoShots = Annotated[
    int | None, typer.Option("--auto", metavar="N", min=0, max=99, help="Automatic shots per light; the default is five.")
]
