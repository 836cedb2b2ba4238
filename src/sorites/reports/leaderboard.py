"""A page of OOD results of many runs (``sorites.leaderboard``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sorites import __version__
from sorites.analysis.leaderboard import CLEAR, UNCLEAR, Board, Ranked, collect, write_results
from sorites.analysis.options import LeaderboardOptions
from sorites.io.files import write_bytes
from sorites.reports.components.markup import DASH, Html, grid, tag
from sorites.reports.page import document, hero
from sorites.reports.section import Section

HEAD = (
    "rank",
    "model",
    "scorer",
    "AUROC",
    "95 % interval",
    "FPR95",
    "accuracy",
    "against the next row",
    "run",
)
LEAD = (
    "AUROC and FPR95 are means over the sets of OOD images, each weighted equally. FPR95 is the share of"
    " in-distribution images that are flagged where 95 % of the OOD images are."
)


def leaderboard(
    files: Sequence[str | Path],
    out: str | Path = "leaderboard.html",
    results: str | Path | None = None,
    framework: str = "semantic",
) -> Path:
    """Write a page with the OOD results of many runs, one row per model, scorer and suite.

    Args:
        files: Run folders, and files of results of earlier calls.
        out: The HTML file to write.
        results: Also write all results to this JSON file, which can be merged later or elsewhere.
        framework: What counts as in-distribution in run folders: semantic (clean images) or full_spectrum.

    Returns:
        The page.

    Raises:
        SoritesError: A file is neither, two files disagree about one result, or there are no OOD scores.
    """
    return write_leaderboard(LeaderboardOptions(files=files, out=out, results=results, framework=framework))


def write_leaderboard(options: LeaderboardOptions) -> Path:
    """Write a page like ``leaderboard``, with options as one object."""
    board, out = collect(options.files, options.framework), Path(options.out)
    if options.results is not None:
        write_results(board.rows, Path(options.results))
    write_bytes(render(board).encode(), out)
    return out


def render(board: Board) -> Html:
    """Return the page of a leaderboard."""
    sections = {f"suite-{i}": _section(board, name) for i, name in enumerate(board.suites())}
    count = f"{len(board.rows)} results of {len(sections)} suite{'s' if len(sections) > 1 else ''}"
    top = hero(tag("h1", "OOD leaderboard"), tag("p", f"{count}. {LEAD}"))
    bottom = tag("footer", tag("p", f"Written by Sorites {__version__}."))
    data = {"results": [asdict(row) for row in board.rows]}
    return document("OOD leaderboard", top, sections, bottom, data=data)


def _section(board: Board, suite: str) -> Section:
    ranked = board.ranked(suite)
    sets = sorted({name for row in ranked for name in row.result.sets})
    spectrum = sorted({row.result.framework for row in ranked})
    body = tag("article", grid(HEAD, [_row(row) for row in ranked], text=3), cls="card")
    lead = (
        f"OOD images: {', '.join(sets)}. Framework: {', '.join(spectrum)}. A difference to the next row is"
        " clear if p < 0.05, paired on the same images (DeLong), after Holm's correction."
    )
    return Section(suite, body, suite, lead)


def _row(row: Ranked) -> list[object]:
    result = row.result
    interval = DASH if result.low is None or result.high is None else f"{result.low:.1%} to {result.high:.1%}"
    correct = DASH if result.accuracy is None else f"{result.accuracy:.1%}"
    return [
        row.rank,
        result.model,
        result.scorer,
        f"{result.auroc:.1%}",
        interval,
        f"{result.fpr95:.1%}",
        correct,
        _verdict(row),
        tag("code", result.run_id[:8]),
    ]


def _verdict(row: Ranked) -> str:
    if row.verdict is None:
        return DASH
    if row.verdict not in (CLEAR, UNCLEAR):
        return "cannot be separated: no scores of the same images"
    p = "p < 0.001" if (row.p or 0) < 0.001 else f"p = {row.p:.3f}"
    return f"{row.verdict}: +{100 * (row.difference or 0):.2f} points, {p}"
