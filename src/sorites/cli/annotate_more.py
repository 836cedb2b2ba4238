"""The verbs that spare people work: images worth a look, a study's sample, heads that learn attributes and predict them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format, MaxPixels, RunFolder, Seed
from sorites.cli.output import say
from sorites.errors import SoritesError

if TYPE_CHECKING:
    from sorites.annotation.predict import Teller

Answers = Annotated[
    Path | None,
    typer.Option("--answers", metavar="FILE", help='A labelling of these pictures, made by "sorites annotate serve".'),
]


def select(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the images for people to this CSV.")] = None,
    judge: Annotated[
        str | None, typer.Option("--judge", metavar="MODEL", help="The model that must be right; the default is the first.")
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--other", metavar="MODEL", help="One of these must be right too; the default is all others. May be repeated."
        ),
    ] = None,
    above: Annotated[
        str, typer.Option("--above", metavar="X|none", help="The least likeness to the class's text of an easy image.")
    ] = "24",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="At most N images, in equal parts of every shift and severity.")
    ] = None,
    answers: Answers = None,
    seed: Seed = 0,
    format: Format = "table",
) -> None:
    """Leave out the images of a run that need no look.

    Reads a run folder; writes a list of the images that are not easy, and
    prints how many there are by severity at each stage (CNS-Bench, Table 8).
    """
    from sorites.annotation.select import select as choose
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
    from sorites.files import write_bytes

    if out.suffix != ".csv":
        raise SoritesError(f"wanted a file whose name ends in .csv, got {out}")
    write_bytes(text.encode(), out)


def study(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run folder to draw from.")] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="The number of images to draw; 300 as published.")] = 300,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the drawn images to this CSV.")] = None,
    answers: Answers = None,
    seed: Seed = 0,
    format: Format = "table",
) -> None:
    """Draw a random sample of a run for people, or read what they found.

    With a run, writes a list of images that no filter set aside. With
    --answers, prints the share out of class (or of clearly seen shifts) by
    severity, with n, its 95 % interval and one sigma.
    """
    from sorites.annotation.study import draw, shares
    from sorites.cli.printing import format_frame

    if (run is None) == (answers is None):
        raise SoritesError("wanted a run folder to draw from, or --answers FILE to read what people found; one of the two")
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
        list[str], typer.Option("--source", metavar="SPEC", help="Annotated pictures: focus:DIR, context:DIR. May be repeated.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write the heads to: .safetensors.")],
    answers: Answers = None,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The frozen model whose features they read.")] = "lite0",
    seed: Seed = 0,
    format: Format = "table",
    max_pixels: MaxPixels = None,
) -> None:
    """Learn to predict time, weather and locations from annotated pictures.

    Reads pictures with attributes (or --answers of people); writes linear
    heads on a frozen model's features, and prints how often they agree with
    the annotations of things that they have not seen.
    """
    from sorites import core
    from sorites.annotation.heads import fit_heads
    from sorites.annotation.words import annotated
    from sorites.cli.printing import format_frame
    from sorites.progress import bars

    if out.suffix != ".safetensors":
        raise SoritesError(f"--out wants a file whose name ends in .safetensors, got {out}")
    pictures = [one for spec in source for one in annotated(spec, answers)]
    with bars() as bar:
        found = fit_heads(pictures, core.model(model), model, seed, bar("features", len(pictures)))
    found.save(out)
    say(format_frame(found.measured, format), nl=False, exact=format != "table")
    say(f"wrote {out}; agreement is measured on things that no head has seen, chance is the commonest answer", err=True)
    say(f"next: sorites annotate predict --heads {out} --run RUN", err=True)


def predict(
    heads: Annotated[
        Path | None, typer.Option("--heads", metavar="FILE", help='Heads, made by "sorites annotate heads".')
    ] = None,
    referee: Annotated[
        str | None, typer.Option("--referee", metavar="NAME", help="Instead: an image-text encoder, open_clip:NAME@WEIGHTS.")
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            "--texts", metavar="FILE", help="The referee's texts in TOML; the default is rain, snow and fog as published."
        ),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="SPEC", help="Pictures to predict for: folder:PATH.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file of their attributes; the default is attributes.csv.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="Predict for the pictures of a run, as facts of the run.")
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
    """Predict the attributes of pictures that nobody annotated.

    Reads heads, or a referee and texts; writes time, weather and locations
    with their confidence: of a source as a table, of a run as facts that
    partition_accuracy and attribute_gap ask.
    """
    from sorites.annotation.predict import tell_run, tell_source
    from sorites.annotation.words import samples_of
    from sorites.cli.printing import format_frame
    from sorites.files import locked
    from sorites.progress import bars

    if (source is None) == (run is None):
        raise SoritesError("wanted --source SPEC or --run RUN, one of the two")
    if uncommon is not None and run is None:
        raise SoritesError("--uncommon is about classes of a run: give --run RUN too")
    tell, record = _teller(heads, referee, texts)
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
    say(f"wrote attributes of {told['picture'].n_unique()} pictures to {path}")
    say(f"next: sorites run demo --source {source} --out RUN; sorites annotate predict --run RUN with the same heads")


def _teller(heads: Path | None, referee: str | None, texts: str | None) -> tuple[Teller, dict[str, object]]:
    from sorites.annotation.heads import read_heads
    from sorites.annotation.predict import by_heads, by_texts
    from sorites.annotation.texts import reference_texts

    if (heads is None) == (referee is None) or (heads is not None and texts is not None):
        raise SoritesError("wanted --heads FILE, or --referee NAME with --texts FILE if you like; one of the two")
    if heads is not None:
        return by_heads(read_heads(heads))
    assert referee is not None
    return by_texts(reference_texts(referee, texts))
