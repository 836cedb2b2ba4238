"""Run a review as typed: make the sheets, print the links, and say at the end what was flagged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from sorites.errors import SoritesError
from sorites.studio.folder import CaptureFolder
from sorites.studio.review.server import Review
from sorites.studio.reviews import flagged
from sorites.studio.sheets import write_sheets

MOST_REVIEWERS = 50


def serve(folder: CaptureFolder, names: str, bind: str, port: int, seconds: float | None, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C, or for a number of seconds."""
    reviewers = list(dict.fromkeys(name.strip()[:80] for name in names.split(",") if name.strip()))
    if not 0 < len(reviewers) <= MOST_REVIEWERS:
        raise SoritesError(f"--reviewers wants 1 to {MOST_REVIEWERS} names with commas between them, got {names!r}")
    write_sheets(folder)
    review = Review(folder, reviewers, bind, port)
    try:
        for name, link in review.links.items():
            say(f"{name}: {link}")
        say("Ctrl-C ends the review; verdicts are kept as they come")
        end = float("inf") if seconds is None else time.monotonic() + seconds
        with contextlib.suppress(KeyboardInterrupt):
            while time.monotonic() < end:
                time.sleep(min(0.5, max(0.0, end - time.monotonic())))
    finally:
        review.stop()
    wrong = flagged(folder)
    say(
        f"{len(wrong)} pictures are flagged"
        + (f"; next: sorites studio capture --reshoot --out {folder.root} ..." if wrong else "")
    )
