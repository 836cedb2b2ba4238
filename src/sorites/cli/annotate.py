"""The verbs about people's answers: show pictures to annotators, say how far they are and how they agree, export and import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.annotate_more import heads, predict, select, study
from sorites.cli.annotate_results import agreement, export, import_, status
from sorites.cli.options import MaxPixels, Seed
from sorites.cli.output import say
from sorites.errors import SoritesError

if TYPE_CHECKING:
    from sorites.annotation.pictures import Entry

app = typer.Typer(help="Let people answer questions about pictures, and use what they answered.", no_args_is_help=True)


@app.command()
def serve(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="in_class, context, visible, boxes, or the path of a .toml file of your own.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The labelling: a SQLite file, made or continued.")],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="SPEC", help="Show the pictures of a source: folder:PATH, stamps, focus:PATH."),
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", metavar="RUN", help="Show the shifted images of a run instead.")] = None,
    only: Annotated[
        Path | None,
        typer.Option(
            "--only", metavar="FILE", help="Show only those in the column image_id or picture of a CSV or parquet file."
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            "--known", metavar="FILE", help="Pictures whose answers are known: the column picture and one per question."
        ),
    ] = None,
    annotators: Annotated[
        int | None, typer.Option("--annotators", metavar="N", min=1, max=1000, help="Make links for N people; the default is 2.")
    ] = None,
    annotator: Annotated[
        list[str] | None, typer.Option("--annotator", metavar="NAME", help="Make a link for this person. May be repeated.")
    ] = None,
    third: Annotated[bool, typer.Option("--third", help="Send pictures on which people differ to one more.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Take only the first N of a shuffled order.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="FILE", help="A file of class names, one per line, in place of any class.")
    ] = None,
    pay: Annotated[bool, typer.Option("--pay", help="Print the pay for the batches of each person.")] = False,
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDRESS", help="Listen at this address; the default is this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0 takes a free one.")] = 8710,
    seed: Seed = 0,
    max_pixels: MaxPixels = None,
) -> None:
    """Show pictures to people and keep what they answer.

    Reads a task and pictures; prints a link for each annotator and writes
    every click to one SQLite file. Stop it with Ctrl-C; type the same command
    to go on.
    """
    from sorites.annotation.begin import add_people, begin
    from sorites.annotation.serving import address, listening
    from sorites.annotation.serving import serve as serve_until_stopped
    from sorites.annotation.task import load

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
    """Return the pictures to be shown, and where they come from as it is kept."""
    from sorites.annotation.pictures import from_run, from_source, read_list

    if (source is None) == (run is None):
        raise SoritesError("wanted either --source SPEC (folder:PATH, stamps) or --run RUN")
    chosen = None if only is None else read_list(only)
    if run is not None:
        found, where = from_run(run, chosen), f"run {run.resolve()}"
    else:
        found, where = from_source(str(source), labels), f"source {source}"
        found = [entry for entry in found if chosen is None or {entry.name, entry.sample_id, entry.image_id} & chosen]
    if not found:
        raise SoritesError(f"there are no pictures to show in {source or run}{f' that stand in {only}' if only else ''}")
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
        from sorites.annotation.status import pay_lines

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
