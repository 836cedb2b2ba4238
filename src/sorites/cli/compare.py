"""The verb that compares two models on the same pictures, and the gate that says no."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format
from sorites.cli.output import say

if TYPE_CHECKING:
    from sorites.comparisons.gate import Verdict


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="The run folder or passport to compare with.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The run folder or passport of the new model.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", metavar="RULE", help='Fail with exit code 1 if this holds: "drop > 2". May be repeated.'),
    ] = None,
    gate: Annotated[Path | None, typer.Option("--gate", metavar="FILE", help="A gate.toml with such rules.")] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Judge rules by the estimate, not by the bound of its interval.")
    ] = False,
    base_model: Annotated[
        str | None, typer.Option("--base-model", metavar="NAME", help="The model of BASE, where it has several.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model of NEW, where it has several.")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Compare the pictures that both have and were judged on.")] = False,
    other_versions: Annotated[
        bool, typer.Option("--other-versions", help="Allow other versions of the libraries that make pictures.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("compare.html"),
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write the checks of the gate as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write GitHub-flavoured Markdown.")
    ] = None,
    format: Format = "table",
) -> None:
    """Compare two models on the same pictures, dial by dial.

    Reads two run folders or passports; prints a table and writes a page. With
    --fail-if or --gate it exits with 1 where a rule is broken.
    """
    from sorites.cli.printing import format_frame
    from sorites.comparisons.compare import compare as compared
    from sorites.comparisons.gate import judge
    from sorites.comparisons.page import write_page
    from sorites.comparisons.rules import rules_of, with_rules
    from sorites.comparisons.texts import junit as as_junit
    from sorites.comparisons.texts import markdown as as_markdown
    from sorites.files import write_bytes

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
        said = f"{len(broken)} of {len(verdicts)} checks are broken" if broken else f"all {len(verdicts)} checks hold"
        say(f"gate: {said}", err=True)
    if broken:
        raise typer.Exit(1)
