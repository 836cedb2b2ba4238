"""``sorites compare`` and ``sorites passport``: compare two models, or describe one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli import options
from sorites.cli.options import Format
from sorites.cli.output import say

if TYPE_CHECKING:
    from sorites.analysis.comparison.gate import Verdict


def compare(
    base: Annotated[
        Path, typer.Argument(metavar="BASE", help="Run folder or passport of the baseline model.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Run folder or passport of the new model.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="RULE",
            help='Exit with code 1 if this rule applies: "drop > 2". May be repeated.',
        ),
    ] = None,
    gate: Annotated[
        Path | None, typer.Option("--gate", metavar="FILE", help="A TOML file of such rules.")
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Apply rules to the estimate instead of the bound of its interval."),
    ] = False,
    base_model: Annotated[
        str | None,
        typer.Option("--base-model", metavar="NAME", help="Model of BASE, if it has several."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Model of NEW, if it has several.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Compare only the images for which both have predictions.")
    ] = False,
    other_versions: Annotated[
        bool,
        typer.Option("--other-versions", help="Allow different versions of the libraries that make images."),
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML file to write.")] = Path(
        "compare.html"
    ),
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Also write the gate checks as JUnit XML."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write GitHub-flavoured Markdown.")
    ] = None,
    format: Format = "table",
) -> None:
    """Compare two models on the same images, shift by shift.

    Prints a table and writes an HTML page. With --fail-if or --gate, exits
    with code 1 if a check fails.
    """
    from sorites.analysis.comparison.compare import compare as compared
    from sorites.analysis.comparison.gate import combine_rules as with_rules
    from sorites.analysis.comparison.gate import judge
    from sorites.analysis.comparison.gate import parse_rules as rules_of
    from sorites.cli.printing import format_frame
    from sorites.io.files import write_bytes
    from sorites.reports.comparison import junit as as_junit
    from sorites.reports.comparison import markdown as as_markdown
    from sorites.reports.comparison import write_page

    rules = with_rules(fail_if or (), gate, estimate)
    if rules:
        rules_of(rules)  # report invalid rules before the comparison
    options = {"base_model": base_model, "model": model, "shared": shared, "other_versions": other_versions}
    comparison = compared(base, new, **options, rate=rules.error_rate if rules else 0.05)  # type: ignore[arg-type]
    for note in comparison.notes:
        say(f"note: {note}", err=True)
    verdicts = judge(comparison, rules) if rules else []
    say(format_frame(comparison.dials, format), nl=False, exact=format != "table")
    write_page(comparison, verdicts, out)
    if junit is not None:
        write_bytes(as_junit(comparison, verdicts), junit)
    if markdown is not None:
        write_bytes(as_markdown(comparison, verdicts).encode(), markdown)
    _conclude(verdicts, [path for path in (out, junit, markdown) if path is not None], format)


def _conclude(verdicts: list[Verdict], written: list[Path], format: str) -> None:
    """Print the files written and the result of each check; exit with code 1 if a check failed."""
    say(f"wrote {', '.join(map(str, written))}", err=format != "table")
    failed = [verdict for verdict in verdicts if verdict.broken]
    for verdict in sorted(verdicts, key=lambda verdict: verdict.broken):
        say(f"{'failed' if verdict.broken else 'passed'}: {verdict.rule.text}: {verdict}", err=True)
    if verdicts:
        result = (
            f"{len(failed)} of {len(verdicts)} checks failed"
            if failed
            else f"all {len(verdicts)} checks passed"
        )
        say(f"gate: {result}", err=True)
    if failed:
        raise typer.Exit(1)


def passport(
    model: Annotated[
        str,
        typer.Argument(
            metavar="[NAME=]MODEL", help="The model: lite0, timm:NAME, onnx:PATH, python:module:callable."
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="NAME[:PATH]", help="Source of the images: folder:PATH; default: stamps."
        ),
    ] = None,
    labels: options.LabelFile = None,
    battery: Annotated[
        str,
        typer.Option(
            "--battery",
            metavar="short|standard|full|FILE",
            help="Battery of suites: about 5 minutes, 30 minutes or hours on two cores.",
        ),
    ] = "short",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder to write; default: passports/MODEL-BATTERY."),
    ] = None,
    limit: options.Limit = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Batch size.")] = 8,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Run a fixed battery of suites on a model and write its passport.

    Writes passport.html, passport.json, badge.svg, model_card.md and the run
    folders. Run the same command again to continue after a stop.
    """
    from sorites.core.progress import text_bars as told_bars
    from sorites.reports.passport.passport import PAGE, default_folder
    from sorites.reports.passport.passport import passport as make

    folder = out or default_folder(model, battery)
    with told_bars() as bar:
        made = make(
            model,
            source=source,
            labels=labels,
            battery=battery,
            out=folder,
            limit=limit,
            batch=batch,
            workers=workers,
            bar=bar,
            say=lambda text: say(f"note: {text}", err=True),
        )
    from sorites.reports.passport.numbers import title
    from sorites.reports.passport.text import share

    say(f"clean    {share(made.clean)}\nshifted  {share(made.shifted)}")
    for dial in made.dials:
        mark = "  weak" if dial.shift in made.weakest else ""
        say(f"  {title(dial.shift):<22} half-accuracy severity: {dial.words}{mark}")
    for part, why in made.left_out.items():
        say(f"note: skipped {part}: {why}", err=True)
    say(
        f"wrote {folder / PAGE}, passport.json, badge.svg, model_card.md\nnext: open it, or sorites compare"
        f" OTHER {folder}"
    )
