"""The verb that draws labels in styles, the same number for every cell of distance (Syn-IS)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sorites.cli.output import say


def styles(
    labels: Annotated[Path, typer.Option("--labels", metavar="FILE", help="A file of things to draw: one label per line.")],
    against: Annotated[str, typer.Option("--against", metavar="NAME:PATH", help="The familiar pictures.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the pictures go to.")],
    pipeline: Annotated[
        str, typer.Option("--pipeline", metavar="DIR|toy", help="A folder of diffusers: Stable Diffusion 1, 2, XL; or toy.")
    ] = "toy",
    style_file: Annotated[
        Path | None,
        typer.Option("--styles", metavar="FILE", help="Own styles: name, prompt, negative_prompt; default the 51 of Syn-IS."),
    ] = None,
    referee: Annotated[str, typer.Option("--referee", metavar="NAME", help="The image-text encoder that measures.")] = "toy",
    decomposition: Annotated[
        str | None,
        typer.Option("--decomposition", metavar="FILE", help='A file of "sorites decompose train"; else learnt from the labels.'),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Familiar pictures taken to measure.")] = None,
    k: Annotated[int, typer.Option("--k", metavar="N", help="Distance is that to the k-th nearest familiar picture.")] = 10,
    levels: Annotated[int, typer.Option("--levels", metavar="N", min=2, max=8, help="Levels per axis: 8 x 8 as published.")] = 8,
    per_cell: Annotated[int, typer.Option("--per-cell", metavar="N", help="Pictures per cell; 5000 as published.")] = 5000,
    prompts: Annotated[
        int | None, typer.Option("--prompts", metavar="N", min=1, help="Measure only this many prompts, drawn evenly.")
    ] = None,
    block: Annotated[
        Path | None, typer.Option("--block", metavar="FILE", help="Further words that no prompt may hold, one per line.")
    ] = None,
    safety: Annotated[
        str | None, typer.Option("--safety", metavar="own|python:...", help="A checker that every picture must pass.")
    ] = None,
    familiar: Annotated[int, typer.Option("--familiar", metavar="N", help="Familiar pictures written beside them.")] = 500,
    plan: Annotated[bool, typer.Option("--plan", help="Only say how many prompts there are and what they cost.")] = False,
    noise_steps: Annotated[int | None, typer.Option("--noise-steps", metavar="N", help="Noise steps of a picture.")] = None,
    guidance: Annotated[float | None, typer.Option("--guidance", metavar="X", help="Guidance by the words; 0 for Turbo.")] = None,
    size: Annotated[int | None, typer.Option("--size", metavar="PX", help="Scale pictures to this width.")] = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Pictures in the network at a time.")] = 12,
    format: Annotated[str | None, typer.Option("--format", metavar="jpg|png", help="The files.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda; the default is a GPU if any.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="NAME", help="float32, bfloat16 or float16.")] = None,
) -> None:
    """Draw labels in styles, equally many for every cell of distance.

    Reads a pipeline, labels and familiar pictures; writes pictures by semantic
    and covariate level in the layout of IS-OOD, which the source is_ood reads.
    Stopped, the same command goes on where it was.
    """
    from dataclasses import replace

    from sorites.diffusion.requests import TOY_DRAWING, Drawing
    from sorites.generation.prompts import blocked_words, labels_of, planned
    from sorites.generation.prompts import styles as styles_of
    from sorites.pipeline.distance import distance_options

    found = planned(labels_of(labels), styles_of(style_file), blocked_words(block), prompts)
    given: dict[str, Any] = {"steps": noise_steps, "guidance": guidance, "size": size}
    base = TOY_DRAWING if pipeline == "toy" else Drawing()
    drawing = replace(base, **{key: value for key, value in given.items() if value is not None})
    passes = drawing.steps * (2 if drawing.guidance > 1 else 1)
    say(f"{len(found):,} prompts of {len(found.labels):,} labels in {len(found.styles)} styles; {found.blocked:,} blocked")
    say(
        f"at most {levels**2 * per_cell:,} pictures in {levels**2} cells: {levels**2 * per_cell * passes:,} passes of the network"
    )
    if plan:
        return
    from sorites.diffusion.pipeline import load
    from sorites.generation.draw_styles import Order, draw_styles
    from sorites.generation.safety import checker
    from sorites.progress import bars

    how = distance_options(referee=referee, against=against, limit=limit, decomposition=decomposition, k=k, levels=levels)
    pipe, kind = load(pipeline, device, dtype), format or ("png" if pipeline == "toy" else "jpg")
    order = Order(per_cell, kind, batch, familiar)
    with bars() as bar:
        counts = draw_styles(pipe, found, how, out, drawing, order, checker(safety, pipe), bar)
    say(
        f"{counts['pictures']:,} pictures in {counts['cells']} cells are in {out}; {counts['empty_cells']} cells have no prompt; "
        f"{counts['flagged']} pictures were refused by the checker, {counts['given_up']} of them given up"
    )
    say(f"next: sorites run is_ood --source is_ood:{out}")
