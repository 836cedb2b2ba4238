"""The verb that attacks models and keeps the epsilon sweep as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say


def attack(
    model: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="The models to attack: lite0, timm:NAME@WEIGHTS, trained:DIR. Torch ones only."),
    ],
    eps: Annotated[
        str, typer.Option("--eps", metavar="X,...", help="The largest moves of a picture, with pixels in 0..1: 4/255,.1,.25.")
    ],
    norm: Annotated[str, typer.Option("--norm", metavar="l2|linf", help="The norm by which it moves.")] = "l2",
    losses: Annotated[
        str | None,
        typer.Option(
            "--attack",
            metavar="ce,dlr",
            help="APGD on the cross-entropy, on the ratio of logits, which needs three classes, or both. The default is all that "
            "the models have classes for.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Steps per start.")] = 100,
    restarts: Annotated[
        int, typer.Option("--restarts", metavar="N", help="The number of starts tried for a picture that stays right.")
    ] = 1,
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="Attack the clean pictures of this source, which have labels.")
    ] = "stamps",
    labels: Annotated[
        str | None,
        typer.Option("--labels", metavar="FILE", help="A file of class names; the default is the classes of the first model."),
    ] = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run folder; the default is runs/attack-ID.")
    ] = None,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Attack models with APGD and keep what each still has right.

    Reads clean pictures; writes a run folder with a dial per attack, whose
    severity is epsilon. Type the same command again to continue an attack
    that was stopped.
    """
    from sorites.cli.printing import format_frame, print_run_summary
    from sorites.progress import bars, recording
    from sorites.table import read
    from sorites.training.attack import attack as attack_models
    from sorites.training.attack.worst import worst_case

    opened: list[str] = []
    with bars() as bar:
        folder = attack_models(
            model, norm=norm, eps=eps, losses=losses, steps=steps, restarts=restarts, source=source, labels=labels, limit=limit,
            seed=seed, out=out, workers=workers, bar=recording(bar, opened),
        )  # fmt: skip
    say("right under every attack:")
    say(format_frame(worst_case(read(folder)), "table"))
    print_run_summary(folder, worked=bool(opened))
