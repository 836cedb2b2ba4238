"""A screen that is closed, resized, covered or reloaded during a capture in real Chromium: no wrong photograph is
accepted, and the capture goes on unattended once the screen is back.

Each disturbance comes once, early or late; ``python -m proof screen_watch`` has twenty random moments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.apps.studio.disturbed import ASKED, Disturb, Moment, block, close, cover, reload, resize, trial

from sorites.apps.studio.references import Reference

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("disturb", "shots"), [(close, 4), (resize, 1), (cover, 4), (block, 1), (reload, 4)])
def test_no_wrong_photograph_is_accepted(
    browser: Any, tmp_path: Path, held: list[Reference], disturb: Disturb, shots: int
) -> None:
    found = trial(browser, tmp_path / "es", held, disturb, Moment(shots))
    assert found.error is None
    assert found.disturbed
    assert (found.accepted, found.wrong, found.flagged) == (ASKED, 0, 0)
