"""``sorites compare`` and ``sorites passport``: compare two models, or describe one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.analysis.options import CompareOptions, LeaderboardOptions, PassportOptions, VerifyOptions
from sorites.cli.options import Format, derived
from sorites.cli.output import say
from sorites.core.progress import phase

if TYPE_CHECKING:
    from sorites.analysis.comparison.verdicts import Verdict


Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="RULE",
        help='Exit with code 1 if this rule applies: "drop > 2". May be repeated.',
    ),
]
Gate = Annotated[Path | None, typer.Option("--gate", metavar="FILE", help="A TOML file of such rules.")]
Estimate = Annotated[
    bool,
    typer.Option("--estimate", help="Apply rules to the estimate instead of the bound of its interval."),
]
AllowUnjudged = Annotated[
    bool,
    typer.Option("--allow-unjudged", help="Exit with code 0 although some checks had too few images."),
]
Page = Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML file to write.")]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write the gate checks as JUnit XML.")
]
Data = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write the comparison as JSON.")
]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Also write GitHub-flavoured Markdown.")
]


@derived(
    CompareOptions,
    fail_if=(Rules, None),
    gate=(Gate, None),
    estimate=(Estimate, False),
    allow_unjudged=(AllowUnjudged, False),
    out=(Page, Path("compare.html")),
    junit=(Junit, None),
    markdown=(Markdown, None),
    json=(Data, None),
    format=(Format, "table"),
)
def compare(
    options: CompareOptions,
    fail_if: list[str] | None,
    gate: Path | None,
    estimate: bool,
    allow_unjudged: bool,
    out: Path,
    junit: Path | None,
    markdown: Path | None,
    json: Path | None,
    format: str,
) -> None:
    """Compare two models on the same images, shift by shift.

    Prints a table and writes an HTML page. With --fail-if or --gate, exits
    with code 1 if a check is broken, or 2 if one could not be judged.
    """
    from sorites.analysis.comparison.compare import compare as compared
    from sorites.analysis.comparison.gate import combine_rules, judge, parse_rules
    from sorites.cli.printing import print_frame
    from sorites.io.files import write_bytes
    from sorites.reports.comparison import as_json, write_page
    from sorites.reports.comparison import junit as as_junit
    from sorites.reports.comparison import markdown as as_markdown

    rules = combine_rules(fail_if or (), gate, estimate)
    if rules:
        parse_rules(rules)  # report invalid rules before the comparison
        options = replace(options, rate=rules.error_rate)
    with phase("comparing"):
        comparison = compared(**vars(options))
    for note in comparison.notes:
        say(f"note: {note}", err=True)
    with phase("testing the differences"):
        verdicts, dials = judge(comparison, rules) if rules else [], comparison.dials
    print_frame(dials, format)
    data = write_page(comparison, verdicts, out, rules)
    if json is not None:
        write_bytes(as_json(data), json)
    if junit is not None:
        write_bytes(as_junit(comparison, verdicts), junit)
    if markdown is not None:
        write_bytes(as_markdown(comparison, verdicts).encode(), markdown)
    written = [path for path in (out, junit, markdown, json) if path is not None]
    say(f"wrote {', '.join(map(str, written))}", err=format != "table")
    _conclude(verdicts, allow_unjudged)


def _conclude(verdicts: list[Verdict], allow_unjudged: bool) -> None:
    """Print the result of each check, broken ones last, and exit with the code of the gate."""
    from sorites.analysis.comparison.verdicts import exit_code, summary

    order = ("met", "not judged", "broken")
    for verdict in sorted(verdicts, key=lambda verdict: order.index(verdict.outcome)):
        say(f"{verdict.outcome}: {verdict.rule.text}: {verdict}", err=True)
    code = exit_code(verdicts, allow_unjudged)
    if verdicts:
        say(f"gate: {('passed', 'failed', 'not passed')[code]}, {summary(verdicts)}", err=True)
    if code:
        raise typer.Exit(code)


@derived(PassportOptions)
def passport(options: PassportOptions) -> None:
    """Run a fixed battery of suites on a model and write its passport.

    Writes passport.html, passport.json, badge.svg, model_card.md,
    robustness_record.md and the run folders. Run the same command again to continue after a stop.
    """
    from sorites.core.progress import text_bars
    from sorites.reports.passport.passport import PAGE, default_folder
    from sorites.reports.passport.passport import passport as make

    folder = Path(options.out or default_folder(options.model, options.battery))
    with text_bars() as bar:
        made = make(
            **{**vars(options), "out": folder}, bar=bar, say=lambda text: say(f"note: {text}", err=True)
        )
    from sorites.analysis.passport.document import BoxPassport
    from sorites.reports.components.severities import title
    from sorites.reports.passport.card import share

    boxes = isinstance(made, BoxPassport)
    what = "half of the objects lost at" if boxes else "half-accuracy severity"
    kind = "mAP " if boxes else ""
    say(f"{kind}clean    {share(made.clean)}\n{kind}shifted  {share(made.shifted)}")
    for dial in made.dials:
        mark = "  weak" if dial.shift in made.weakest else ""
        say(f"  {title(dial.shift):<22} {what}: {dial.words}{mark}")
    for part, why in made.left_out.items():
        say(f"note: skipped {part}: {why}", err=True)
    say(
        f"wrote {folder / PAGE}, passport.json, badge.svg, model_card.md, robustness_record.md\n"
        f"next: open it, or sorites compare OTHER {folder}"
    )


@derived(VerifyOptions)
def verify(options: VerifyOptions) -> None:
    """Recompute a passport or a comparison from its run folders.

    Prints one line and exits with code 0 if the document follows from the
    folders, 1 if it does not, or 2 if this cannot be checked. Writes nothing.
    """
    from sorites.reports.verify import verify as verified

    result = verified(**vars(options))
    say(str(result))
    if not result:
        raise typer.Exit(1)


@derived(LeaderboardOptions)
def leaderboard(options: LeaderboardOptions) -> None:
    """Write a page with the OOD results of many runs.

    Reads run folders and files of results, one row per model, scorer and
    suite, and says whether neighbours differ clearly on the same images.
    """
    from sorites.reports.leaderboard import write_leaderboard

    say(f"wrote {write_leaderboard(options)}")
    if options.results is not None:
        say(f"wrote {options.results}")
