"""A comparison as text: GitHub's Markdown for a pull request, and JUnit's XML for a CI that lists tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as Xml

from sorites.comparisons.compare import Comparison
from sorites.comparisons.gate import Verdict

SIGNIFICANT = 0.05


def markdown(found: Comparison, verdicts: Sequence[Verdict]) -> str:
    """Return the comparison as GitHub-flavoured Markdown: the verdict first, then one line per dial."""
    base, new = map(_plain, found.names)
    lines = [f"### {new} against {base}", "", *_verdict(verdicts), *(f"> {_plain(note)}" for note in found.notes)]
    lines += ["", f"| dial | n | {base} | {new} | drop, points | 95 % interval | lost / gained | Holm's p | detectable drop |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    lines += [_line(row) for row in found.dials.to_dicts()]
    return "\n".join([*lines, "", _legend(found), ""])


def _verdict(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    broken, held = ([_plain(f"{v.rule.text}: {v}") for v in verdicts if v.broken is side] for side in (True, False))
    said = f"fails**: {len(broken)} of {len(verdicts)} checks are broken." if broken else f"holds**: {len(verdicts)} checks."
    folded = ["<details><summary>checks that hold</summary>", "", *(f"- {line}" for line in held), "", "</details>", ""]
    return [f"**The gate {said}", "", *(f"- {line}" for line in broken), "", *(folded if held else [])]


def _line(row: dict[str, Any]) -> str:
    p = "–" if row["p_holm"] is None else f"{row['p_holm']:.3g}"
    mark = "**" if row["p_holm"] is not None and row["p_holm"] <= SIGNIFICANT else ""
    numbers = [f"{100 * row[key]:.1f}" for key in ("base", "new")] + [f"{mark}{100 * row['drop']:+.1f}{mark}"]
    between = f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}"
    cells = [
        _plain(row["dial"]),
        row["n"],
        *numbers,
        between,
        f"{row['lost']} / {row['gained']}",
        p,
        "–" if row["detectable"] is None else f"{100 * row['detectable']:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _legend(found: Comparison) -> str:
    return (
        "Accuracies in percent on the same pictures; n counts samples. A drop is the base minus the new model. p comes from "
        "flipping the sides of samples (with one picture per sample: McNemar's exact test) and is corrected for all dials by "
        f"Holm; bold where it is at most {SIGNIFICANT:g}. The detectable drop is found in four of five "
        "cases with this n; – where none would be."
    )


def _plain(text: str) -> str:
    """Return text that is no markup in a table of Markdown."""
    return "".join(f"\\{letter}" if letter in "|*_`<>[]\\" else " " if letter in "\r\n" else letter for letter in text)


def junit(found: Comparison, verdicts: Sequence[Verdict]) -> bytes:
    """Return the verdicts of a gate as JUnit XML: a test case per rule and dial."""
    broken = [verdict for verdict in verdicts if verdict.broken]
    name = _legal(f"sorites compare: {found.names[1]} against {found.names[0]}")
    counts = {"tests": str(len(verdicts)), "failures": str(len(broken)), "errors": "0", "skipped": "0"}
    root = Xml.Element("testsuites", counts)
    suite = Xml.SubElement(root, "testsuite", {"name": name, **counts})
    for verdict in verdicts:
        case = Xml.SubElement(
            suite, "testcase", {"classname": _legal(verdict.rule.text), "name": _legal(verdict.dial), "time": "0"}
        )
        if verdict.broken:
            Xml.SubElement(case, "failure", {"message": _legal(str(verdict)), "type": "gate"}).text = _legal(str(verdict))
        else:
            Xml.SubElement(case, "system-out").text = _legal(str(verdict))
    Xml.indent(root, " ")
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _legal(text: str) -> str:
    """Return text without the characters that XML 1.0 does not allow."""
    return "".join(
        letter if letter in "\t\n" or " " <= letter <= "\ud7ff" or "\ue000" <= letter <= "\ufffd" or letter > "\uffff" else "?"
        for letter in text
    )
