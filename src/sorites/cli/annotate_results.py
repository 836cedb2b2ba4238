"""The verbs about what people answered: how far a labelling is, how far they agree, and the ways out and in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format
from sorites.cli.output import say

Labelling = Annotated[Path, typer.Argument(metavar="FILE", help='A labelling, made by "sorites annotate serve".')]
FormatName = Annotated[str, typer.Option("--as", metavar="FORMAT", help="csv, facts, focus, label_studio, via2, via3 or coco.")]


def status(
    file: Labelling,
    admit: Annotated[
        list[str] | None,
        typer.Option("--admit", metavar="NAME", help="Let this person work, whatever the qualification said. May be repeated."),
    ] = None,
    refuse: Annotated[
        list[str] | None, typer.Option("--refuse", metavar="NAME", help="Give this person no more pictures. May be repeated.")
    ] = None,
    pay: Annotated[bool, typer.Option("--pay", help="Print the pay for the batches of each person.")] = False,
    format: Format = "table",
) -> None:
    """Say how far a labelling is, and what each person did.

    Reads a labelling, also while it is served; replays its record of clicks
    and compares; prints counts and one row per person.
    """
    from sorites.annotation.begin import admit as set_state
    from sorites.annotation.status import pay_lines, people, pictures
    from sorites.cli.printing import format_frame

    for names, state in ((admit, "working"), (refuse, "refused")):
        for name in names or ():
            set_state(file, name, state)
    say(", ".join(f"{name} {value:,}" for name, value in pictures(file).items()), err=format != "table")
    say(format_frame(people(file), format), nl=False, exact=format != "table")
    for line in pay_lines(file) if pay else ():
        say(line)


def agreement(file: Labelling, format: Format = "table") -> None:
    """Say how far people agree, and how right they are on known pictures.

    Reads a labelling; prints Krippendorff's alpha and Cohen's kappa per
    question with 95 % intervals over pictures, then each person's share of
    known pictures right.
    """
    from sorites.annotation.agreement import against_known, agreement
    from sorites.cli.printing import format_frame

    say(format_frame(agreement(file), format), nl=False, exact=format != "table")
    if (known := against_known(file)).height and format == "table":
        say("on known pictures")
        say(format_frame(known, format), nl=False)


def export(
    file: Labelling,
    format: FormatName,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="The file to write; for facts, the run folder that the images are of.")
    ],
    all_answers: Annotated[
        bool, typer.Option("--all", help="Write what each person answered, not only what was chosen (csv, label_studio, via).")
    ] = False,
) -> None:
    """Write the chosen answers in a format that others read.

    Reads a labelling; writes a CSV, FOCUS's annotations.db, a Label Studio or
    VIA file, COCO boxes, or facts of a run (valid and attributes).
    """
    from sorites.annotation.formats import write

    n = write(file, format, out, all_answers=all_answers)
    say(f"wrote {n:,} pictures to {out}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of another tool, or an earlier export.")],
    format: FormatName,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The labelling, made if new.")],
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="The task of a new labelling: a name, or the path of a .toml file."),
    ] = None,
    annotator: Annotated[
        str, typer.Option("--annotator", metavar="NAME", help="The person who gave these answers, where the file does not say.")
    ] = "imported",
    known: Annotated[
        bool, typer.Option("--known", help="Take the answers as known ones, for qualification and as checks.")
    ] = False,
) -> None:
    """Take answers that were given elsewhere into a labelling, so that the work goes on.

    Reads a CSV, FOCUS's annotations.db, a Label Studio or VIA file or COCO
    boxes; adds its pictures and answers to a labelling.
    """
    from sorites.annotation.formats import read_into

    n = read_into(file, format, out, task=task, annotator=annotator, known=known)
    say(f"{out} has the answers to {n:,} pictures\nnext: sorites annotate serve TASK --source SPEC --out {out}")
