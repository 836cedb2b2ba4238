"""The verb that sets aside the images of a run that no longer show their class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Address, EngineName, GpusPerWorker, MaxPixels, RunFolder, Workers, engine_of
from sorites.cli.output import say
from sorites.errors import SoritesError

if TYPE_CHECKING:
    from sorites.pipeline.filtering import Filtered


def filter_(
    run: RunFolder,
    referee: Annotated[
        str | None,
        typer.Option(
            "--referee", metavar="NAME", help="The image-text encoder: open_clip:NAME@WEIGHTS, python:module:name, cifar."
        ),
    ] = None,
    second: Annotated[
        str | None,
        typer.Option(
            "--second", metavar="NAME", help="The encoder of pictures alone: timm:NAME, onnx:FILE, lite0, or another referee."
        ),
    ] = None,
    thresholds: Annotated[
        str,
        typer.Option(
            "--thresholds",
            metavar="published|calibrated|FILE",
            help="A similarity at or below its threshold is a vote against the picture.",
        ),
    ] = "published",
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="paper|code|text",
            help="The votes of four that a picture needs: three, two, or only that of the class text.",
        ),
    ] = "paper",
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            metavar="FILE",
            help="Labels by hand: image_id, or sample, shift and scale; and label (in, partial, out) or outside (true, false).",
        ),
    ] = None,
    shift_text: Annotated[
        list[str] | None,
        typer.Option(
            "--shift-text",
            metavar="SHIFT=WORDS",
            help='The words for a shift; the default for heavy_snow is "in heavy snow". May be repeated.',
        ),
    ] = None,
    softmax: Annotated[
        bool, typer.Option("--softmax", help="Take the softmax of the second encoder's features, as the published code does.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Keep only trajectories of which every image stays, as the published set does.")
    ] = False,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Set aside the images of a run that no longer show their class.

    Reads a run folder and makes its pictures again; writes four similarities
    of every shifted image and whether it stays to facts/out_of_class.parquet
    beside its table. Type it again without encoders to judge the same
    similarities by other thresholds or another rule.
    """
    from sorites.files import locked
    from sorites.pipeline.filtering import filter_run
    from sorites.pipeline.folder import read_info
    from sorites.progress import bars

    read_info(run)
    phrases = _phrases(shift_text or [])
    if referee and thresholds == "published":
        say(_note_on_thresholds(), err=True)
    with locked(run), bars() as bar:
        found = filter_run(
            run, referee, second, thresholds=thresholds, rule=rule, annotations=annotations, phrases=phrases,
            softmax=softmax, whole=whole, engine=engine_of(engine, address, gpus_per_worker), workers=workers, bar=bar,
        )  # fmt: skip
    _print(found)
    say(f"wrote {found.path}\nnext: sorites report {run}")


def _phrases(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        shift, _, words = text.partition("=")
        if not shift or not words.strip():
            raise SoritesError(f'--shift-text wants SHIFT=WORDS, such as heavy_snow="in heavy snow", got {text!r}')
        found[shift] = words.strip()
    return found


def _note_on_thresholds() -> str:
    return (
        "note: the published thresholds hold for --referee open_clip:ViT-B-16@openai and the softmax of DINOv2 ViT-L/14's "
        "features; for other encoders give --thresholds calibrated --annotations FILE"
    )


def _print(found: Filtered) -> None:
    from sorites.cli.printing import format_frame

    say(format_frame(found.counts(), "table"), nl=False)
    if found.quality is not None:
        say("against the annotations; tpr is the share of out-of-class images set aside, fpr that of the others")
        say(format_frame(found.quality, "table"), nl=False)
    limits = ", ".join(f"{vote} {value:.4g}" for vote, value in found.record["thresholds"].items())
    say(f"rule {found.record['rule']}, thresholds {found.record['from']}: {limits}")
