"""``sorites annotate``: serve annotation tasks, report progress and agreement, export, import, predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format, MaxPixels, RunFolder, Seed
from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.apps.annotation.images import Entry
    from sorites.apps.annotation.predict import Predictor

Labelling = Annotated[
    Path, typer.Argument(metavar="FILE", help='Annotation file, made by "sorites annotate serve".')
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
            help="Admit this annotator despite the qualification result. May be repeated.",
        ),
    ] = None,
    refuse: Annotated[
        list[str] | None,
        typer.Option(
            "--refuse", metavar="NAME", help="Assign no more images to this annotator. May be repeated."
        ),
    ] = None,
    pay: Annotated[bool, typer.Option("--pay", help="Print the pay per annotator.")] = False,
    format: Format = "table",
) -> None:
    """Print the progress of an annotation and the work of each annotator.

    Works while the file is being served. Verifies the stored answers against
    the log of clicks, and prints counts and one row per annotator.
    """
    from sorites.apps.annotation.begin import set_annotator_state
    from sorites.apps.annotation.status import annotators as people
    from sorites.apps.annotation.status import images, pay_lines
    from sorites.cli.printing import print_frame

    for names, state in ((admit, "working"), (refuse, "refused")):
        for name in names or ():
            set_annotator_state(file, name, state)
    say(", ".join(f"{name} {value:,}" for name, value in images(file).items()), err=format != "table")
    print_frame(people(file), format)
    for line in pay_lines(file) if pay else ():
        say(line)


def agreement(file: Labelling, format: Format = "table") -> None:
    """Print inter-annotator agreement and accuracy on known images.

    Prints Krippendorff's alpha and Cohen's kappa per question with 95 %
    intervals over images, then the accuracy of each annotator on images with
    known answers.
    """
    from sorites.apps.annotation.agreement import against_known, agreement
    from sorites.cli.printing import print_frame

    print_frame(agreement(file), format)
    if (known := against_known(file)).height and format == "table":
        say("accuracy on known images")
        print_frame(known)


def export(
    file: Labelling,
    format: FormatName,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The file to write; for facts, the run folder of the images.",
        ),
    ],
    all_answers: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Write the answers of each annotator, not only the merged ones (csv, label_studio, via).",
        ),
    ] = False,
) -> None:
    """Export the merged answers.

    Writes a CSV file, FOCUS's annotations.db, a Label Studio or VIA file, COCO
    boxes, or facts of a run (validity and attributes).
    """
    from sorites.apps.annotation.formats import write

    n = write(file, format, out, all_answers=all_answers)
    say(f"wrote {n:,} images to {out}")


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file from another tool, or an earlier export.")
    ],
    format: FormatName,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The annotation file; created if missing.")
    ],
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="TASK",
            help="Task of a new annotation file: a name, or the path of a .toml file.",
        ),
    ] = None,
    annotator: Annotated[
        str,
        typer.Option(
            "--annotator",
            metavar="NAME",
            help="Annotator of these answers, if the file does not name one.",
        ),
    ] = "imported",
    known: Annotated[
        bool, typer.Option("--known", help="Use the answers as known ones, for qualification and checks.")
    ] = False,
) -> None:
    """Import answers from another tool.

    Reads a CSV file, FOCUS's annotations.db, a Label Studio or VIA file, or
    COCO boxes, and adds the images and answers to an annotation file.
    """
    from sorites.apps.annotation.formats import read_into

    n = read_into(file, format, out, task=task, annotator=annotator, known=known)
    say(
        f"imported the answers for {n:,} images into {out}\n"
        f"next: sorites annotate serve TASK --source SPEC --out {out}"
    )


Answers = Annotated[
    Path | None,
    typer.Option(
        "--answers", metavar="FILE", help='Annotations of these images, from "sorites annotate serve".'
    ),
]


def select(
    run: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the images to annotate to this CSV file."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            metavar="MODEL",
            help="Model that must be correct on an easy image; default: the first.",
        ),
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--other",
            metavar="MODEL",
            help="One of these must be correct too; default: all other models. May be repeated.",
        ),
    ] = None,
    above: Annotated[
        str,
        typer.Option(
            "--above", metavar="X|none", help="Minimum similarity of an easy image to the text of its class."
        ),
    ] = "24",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", help="Select at most N images, balanced over shifts and severities."
        ),
    ] = None,
    answers: Answers = None,
    seed: Seed = 0,
    format: Format = "table",
) -> None:
    """Select the images of a run that need annotation.

    Writes a list of the images that are not easy, and prints their number by
    severity at each stage (CNS-Bench, Table 8).
    """
    from sorites.apps.annotation.select import select as choose
    from sorites.cli.printing import print_frame

    selection = choose(run, judge, other or (), _number_or_none(above), limit, seed)
    say(f"judge {selection.judge}, others {', '.join(selection.others)}; similarity above {above}", err=True)
    print_frame(selection.statistics(answers), format)
    if out is not None:
        _write_csv(selection.hard.write_csv(), out)
        say(f"wrote {selection.hard.height} images to {out}", err=True)
        say(f"next: sorites annotate serve in_class --run {run} --only {out} --out labels.sqlite", err=True)


def _number_or_none(text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise SoritesError(f"--above must be a number or none, got {text!r}") from None


def _write_csv(text: str, out: Path) -> None:
    from sorites.io.files import write_bytes

    if out.suffix != ".csv":
        raise SoritesError(f"the output file must end in .csv, got {out}")
    write_bytes(text.encode(), out)


def study(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run folder to draw from.")] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="Number of images to sample; 300 as published.")
    ] = 300,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the sampled images to this CSV file.")
    ] = None,
    answers: Answers = None,
    seed: Seed = 0,
    format: Format = "table",
) -> None:
    """Sample images of a run for a user study, or evaluate its answers.

    With a run, writes a random list of valid images. With --answers, prints
    the share of out-of-class images (or of clearly visible shifts) by
    severity, with n, 95 % interval and one sigma.
    """
    from sorites.apps.annotation.select import draw_study, study_shares
    from sorites.cli.printing import print_frame

    if (run is None) == (answers is None):
        raise SoritesError(
            "expected a run folder to sample from, or --answers FILE to evaluate, but not both"
        )
    if answers is not None:
        print_frame(study_shares(answers), format)
        return
    assert run is not None
    if out is None:
        raise SoritesError("missing --out FILE.csv: the list of sampled images")
    drawn = draw_study(run, count, seed)
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
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The .safetensors file to write.")],
    answers: Answers = None,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Frozen model that provides the features.")
    ] = "lite0",
    seed: Seed = 0,
    format: Format = "table",
    max_pixels: MaxPixels = None,
) -> None:
    """Train linear heads that predict time, weather and location.

    Reads images with attributes, or --answers; writes linear heads on the
    features of a frozen model, and prints their agreement with the
    annotations of held-out objects.
    """
    from sorites import core
    from sorites.apps.annotation.heads import fit_heads
    from sorites.apps.annotation.predict import annotated_images
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars

    if out.suffix != ".safetensors":
        raise SoritesError(f"--out must end in .safetensors, got {out}")
    images = [image for spec in source for image in annotated_images(spec, answers)]
    with bars() as bar:
        fitted = fit_heads(
            images, core.model(model), model, seed, bar("features", len(images)), ", ".join(source)
        )
    fitted.save(out)
    print_frame(fitted.measured, format)
    say(
        f"wrote {out}; {fitted.reach.about}. Agreement is measured on held-out objects, chance is the most"
        " common answer; images unlike the training images get no attributes",
        err=True,
    )
    say(f"next: sorites annotate predict --heads {out} --run RUN", err=True)


def predict(
    heads: Annotated[
        Path | None,
        typer.Option("--heads", metavar="FILE", help='Linear heads, from "sorites annotate heads".'),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder", metavar="NAME", help="Use an image-text encoder instead: open_clip:NAME@WEIGHTS."
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="TOML file of texts for the encoder; default: rain, snow and fog as published.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="SPEC", help="Images to predict for: folder:PATH.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The CSV file to write; default: attributes.csv."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", metavar="RUN", help="Predict for the images of a run and write facts of the run."
        ),
    ] = None,
    uncommon: Annotated[
        str | None,
        typer.Option(
            "--uncommon",
            metavar="run|evaluation|notebook|counts|FILE",
            help="Table of uncommon attributes per class; default: that of the run.",
        ),
    ] = None,
    max_pixels: MaxPixels = None,
) -> None:
    """Predict attributes of images with linear heads or an encoder.

    Writes time, weather and location with their confidence: for a source as a
    CSV file, for a run as facts that partition_accuracy and attribute_gap use.
    """
    from sorites.apps.annotation.predict import predict_run, predict_source, samples_of
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars
    from sorites.io.files import locked

    if (source is None) == (run is None):
        raise SoritesError("expected --source SPEC or --run RUN, but not both")
    if uncommon is not None and run is None:
        raise SoritesError("--uncommon requires --run RUN")
    tell, record = _teller(heads, encoder, texts)
    if run is not None:
        with locked(run), bars() as bar:
            path, counts = predict_run(run, tell, record, uncommon, bar)
        print_frame(counts)
        say(f"wrote {path}\nnext: sorites metrics {run} partition_accuracy")
        return
    assert source is not None
    with bars() as bar:
        attributes = predict_source(tell, samples_of(source), bar)
    path = out or Path("attributes.csv")
    _write_csv(attributes.write_csv(), path)
    say(f"wrote attributes of {attributes['image'].n_unique()} images to {path}")
    say(
        f"next: sorites run demo --source {source} --out RUN; sorites annotate predict --run RUN with the"
        " same heads"
    )


def _teller(
    heads: Path | None, encoder: str | None, texts: str | None
) -> tuple[Predictor, dict[str, object]]:
    from sorites.apps.annotation.heads import read_heads
    from sorites.apps.annotation.predict import by_heads, by_texts, reference_texts

    if (heads is None) == (encoder is None) or (heads is not None and texts is not None):
        raise SoritesError(
            "expected --heads FILE, or --encoder NAME with optional --texts FILE, but not both"
        )
    if heads is not None:
        stored = read_heads(heads)
        say(f"{heads}: {stored.reach.about}", err=True)
        return by_heads(stored)
    assert encoder is not None
    return by_texts(reference_texts(encoder, texts))


app = typer.Typer(help="Collect and use human annotations of images.", no_args_is_help=True)


@app.command()
def serve(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="in_class, context, visible, boxes, or the path of a .toml file."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="The annotation file (SQLite); created or continued."),
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
            help="Show only the images listed in the column image_id or image of a CSV or Parquet file.",
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            "--known",
            metavar="FILE",
            help="Images with known answers: a file with a column image and one per question.",
        ),
    ] = None,
    annotators: Annotated[
        int | None,
        typer.Option(
            "--annotators", metavar="N", min=1, max=1000, help="Create links for N annotators; default: 2."
        ),
    ] = None,
    annotator: Annotated[
        list[str] | None,
        typer.Option(
            "--annotator", metavar="NAME", help="Create a link for this annotator. May be repeated."
        ),
    ] = None,
    third: Annotated[
        bool, typer.Option("--third", help="Show images on which annotators disagree to a third one.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, help="Use only the first N images of a fixed random order."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels", metavar="FILE", help="A file of class names, one per line; default: any class."
        ),
    ] = None,
    pay: Annotated[bool, typer.Option("--pay", help="Print the pay per annotator.")] = False,
    bind: Annotated[
        str,
        typer.Option("--bind", metavar="ADDRESS", help="Address to listen on; default: this machine only."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 selects a free one.")
    ] = 8710,
    seed: Seed = 0,
    max_pixels: MaxPixels = None,
) -> None:
    """Serve an annotation task.

    Prints a link for each annotator and writes every answer to one SQLite
    file. Stop with Ctrl-C; run the same command to continue.
    """
    from sorites.apps.annotation.begin import add_annotators, begin
    from sorites.apps.annotation.server import serve as serve_until_stopped
    from sorites.apps.annotation.task import load
    from sorites.apps.serving import address, open_listener

    _, text = load(task)
    entries, where = _entries(source, run, only, labels, limit)
    with open_listener(bind, port) as made:
        begin(out, text, entries, where, known=known, seed=seed, third=third)
        people = add_annotators(out, _names(annotator, annotators))
        _print_links(address(bind, made), people, out, pay)
        serve_until_stopped(out, entries, made, bind)
    say(f"stopped; the answers are in {out}\nnext: sorites annotate status {out}", err=True)


def _entries(
    source: str | None, run: Path | None, only: Path | None, labels: str | None, limit: int | None
) -> tuple[list[Entry], str]:
    """Return the images to show, and the description of their origin to store."""
    from sorites.apps.annotation.images import from_run, from_source, origin_of, read_list

    if (source is None) == (run is None):
        raise SoritesError("expected --source SPEC (folder:PATH, stamps) or --run RUN, but not both")
    chosen = None if only is None else read_list(only)
    if run is not None:
        entries, where = from_run(run, chosen), origin_of(run)
    else:
        entries, where = from_source(str(source), labels), f"source {source}"
        entries = [
            entry
            for entry in entries
            if chosen is None or {entry.name, entry.sample_id, entry.image_id} & chosen
        ]
    if not entries:
        raise SoritesError(
            f"no images to show in {source or run}{f' that are listed in {only}' if only else ''}"
        )
    return entries[:limit], where


def _names(named: list[str] | None, number: int | None) -> list[str]:
    """Return the names of the annotators: those given, then annotator 1, 2, ... up to the number."""
    plain = number if number is not None else 0 if named else 2
    return [*(named or ()), *(f"annotator {i}" for i in range(1, plain + 1))]


def _print_links(address: str, people: list[tuple[str, str, str]], out: Path, pay: bool) -> None:
    say(f"annotating {out}; stop with Ctrl-C, run the same command to continue", err=True)
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
