"""Captures with real Chromium as the screen, disturbed at random moments: the window is closed, resized, covered
or reloaded, five times each, and four more with something between screen and camera.

No photograph that does not show its image may be accepted, and each capture must end by itself with all photographs.
``SORITES_SEED=N`` draws other moments.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright
from tests.apps.studio.conftest import write_images
from tests.apps.studio.disturbed import ASKED, DISTURBANCES, Moment, Trial, block, trial
from tests.conftest import QUIET, debian_program

from proof._lines import Line
from sorites import core
from sorites.apps.studio.references import references
from sorites.core.labels import labels

TRIALS, BLOCKED = 5, 4


def run() -> Iterator[Line]:
    rng = np.random.default_rng(int(os.environ.get("SORITES_SEED", "0")))
    space = labels(["n01440764", "n01443537"])
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as started:
        images = write_images(Path(scratch, "images"))
        held = references(core.source(f"folder:{images}", space), space)
        browser = started.chromium.launch(executable_path=debian_program("chromium", "chromium"), args=QUIET)
        for disturb in DISTURBANCES:
            found: list[Trial] = []
            for number in range(BLOCKED if disturb is block else TRIALS):
                shots, turns, length = (
                    int(rng.integers(*span)) for span in ((0, ASKED - 2), (0, 15), (1, 40))
                )
                moment = Moment(shots, turns, length)
                found.append(
                    trial(browser, Path(scratch, disturb.__name__, str(number)), held, disturb, moment)
                )
            yield from _lines(disturb.__name__, found)
        browser.close()


def _lines(name: str, found: list[Trial]) -> Iterator[Line]:
    ended = "; ".join(str(one.error) for one in found if one.error)
    again = sum(one.taken - one.accepted for one in found)
    accepted = sum(one.accepted for one in found)
    note = f"{accepted} photographs accepted, {again} not used"
    yield Line(f"{name}: disturbed captures", sum(one.disturbed for one in found), note, least=len(found))
    yield Line(f"{name}: wrong photographs accepted", sum(one.wrong for one in found), most=0)
    yield Line(f"{name}: photographs missing at the end", ASKED * len(found) - accepted, ended, most=0)
    yield Line(f"{name}: accepted and marked for review", sum(one.flagged for one in found), most=0)
