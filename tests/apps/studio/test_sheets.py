"""Sheets show every photograph, and say what is missing."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.apps.studio.conftest import capture_of

from sorites.apps.studio.devices import Devices
from sorites.apps.studio.folder import REVIEWS_NAME, CaptureFolder, flagged, open_folder, to_retake
from sorites.apps.studio.references import Reference, safe_name
from sorites.apps.studio.sheets import images_of, sample_of, write_sheets
from sorites.core.errors import SoritesError


@pytest.mark.slow
def test_one_sheet_per_image_with_holes_for_what_is_missing(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices).run(held)
    opened = open_folder(folder.root)
    assert opened == folder
    before = [np.asarray(Pillow.open(path)) for path in write_sheets(opened)]
    assert len(before) == 3
    assert sample_of(folder)["n01440764/p0"] == "n01440764/p0.png"
    lost = next(folder.root.glob("es-test/param_control/l1/param_1/n01440764/p0.JPEG"))
    lost.unlink()
    after = [np.asarray(Pillow.open(path)) for path in write_sheets(opened)]
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert changed == [name == "n01440764/p0" for name, _ in images_of(folder)]


@pytest.mark.slow
def test_any_reviewers_flag_counts_until_the_image_is_shot_again(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices).run(held)
    log = folder.open_log(REVIEWS_NAME)
    log.add("verdict", reviewer="a", sample=held[0].id, flags=[], note="")
    log.add("verdict", reviewer="b", sample=held[0].id, flags=["crop"], note="")
    log.add("verdict", reviewer="a", sample=held[1].id, flags=["label"], note="")
    log.add("verdict", reviewer="a", sample=held[1].id, flags=[], note="I was wrong")
    log.close()
    assert flagged(folder) == {held[0].id}
    capture = capture_of(folder, devices)
    capture.run(held, again=to_retake(folder))
    assert capture.taken == 8
    assert flagged(folder) == frozenset()


def test_names_are_safe() -> None:
    assert safe_name("../../etc/passwd") == "_.._etc_passwd"
    assert safe_name("...") == safe_name("...")
    assert "/" not in safe_name("a/b")
    assert len(safe_name("x" * 500)) == 120
    assert safe_name("tabby cat") == "tabby cat"


def test_a_folder_without_a_capture(tmp_path: object) -> None:
    from pathlib import Path

    with pytest.raises(SoritesError, match="no capture"):
        open_folder(Path(str(tmp_path)))
