"""The verb that compares two models on the same images, and the gate that says no."""

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
    base: Annotated[Path, typer.Argument(metavar="BASE", help="The run folder or passport to compare with.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The run folder or passport of the new model.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="RULE",
            help='Fail with exit code 1 if this holds: "drop > 2". May be repeated.',
        ),
    ] = None,
    gate: Annotated[
        Path | None, typer.Option("--gate", metavar="FILE", help="A gate.toml with such rules.")
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Judge rules by the estimate, not by the bound of its interval."),
    ] = False,
    base_model: Annotated[
        str | None,
        typer.Option("--base-model", metavar="NAME", help="The model of BASE, where it has several."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model of NEW, where it has several.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Compare the images that both have and were judged on.")
    ] = False,
    other_versions: Annotated[
        bool,
        typer.Option("--other-versions", help="Allow other versions of the libraries that make images."),
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("compare.html"),
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Also write the checks of the gate as JUnit XML."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write GitHub-flavoured Markdown.")
    ] = None,
    format: Format = "table",
) -> None:
    """Compare two models on the same images, dial by dial.

    Reads two run folders or passports; prints a table and writes a page. With
    --fail-if or --gate it exits with 1 where a rule is broken.
    """
    from sorites.analysis.comparison.compare import compare as compared
    from sorites.analysis.comparison.gate import judge, rules_of, with_rules
    from sorites.cli.printing import format_frame
    from sorites.io.files import write_bytes
    from sorites.reports.comparison import junit as as_junit
    from sorites.reports.comparison import markdown as as_markdown
    from sorites.reports.comparison import write_page

    asked = with_rules(fail_if or (), gate, estimate)
    _ = rules_of(asked) if asked else ()
    options = {"base_model": base_model, "model": model, "shared": shared, "other_versions": other_versions}
    found = compared(base, new, **options, rate=asked.error_rate if asked else 0.05)  # type: ignore[arg-type]
    for note in found.notes:
        say(f"note: {note}", err=True)
    verdicts = judge(found, asked) if asked else []
    say(format_frame(found.dials, format), nl=False, exact=format != "table")
    write_page(found, verdicts, out)
    if junit is not None:
        write_bytes(as_junit(found, verdicts), junit)
    if markdown is not None:
        write_bytes(as_markdown(found, verdicts).encode(), markdown)
    _conclude(verdicts, [path for path in (out, junit, markdown) if path is not None], format)


def _conclude(verdicts: list[Verdict], written: list[Path], format: str) -> None:
    """Say what was written and which checks are broken; exit with 1 where any is."""
    say(f"wrote {', '.join(map(str, written))}", err=format != "table")
    broken = [verdict for verdict in verdicts if verdict.broken]
    for verdict in sorted(verdicts, key=lambda verdict: verdict.broken):
        say(f"{'broken' if verdict.broken else 'holds'}: {verdict.rule.text}: {verdict}", err=True)
    if verdicts:
        said = (
            f"{len(broken)} of {len(verdicts)} checks are broken"
            if broken
            else f"all {len(verdicts)} checks hold"
        )
        say(f"gate: {said}", err=True)
    if broken:
        raise typer.Exit(1)


# The verb that makes a model's passport.


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
            "--source", metavar="NAME[:PATH]", help="Your own images: folder:PATH; the default is stamps."
        ),
    ] = None,
    labels: options.LabelFile = None,
    battery: Annotated[
        str,
        typer.Option(
            "--battery",
            metavar="short|standard|full|FILE",
            help="About 5 or 30 minutes, or hours, on two cores.",
        ),
    ] = "short",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="The folder to write; the default is passports/MODEL-BATTERY."
        ),
    ] = None,
    limit: options.Limit = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="The number of images a model sees at once.")
    ] = 8,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Run a fixed battery on a model and write its passport.

    Reads a model and images; writes passport.html, passport.json, badge.svg,
    model_card.md and the runs behind them. Type the same command again to
    continue one that was stopped.
    """
    from sorites.core.progress import told_bars
    from sorites.reports.passport.passport import PAGE, default_folder
    from sorites.reports.passport.passport import passport as make

    folder = out or default_folder(model, battery)
    with told_bars() as bar:
        made = make(
            model, source=source, labels=labels, battery=battery, out=folder, limit=limit, batch=batch, workers=workers,
            bar=bar, say=lambda text: say(f"note: {text}", err=True),
        )  # fmt: skip
    from sorites.reports.passport.numbers import title
    from sorites.reports.passport.text import share

    say(f"clean    {share(made.clean)}\nshifted  {share(made.shifted)}")
    for dial in made.dials:
        mark = "  weak" if dial.shift in made.weakest else ""
        say(f"  {title(dial.shift):<22} half-accuracy severity: {dial.words}{mark}")
    for part, why in made.left_out.items():
        say(f"note: {part} was left out: {why}", err=True)
    say(
        f"wrote {folder / PAGE}, passport.json, badge.svg, model_card.md\nnext: open it, or sorites compare"
        f" OTHER {folder}"
    )
