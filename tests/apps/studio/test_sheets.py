"""Sheets show every photograph, and say what is missing."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import numpy as np
import pytest
from PIL import Image as Pillow
from tests.apps.studio.conftest import capture_of

from sorites.apps.check import check_capture
from sorites.apps.studio.devices import Devices
from sorites.apps.studio.folder import (
    REVIEWS_NAME,
    CaptureFolder,
    flagged,
    open_folder,
    suspicious,
    to_retake,
    undecided,
)
from sorites.apps.studio.references import Reference, safe_name
from sorites.apps.studio.review.rectify import Rectified, rectify_again
from sorites.apps.studio.review.server import Review
from sorites.apps.studio.sheets import images_of, sample_of, write_sheets
from sorites.core.errors import SoritesError
from sorites.sources.captures import SHOTS, Calibrated


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
    done = folder.done()
    assert {done[path].sample for path in flagged(folder)} == {held[0].id}
    assert set(flagged(folder).values()) == {frozenset({"crop"})}
    capture = capture_of(folder, devices)
    capture.run(held, again=to_retake(folder))
    assert capture.taken == 8
    assert flagged(folder) == {}
    # A flag of one photograph takes this one again and no other.
    one, other = sorted(done)[:2]
    log = folder.open_log(REVIEWS_NAME)
    log.add(
        "verdict", reviewer="a", sample=done[one].sample, flags=[], shots={one: ["missed", "crop"]}, note=""
    )
    log.close()
    assert flagged(folder) == {one: frozenset({"missed", "crop"})}
    before = {path: (folder.root / path).stat().st_mtime_ns for path in (one, other)}
    capture = capture_of(folder, devices)
    capture.run(held, again=to_retake(folder))
    assert capture.taken == 1
    assert flagged(folder) == {}
    assert (folder.root / one).stat().st_mtime_ns > before[one]
    assert (folder.root / other).stat().st_mtime_ns == before[other]


@pytest.mark.slow
def test_what_does_not_match_is_marked_until_a_reviewer_has_seen_it(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices).run(held)
    path, shot = next((path, shot) for path, shot in folder.done().items() if shot.sample == held[0].id)
    log = folder.open_log(SHOTS)
    log.write(shot.having(suspicious="the photograph is uniform", time=shot.time))
    log.close()
    assert undecided(folder) == suspicious(folder) == {path: "the photograph is uniform"}
    assert to_retake(folder) == {path}
    write_sheets(folder)
    review = Review(folder, ["ada"])
    try:
        link = review.links["ada"]
        image = next(one for one in httpx.get(f"{link}state").json()["images"] if one["doubts"])
        assert list(image["doubts"].values()) == ["the photograph is uniform"]
        number = [name for name, _ in images_of(folder)].index("n01440764/p0")
        httpx.post(
            f"{link}verdict", json={"number": number, "flags": [], "shots": {}, "note": ""}
        ).raise_for_status()
    finally:
        review.stop()
    assert undecided(folder) == {}
    assert to_retake(folder) == frozenset()
    assert suspicious(folder), "another reviewer still sees the mark"


@pytest.mark.slow
def test_photographs_are_rectified_again_from_the_cameras_files(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    """Deleted and damaged ones come back with the same bytes; a wrong homography is replaced by the next."""
    capture_of(folder, devices).run(held)
    paths = sorted(folder.done())
    content = {path: (folder.root / path).read_bytes() for path in paths}
    assert rectify_again(folder) == Rectified((), len(paths), {})
    (folder.root / paths[0]).unlink()
    (folder.root / paths[1]).write_bytes(b"damaged")
    announced, ticks = list[int](), list[int]()

    def bar(name: str, steps: int) -> Callable[[int], None]:
        announced.append(steps)
        return ticks.append

    assert set(rectify_again(folder, bar=bar).changed) == set(paths[:2])
    assert announced == [sum(ticks)] == [len(paths)], "deleted and damaged photographs count too"
    assert {path: (folder.root / path).read_bytes() for path in paths} == content
    check_capture(folder.root)
    name, image = images_of(folder)[0]
    image.rename(folder.root / "aside")
    done = rectify_again(folder)
    assert {path for path in paths if name in path} == done.left_out.keys()
    assert done.same == len(paths) - len(done.left_out)
    (folder.root / "aside").rename(image)
    # The camera moved after its calibration: the log has a homography that does not fit, and then one that does.
    path = next(path for path, shot in folder.done().items() if (shot.correlation or 0) > 0.8)
    shot, log = folder.done()[path], folder.open_log(SHOTS)
    moved = np.array([[1, 0, 25.0], [0, 1, 15.0], [0, 0, 1]]) @ np.array(shot.matrix)
    log.write(shot.having(matrix=moved.tolist()))
    right = Calibrated(camera_file="", matrix=shot.matrix or [], markers=20, off_px=0.0, frame=[1, 1])
    log.write(right)
    log.close()
    assert rectify_again(folder).changed == (path,)
    off = folder.done()[path].correlation or 0
    assert off < (shot.correlation or 0) - 0.1
    flag = folder.open_log(REVIEWS_NAME)
    flag.add("verdict", reviewer="a", sample=shot.sample, flags=[], shots={path: ["crop", "label"]}, note="")
    flag.close()
    assert path in rectify_again(folder, "best").changed
    assert (folder.root / path).read_bytes() == content[path]
    assert flagged(folder) == {path: frozenset({"label"})}
    with pytest.raises(SoritesError, match="own, next, best"):
        rectify_again(folder, "other")


@pytest.mark.slow
def test_without_the_cameras_files_nothing_is_rectified_again(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices, originals="drop").run(held[:1])
    with pytest.raises(SoritesError, match="not kept"):
        rectify_again(folder)


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
