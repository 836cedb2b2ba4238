"""``sorites guard``: choose a threshold to deploy, and check it on new images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from sorites.analysis.options import GuardCheckOptions, GuardOptions
from sorites.cli.options import Format, derived
from sorites.cli.output import say

if TYPE_CHECKING:
    import polars as pl

    from sorites.analysis.guard.check import GuardCheck
    from sorites.deploy import GuardRecord
    from sorites.deploy.record import Rate


class RunByDefault(TyperGroup):
    """A group whose command ``run`` need not be typed: ``sorites guard RUN`` is ``sorites guard run RUN``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed, or else ``run``."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["run", *args])


app = typer.Typer(
    cls=RunByDefault,
    help="Choose a threshold on OOD scores to deploy, and check it on new images.",
    no_args_is_help=True,
)


@app.callback()
def _guard() -> None:
    """Choose a threshold on OOD scores to deploy, and check it on new images."""


@app.command()
@derived(GuardOptions, format=(Format, "table"))
def run(options: GuardOptions, format: str) -> None:
    """Choose a threshold on the OOD scores of a run.

    Writes guard.json and guard.onnx for sorites.deploy, and prints what the
    threshold does at each setting, estimated on samples that did not choose
    it. The word "run" may be left out: sorites guard RUN.
    """
    from sorites.analysis.guard.write import write_guard
    from sorites.cli.printing import print_frame

    record = write_guard(options)
    print_frame(rates_frame(record), format)
    aside = format != "table"
    say(f"threshold {record.threshold:.6g}: {record.choice.note}", err=aside)
    chosen, held_out = record.choice.samples, record.choice.held_out
    say(f"chosen on {chosen} samples, rates estimated on {held_out} others (95 % intervals)", err=aside)
    if record.agreement.difference is not None:
        compared = f"{record.agreement.images} images to {record.agreement.difference:.1g}"
        say(f"scores of the guard equal those of the run: {compared}", err=aside)
    say(
        f"wrote {options.out}/guard.json\nnext: sorites guard check {options.out}/guard.json --source NEW",
        err=aside,
    )


def rates_frame(record: GuardRecord) -> pl.DataFrame:
    """Return the rates of a guard as a table."""
    import polars as pl

    rows = [
        {
            "shift": rates.shift,
            "setting": rates.setting,
            **{
                f"{name}{suffix}": getattr(getattr(rates, name), part)
                for name in ("alarm", "error", "risk", "caught")
                for suffix, part in (("", "value"), ("_low", "low"), ("_high", "high"))
            },
            "n": rates.alarm.n,
        }
        for rates in record.rates
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


@app.command()
@derived(GuardCheckOptions)
def check(options: GuardCheckOptions) -> None:
    """Check a guard on new images.

    Compares alarm rate and risk with those of clean images of the run, and
    tests whether scores and features have drifted. Exits with code 1 if a
    test finds a change.
    """
    from sorites.analysis.guard.check import checked
    from sorites.core.progress import bars

    with options.reading(), bars() as bar:
        result = checked(options, bar)
    _print(result, options.rate)
    if not result.holds:
        raise typer.Exit(1)


def _print(result: GuardCheck, rate: float) -> None:
    if result.skipped:
        say(result.skipped, err=True)
    for test in result.tests:
        words = "changed" if test.changed else "no change found"
        rates = f": promised {_share(test.promised)}, found {_share(test.found)}" if test.found else ""
        say(f"{test.name}: {words} (p = {test.p:.2g}){rates}")
    tests = len(result.tests)
    say(f"{result.images} images; {tests} tests, with a false-alarm rate of at most {rate:g} together")


def _share(rate: Rate | None) -> str:
    if rate is None or rate.value is None or rate.low is None or rate.high is None:
        return "unknown"
    return f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
