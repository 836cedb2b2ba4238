"""The Typer app: every verb in its panel of ``sorites --help``, and the entry point ``main``."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sorites.cli.about import cite, doctor, list_
from sorites.cli.analysis import decompose_app, distance, features, filter_, similarity
from sorites.cli.annotate import app as annotate_app
from sorites.cli.collect import collect
from sorites.cli.compare import compare, passport
from sorites.cli.generate import app as generate_app
from sorites.cli.images import build, context, show
from sorites.cli.lens import app as lens_app
from sorites.cli.lens import kernels_app
from sorites.cli.metrics import metrics
from sorites.cli.output import say, steady
from sorites.cli.report import report, sheet
from sorites.cli.run import check, compact, import_, plan, run, score
from sorites.cli.studio import app as studio_app
from sorites.cli.training import app as train_app
from sorites.cli.training import attack, explain
from sorites.core.errors import SoritesError
from sorites.io.paths import reason


def explain_failed_read(error: BaseException, words: Sequence[str]) -> str:
    """List damaged files of the run folders in the command, if Polars failed to read a table.

    Returns:
        One line per damaged file and the repair command, or an empty string if the error has another cause.
    """
    if type(error).__module__.partition(".")[0] not in ("polars", "pyo3_runtime"):
        return ""
    from sorites.core.table import repair
    from sorites.evaluation.check import damage, lines

    for folder in (Path(word) for word in words if "://" not in word and (Path(word) / "run.json").is_file()):
        try:
            damaged = damage(folder)
        except SoritesError as unreadable:
            return unreadable.message
        if damaged:
            return "\n".join([*lines(damaged), repair(folder)])
    return ""


EVALUATE, INSPECT, IMAGES = "Evaluate models", "Inspect", "Make images"
MEASURE, LENSES, TRAIN, PEOPLE = "Measure and score", "Lenses", "Train models", "Annotate"


class Guarded(TyperGroup):
    """The top-level group; it turns errors of the operating system about a file into a ``SoritesError``."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.filename is None or isinstance(error, BrokenPipeError):
                raise
            raise SoritesError(f"{str(error.filename)[:200]}: {reason(error)}") from error


app = typer.Typer(
    name="sorites",
    cls=Guarded,
    help="How far can the world shift before a vision model fails, and does the model know?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel=EVALUATE)(run)
app.command("import", rich_help_panel=EVALUATE)(import_)
app.command(rich_help_panel=EVALUATE)(attack)
app.command(rich_help_panel=EVALUATE)(metrics)
app.command(rich_help_panel=EVALUATE)(report)
app.command(rich_help_panel=EVALUATE)(passport)
app.command(rich_help_panel=EVALUATE)(compare)
app.command("list", rich_help_panel=INSPECT)(list_)
app.command(rich_help_panel=INSPECT)(explain)
app.command(rich_help_panel=INSPECT)(check)
app.command(rich_help_panel=INSPECT)(compact)
app.command(rich_help_panel=INSPECT)(plan)
app.command(rich_help_panel=INSPECT)(doctor)
app.command(rich_help_panel=INSPECT)(cite)
app.command(rich_help_panel=IMAGES)(show)
app.command(rich_help_panel=IMAGES)(build)
app.command(rich_help_panel=IMAGES)(context)
app.command(rich_help_panel=IMAGES)(sheet)
app.command(rich_help_panel=IMAGES)(collect)
app.add_typer(generate_app, name="generate", rich_help_panel=IMAGES)
app.add_typer(studio_app, name="studio", rich_help_panel=IMAGES)
app.command(rich_help_panel=MEASURE)(score)
app.command(rich_help_panel=MEASURE)(similarity)
app.command(rich_help_panel=MEASURE)(distance)
app.command(rich_help_panel=MEASURE)(features)
app.command("filter", rich_help_panel=MEASURE)(filter_)
app.add_typer(decompose_app, name="decompose", rich_help_panel=MEASURE)
app.add_typer(train_app, name="train", rich_help_panel=TRAIN)
app.add_typer(annotate_app, name="annotate", rich_help_panel=PEOPLE)
app.add_typer(lens_app, name="lens", rich_help_panel=LENSES)
app.add_typer(kernels_app, name="kernels", rich_help_panel=LENSES)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from sorites import __version__

        say(__version__)
        raise typer.Exit()


def _typed(words: Sequence[str]) -> typer.Typer:
    """Return the app with only the verb that was typed.

    Typer reads the type hints of every registered verb, which takes longer than most verbs need to start.
    """
    first = words[0] if words else ""
    commands = [
        command
        for command in app.registered_commands
        if first and first in (command.name, getattr(command.callback, "__name__", None))
    ]
    groups = [group for group in app.registered_groups if first and first == group.name]
    if not commands and not groups:
        return app
    narrow = copy.copy(app)
    narrow.registered_commands, narrow.registered_groups = commands, groups
    return narrow


def main() -> None:
    """Run the command line.

    A ``SoritesError`` is printed without a traceback, with exit code 2. Finished work is kept after an
    interrupt. Typer turns Ctrl-C into an exit code and ignores a closed pipe.
    """
    from sorites.evaluation.engines.interrupts import CODE
    from sorites.evaluation.engines.interrupts import handle_interrupts as announced

    try:
        with announced(), steady():
            _typed(sys.argv[1:])()
    except SoritesError as error:
        say(f"sorites: {error.message}", err=True)
        sys.exit(2)
    except SystemExit as exit_:
        if exit_.code == CODE:
            say("stopped; run the same command to continue", err=True)
        raise
    except BaseException as error:
        if not (explanation := explain_failed_read(error, sys.argv[1:])):
            raise
        say(f"sorites: {explanation}", err=True)
        sys.exit(2)
