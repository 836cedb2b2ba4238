"""The verbs about people's answers: show images to annotators, say how far they are and how they
agree, export and import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format, MaxPixels, RunFolder, Seed
from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.apps.annotation.images import Entry
    from sorites.apps.annotation.predict import Teller

# The verbs about what people answered: how far a labelling is, how far they agree, and the ways out and
# in.


Labelling = Annotated[
    Path, typer.Argument(metavar="FILE", help='A labelling, made by "sorites annotate serve".')
]
FormatName = Annotated[
    str, typer.Option("--as", metavar="FORMAT", help="csv, facts, focus, label_studio, via2, via3 or coco.")
]


def status(
    file: Labelling,
    admit: Annotated[
        list[str] | None,
        typer.Option(
            "--admit",
            metavar="NAME",
            help="Let this person work, whatever the qualification said. May be repeated.",
        ),
    ] = None,
    refuse: Annotated[
        list[str] | None,
        typer.Option("--refuse", metavar="NAME", help="Give this person no more images. May be repeated."),
    ] = None,
    pay: Annotated[bool, typer.Option("--pay", help="Print the pay for the batches of each person.")] = False,
    format: Format = "table",
) -> None:
    """Say how far a labelling is, and what each person did.

    Reads a labelling, also while it is served; replays its record of clicks
    and compares; prints counts and one row per person.
    """
    from sorites.apps.annotation.begin import admit as set_state
    from sorites.apps.annotation.status import images, pay_lines, people
    from sorites.cli.printing import format_frame

    for names, state in ((admit, "working"), (refuse, "refused")):
        for name in names or ():
            set_state(file, name, state)
    say(", ".join(f"{name} {value:,}" for name, value in images(file).items()), err=format != "table")
    say(format_frame(people(file), format), nl=False, exact=format != "table")
    for line in pay_lines(file) if pay else ():
        say(line)


def agreement(file: Labelling, format: Format = "table") -> None:
    """Say how far people agree, and how right they are on known images.

    Reads a labelling; prints Krippendorff's alpha and Cohen's kappa per
    question with 95 % intervals over images, then each person's share of
    known images right.
    """
    from sorites.apps.annotation.agreement import against_known, agreement
    from sorites.cli.printing import format_frame

    say(format_frame(agreement(file), format), nl=False, exact=format != "table")
    if (known := against_known(file)).height and format == "table":
        say("on known images")
        say(format_frame(known, format), nl=False)


def export(
    file: Labelling,
    format: FormatName,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The file to write; for facts, the run folder that the images are of.",
        ),
    ],
    all_answers: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Write what each person answered, not only what was chosen (csv, label_studio, via).",
        ),
    ] = False,
) -> None:
    """Write the chosen answers in a format that others read.

    Reads a labelling; writes a CSV, FOCUS's annotations.db, a Label Studio or
    VIA file, COCO boxes, or facts of a run (valid and attributes).
    """
    from sorites.apps.annotation.formats import write

    n = write(file, format, out, all_answers=all_answers)
    say(f"wrote {n:,} images to {out}")


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file of another tool, or an earlier export.")
    ],
    format: FormatName,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The labelling, made if new.")],
    task: Annotated[
        str | None,
        typer.Option(
            "--task", metavar="TASK", help="The task of a new labelling: a name, or the path of a .toml file."
        ),
    ] = None,
    annotator: Annotated[
        str,
        typer.Option(
            "--annotator",
            metavar="NAME",
            help="The person who gave these answers, where the file does not say.",
        ),
    ] = "imported",
    known: Annotated[
        bool, typer.Option("--known", help="Take the answers as known ones, for qualification and as checks.")
    ] = False,
) -> None:
    """Take answers that were given elsewhere into a labelling, so that the work goes on.

    Reads a CSV, FOCUS's annotations.db, a Label Studio or VIA file or COCO
    boxes; adds its images and answers to a labelling.
    """
    from sorites.apps.annotation.formats import read_into

    n = read_into(file, format, out, task=task, annotator=annotator, known=known)
    say(f"{out} has the answers to {n:,} images\nnext: sorites annotate serve TASK --source SPEC --out {out}")


# The verbs that spare people work: images worth a look, a study's sample, heads that learn attributes and
# predict them.


Answers = Annotated[
    Path | None,
    typer.Option(
        "--answers", metavar="FILE", help='A labelling of these images, made by "sorites annotate serve".'
    ),
]


def select(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the images for people to this CSV.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge", metavar="MODEL", help="The model that must be right; the default is the first."
        ),
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--other",
            metavar="MODEL",
            help="One of these must be right too; the default is all others. May be repeated.",
        ),
    ] = None,
    above: Annotated[
        str,
        typer.Option(
            "--above", metavar="X|none", help="The least likeness to the class's text of an easy image."
        ),
    ] = "24",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", help="At most N images, in equal parts of every shift and severity."
        ),
    ] = None,
    answers: Answers = None,
    seed: Seed = 0,
    format: Format = "table",
) -> None:
    """Leave out the images of a run that need no look.

    Reads a run folder; writes a list of the images that are not easy, and
    prints how many there are by severity at each stage (CNS-Bench, Table 8).
    """
    from sorites.apps.annotation.select import select as choose
    from sorites.cli.printing import format_frame

    found = choose(run, judge, other or (), _number_or_none(above), limit, seed)
    say(f"judge {found.judge}, others {', '.join(found.others)}; likeness above {above}", err=True)
    say(format_frame(found.statistics(answers), format), nl=False, exact=format != "table")
    if out is not None:
        _write_csv(found.hard.write_csv(), out)
        say(f"wrote {found.hard.height} images to {out}", err=True)
        say(f"next: sorites annotate serve in_class --run {run} --only {out} --out labels.sqlite", err=True)


def _number_or_none(text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise SoritesError(f"--above wants a number or none, got {text!r}") from None


def _write_csv(text: str, out: Path) -> None:
    from sorites.io.files import write_bytes

    if out.suffix != ".csv":
        raise SoritesError(f"wanted a file whose name ends in .csv, got {out}")
    write_bytes(text.encode(), out)


def study(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run folder to draw from.")] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="The number of images to draw; 300 as published.")
    ] = 300,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the drawn images to this CSV.")
    ] = None,
    answers: Answers = None,
    seed: Seed = 0,
    format: Format = "table",
) -> None:
    """Draw a random sample of a run for people, or read what they found.

    With a run, writes a list of images that no filter set aside. With
    --answers, prints the share out of class (or of clearly seen shifts) by
    severity, with n, its 95 % interval and one sigma.
    """
    from sorites.apps.annotation.select import draw, shares
    from sorites.cli.printing import format_frame

    if (run is None) == (answers is None):
        raise SoritesError(
            "wanted a run folder to draw from, or --answers FILE to read what people found; one of the two"
        )
    if answers is not None:
        say(format_frame(shares(answers), format), nl=False, exact=format != "table")
        return
    assert run is not None
    if out is None:
        raise SoritesError("--out FILE.csv is missing: the list of images that are drawn")
    drawn = draw(run, count, seed)
    _write_csv(drawn.write_csv(), out)
    say(f"wrote {drawn.height} images to {out}")
    say(f"next: sorites annotate serve in_class --run {run} --only {out} --annotators 2 --out study.sqlite")


def heads(
    source: Annotated[
        list[str],
        typer.Option(
            "--source", metavar="SPEC", help="Annotated images: focus:DIR, context:DIR. May be repeated."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file to write the heads to: .safetensors.")
    ],
    answers: Answers = None,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="The frozen model whose features they read.")
    ] = "lite0",
    seed: Seed = 0,
    format: Format = "table",
    max_pixels: MaxPixels = None,
) -> None:
    """Learn to predict time, weather and locations from annotated images.

    Reads images with attributes (or --answers of people); writes linear
    heads on a frozen model's features, and prints how often they agree with
    the annotations of objects that they have not seen.
    """
    from sorites import core
    from sorites.apps.annotation.heads import fit_heads
    from sorites.apps.annotation.predict import annotated
    from sorites.cli.printing import format_frame
    from sorites.core.progress import bars

    if out.suffix != ".safetensors":
        raise SoritesError(f"--out wants a file whose name ends in .safetensors, got {out}")
    images = [one for spec in source for one in annotated(spec, answers)]
    with bars() as bar:
        found = fit_heads(images, core.model(model), model, seed, bar("features", len(images)))
    found.save(out)
    say(format_frame(found.measured, format), nl=False, exact=format != "table")
    say(
        f"wrote {out}; agreement is measured on objects that no head has seen, chance is the commonest answer",
        err=True,
    )
    say(f"next: sorites annotate predict --heads {out} --run RUN", err=True)


def predict(
    heads: Annotated[
        Path | None, typer.Option("--heads", metavar="FILE", help='Heads, made by "sorites annotate heads".')
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder", metavar="NAME", help="Instead: an image-text encoder, open_clip:NAME@WEIGHTS."
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="The encoder's texts in TOML; the default is rain, snow and fog as published.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="SPEC", help="Images to predict for: folder:PATH.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="The file of their attributes; the default is attributes.csv."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help="Predict for the images of a run, as facts of the run."),
    ] = None,
    uncommon: Annotated[
        str | None,
        typer.Option(
            "--uncommon",
            metavar="run|evaluation|notebook|counts|FILE",
            help="The table of what is uncommon for a class; the default is the run's own.",
        ),
    ] = None,
    max_pixels: MaxPixels = None,
) -> None:
    """Predict the attributes of images that nobody annotated.

    Reads heads, or an encoder and texts; writes time, weather and locations
    with their confidence: of a source as a table, of a run as facts that
    partition_accuracy and attribute_gap ask.
    """
    from sorites.apps.annotation.predict import samples_of, tell_run, tell_source
    from sorites.cli.printing import format_frame
    from sorites.core.progress import bars
    from sorites.io.files import locked

    if (source is None) == (run is None):
        raise SoritesError("wanted --source SPEC or --run RUN, one of the two")
    if uncommon is not None and run is None:
        raise SoritesError("--uncommon is about classes of a run: give --run RUN too")
    tell, record = _teller(heads, encoder, texts)
    if run is not None:
        with locked(run), bars() as bar:
            path, counts = tell_run(run, tell, record, uncommon, bar)
        say(format_frame(counts, "table"), nl=False)
        say(f"wrote {path}\nnext: sorites metrics {run} partition_accuracy")
        return
    assert source is not None
    with bars() as bar:
        told = tell_source(tell, samples_of(source), bar)
    path = out or Path("attributes.csv")
    _write_csv(told.write_csv(), path)
    say(f"wrote attributes of {told['image'].n_unique()} images to {path}")
    say(
        f"next: sorites run demo --source {source} --out RUN; sorites annotate predict --run RUN with the"
        " same heads"
    )


def _teller(heads: Path | None, encoder: str | None, texts: str | None) -> tuple[Teller, dict[str, object]]:
    from sorites.apps.annotation.heads import read_heads
    from sorites.apps.annotation.predict import by_heads, by_texts, reference_texts

    if (heads is None) == (encoder is None) or (heads is not None and texts is not None):
        raise SoritesError(
            "wanted --heads FILE, or --encoder NAME with --texts FILE if you like; one of the two"
        )
    if heads is not None:
        return by_heads(read_heads(heads))
    assert encoder is not None
    return by_texts(reference_texts(encoder, texts))


app = typer.Typer(
    help="Let people answer questions about images, and use what they answered.", no_args_is_help=True
)


@app.command()
def serve(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="in_class, context, visible, boxes, or the path of a .toml file of your own."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The labelling: a SQLite file, made or continued.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="SPEC", help="Show the images of a source: folder:PATH, stamps, focus:PATH."
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Show the shifted images of a run instead.")
    ] = None,
    only: Annotated[
        Path | None,
        typer.Option(
            "--only",
            metavar="FILE",
            help="Show only those in the column image_id or image of a CSV or parquet file.",
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            "--known",
            metavar="FILE",
            help="Images whose answers are known: the column image and one per question.",
        ),
    ] = None,
    annotators: Annotated[
        int | None,
        typer.Option(
            "--annotators", metavar="N", min=1, max=1000, help="Make links for N people; the default is 2."
        ),
    ] = None,
    annotator: Annotated[
        list[str] | None,
        typer.Option("--annotator", metavar="NAME", help="Make a link for this person. May be repeated."),
    ] = None,
    third: Annotated[
        bool, typer.Option("--third", help="Send images on which people differ to one more.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Take only the first N of a shuffled order."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels", metavar="FILE", help="A file of class names, one per line, in place of any class."
        ),
    ] = None,
    pay: Annotated[bool, typer.Option("--pay", help="Print the pay for the batches of each person.")] = False,
    bind: Annotated[
        str,
        typer.Option(
            "--bind", metavar="ADDRESS", help="Listen at this address; the default is this machine alone."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8710,
    seed: Seed = 0,
    max_pixels: MaxPixels = None,
) -> None:
    """Show images to people and keep what they answer.

    Reads a task and images; prints a link for each annotator and writes
    every click to one SQLite file. Stop it with Ctrl-C; type the same command
    to go on.
    """
    from sorites.apps.annotation.begin import add_people, begin
    from sorites.apps.annotation.server import address, listening
    from sorites.apps.annotation.server import serve as serve_until_stopped
    from sorites.apps.annotation.task import load

    _, text = load(task)
    entries, where = _entries(source, run, only, labels, limit)
    with listening(bind, port) as made:
        begin(out, text, entries, where, known=known, seed=seed, third=third)
        people = add_people(out, _names(annotator, annotators))
        _print_links(address(bind, made), people, out, pay)
        serve_until_stopped(out, entries, made, bind)
    say(f"stopped; all answers are in {out}\nnext: sorites annotate status {out}", err=True)


def _entries(
    source: str | None, run: Path | None, only: Path | None, labels: str | None, limit: int | None
) -> tuple[list[Entry], str]:
    """Return the images to be shown, and where they come from as it is kept."""
    from sorites.apps.annotation.images import from_run, from_source, read_list

    if (source is None) == (run is None):
        raise SoritesError("wanted either --source SPEC (folder:PATH, stamps) or --run RUN")
    chosen = None if only is None else read_list(only)
    if run is not None:
        found, where = from_run(run, chosen), f"run {run.resolve()}"
    else:
        found, where = from_source(str(source), labels), f"source {source}"
        found = [
            entry
            for entry in found
            if chosen is None or {entry.name, entry.sample_id, entry.image_id} & chosen
        ]
    if not found:
        raise SoritesError(
            f"there are no images to show in {source or run}{f' that stand in {only}' if only else ''}"
        )
    return found[:limit], where


def _names(named: list[str] | None, number: int | None) -> list[str]:
    """Return the names of people: those typed, and annotator 1, 2, ... up to the number."""
    plain = number if number is not None else 0 if named else 2
    return [*(named or ()), *(f"annotator {i}" for i in range(1, plain + 1))]


def _print_links(address: str, people: list[tuple[str, str, str]], out: Path, pay: bool) -> None:
    say(f"labelling {out}; stop with Ctrl-C, type the same command to go on", err=True)
    for name, token, state in people:
        say(f"{name}{' (refused)' if state == 'refused' else ''}: {address}/#{token}")
    if pay:
        from sorites.apps.annotation.status import pay_lines

        for line in pay_lines(out):
            say(line)


app.command()(status)
app.command()(agreement)
app.command()(export)
app.command("import")(import_)
app.command()(select)
app.command()(study)
app.command()(heads)
app.command()(predict)
