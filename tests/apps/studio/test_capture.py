"""The capture as a whole, and every fault that a device can have: each shot once, none wrongly
labelled, all in the log.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.apps.studio.conftest import GRID, STAGE, capture_of, write_images
from tests.conftest import scene

from sorites import core
from sorites.apps.studio.cameras import differences
from sorites.apps.studio.ccapi import Calls, CcapiCamera
from sorites.apps.studio.devices import DeviceOptions, Devices
from sorites.apps.studio.folder import CaptureFolder, suspicious, to_retake
from sorites.apps.studio.references import Reference, references
from sorites.apps.studio.screen.server import Shown, render_screen
from sorites.apps.studio.session import Job, capture_all, missing_shots
from sorites.apps.studio.virtual.camera import VirtualCamera
from sorites.core import camera_grid
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.io.digests import digest_of
from sorites.io.logs import read_log

pytestmark = pytest.mark.slow


def screen_hash(reference: Reference, size: tuple[int, int] = (1280, 720)) -> str:
    """What the virtual camera must have seen while it photographed a reference."""
    high, wide = reference.image().shape[:2]
    shown = Shown(1, size, (size[0] - wide) // 2, (size[1] - high) // 2, wide, high)
    return hashlib.blake2b(render_screen(reference.png(), shown).tobytes(), digest_size=8).hexdigest()


def check_whole(folder: CaptureFolder, held: list[Reference], camera: VirtualCamera) -> None:
    """Every expected shot is there once, in its log, and shows what its path says, by the camera's
    own record.
    """
    files = sorted(str(path.relative_to(folder.root)) for path in folder.root.glob("es-test/*/l*/**/*.JPEG"))
    wanted = {
        shot.path: shot for light in folder.grid.lights for ref in held for shot in folder.shots(ref, light)
    }
    assert files == sorted(wanted)
    lines = folder.done()
    assert set(lines) == set(wanted)
    hashes = {reference.id: screen_hash(reference) for reference in held}
    for path, line in lines.items():
        screen, lamp, exposure = camera.taken[line.camera_file]
        assert screen == hashes[wanted[path].reference.id]
        assert lamp == (1.0 if "/l1/" in path else 0.0)
        taken = {"iso": exposure.iso, "shutter": exposure.shutter, "aperture": exposure.aperture}
        assert differences(wanted[path].params, taken) == []
        assert digest_of((folder.root / path).read_bytes()) == line.hash
    used = Counter(line.camera_file for line in lines.values())
    assert max(used.values()) == 1


def test_a_capture_is_whole_and_read_as_imagenet_es(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture = capture_of(folder, devices)
    capture.run(held)
    assert devices.virtual is not None
    check_whole(folder, held, devices.virtual.camera)
    assert capture.taken == 3 * 2 * 4
    assert missing_shots(folder, held) == 0
    source = core.source(f"imagenet_es:{folder.root}", labels(["n01440764", "n01443537"]))
    assert len([s for s in source if s.shift == "clean"]) == 3
    settings = {sample.setting.canonical for sample in source if sample.shift == "camera"}
    assert len(settings) == 2 * 4
    assert camera_grid.captured_grid(folder.root / "es-test", "test") == GRID
    clean = next(sample for sample in source if sample.shift == "clean")
    shots = {str(s.setting.params): s.load() for s in source if s.id == clean.id and s.shift == "camera"}
    near = [np.corrcoef(clean.load().ravel(), shot.ravel())[0, 1] for shot in shots.values()]
    assert all(shot.shape == clean.load().shape for shot in shots.values())
    assert max(near) > 0.9


def test_lamps_are_switched_once_per_light_and_calibrations_stand_between_images(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices, calibrate_every=2).run(held)
    lines = list(read_log(folder.log, ""))
    lights = [line["params"]["light"] for line in lines if line["event"] == "shot"]
    assert sum(a != b for a, b in itertools.pairwise(lights)) == 1
    modes = [line["params"]["mode"] for line in lines if line["event"] == "shot"]
    assert sum(a != b for a, b in itertools.pairwise(modes)) == 3
    assert sum(line["event"] == "calibration" for line in lines) == 6
    assert all(
        line["drift_px"] < 1
        for line in lines
        if line["event"] == "calibration" and line["drift_px"] is not None
    )


def test_it_goes_on_where_it_was_and_mends_what_was_damaged(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices).run(held[:2])
    first = folder.done()
    damaged = folder.root / next(iter(first))
    damaged.write_bytes(damaged.read_bytes()[:50])
    capture = capture_of(folder, devices)
    capture.run(held)
    assert capture.taken == 8 + 1
    assert devices.virtual is not None
    check_whole(folder, held, devices.virtual.camera)


def test_an_over_exposed_automatic_photograph_is_taken_again_twice_then_marked(
    tmp_path: Path, devices: Devices, held: list[Reference]
) -> None:
    """A pale image fills little of a dark frame, so the meter makes it white: nothing can be compared."""
    pale = 225 + scene(1, STAGE[1], STAGE[0]) // 9
    path = tmp_path / "pale" / "n01440764" / "p0.png"
    path.parent.mkdir(parents=True)
    Pillow.fromarray(pale).save(path)
    space = labels(["n01440764", "n01443537"])
    shown = references(core.source(f"folder:{tmp_path / 'pale'}", space), space)
    folder = CaptureFolder(tmp_path / "auto", "test", camera_grid.Grid((), shots=2, lights=("off",)))
    folder.prepare(shown)
    capture = capture_of(folder, devices)
    capture.run(shown)
    assert (capture.taken, capture.repeated) == (6, 4)
    done = folder.done()
    assert missing_shots(folder, shown) == 0
    assert {(shot.retakes, shot.correlation) for shot in done.values()} == {(2, 0.0)}
    assert suspicious(folder).keys() == to_retake(folder) == done.keys()
    failed = [line["why"] for line in read_log(folder.log, "") if line["event"] == "failed"]
    assert failed == [next(iter(suspicious(folder).values()))] * 4
    again = capture_of(folder, devices)
    again.run(shown)
    assert again.taken == 0, "a marked photograph is not taken again unless it is asked for"


LONGER = ("busy", "drop", "duplicate", "late", "truncate", "flat", "full", "wrong_exif")
FAULTS = ("drop_after", *(pytest.param(kind, marks=pytest.mark.slow) for kind in LONGER))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_of_the_camera(
    kind: str, devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    assert devices.virtual is not None
    camera, said = devices.virtual.camera, list[str]()
    capture = capture_of(folder, devices, said)
    at = iter(range(100))

    def tick(_: int) -> None:
        if next(at) % 5 == 2:
            camera.faults.add(kind, 2)

    capture.run(held[:2], tick=tick)
    assert camera.faults.happened.count(kind) >= 3
    check_whole(folder, held[:2], camera)
    events = Counter(line["event"] for line in read_log(folder.log, ""))
    if kind in ("drop_after", "wrong_exif"):
        assert events["failed"] >= 2
    if kind in ("full", "flat"):
        assert events["pause"] >= 1
        assert any("card" in text or "battery" in text for text in said)


@pytest.mark.slow
def test_a_late_file_is_not_the_next_images_though_settings_are_the_same(
    tmp_path: Path, devices: Devices, held: list[Reference]
) -> None:
    """With one setting alone EXIF tells nothing: only the camera's files and events do."""
    assert devices.virtual is not None
    camera = devices.virtual.camera
    folder = CaptureFolder(tmp_path / "one", "test", camera_grid.Grid(GRID.manual[1:], shots=0))
    folder.prepare(held)

    def tick(_: int) -> None:
        camera.faults.add("drop_after")
        camera.faults.add("late")

    capture_of(folder, devices).run(held, tick=tick)
    assert camera.faults.happened.count("drop_after") >= 4
    check_whole(folder, held, camera)


@pytest.mark.slow
def test_lamps_that_do_not_follow_are_asked_again_then_somebody_is(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    assert devices.virtual is not None
    devices.virtual.bridge.faults.add("stuck", 3)
    capture_of(folder, devices).run(held[:1])
    check_whole(folder, held[:1], devices.virtual.camera)


@pytest.mark.slow
def test_a_full_card_is_emptied_as_shots_are_safe(
    tmp_path: Path, devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    assert devices.virtual is not None
    devices.virtual.camera.card.room = 3
    capture_of(folder, devices, clear_card=True).run(held)
    check_whole(folder, held, devices.virtual.camera)


@pytest.mark.slow
def test_a_camera_that_stays_wrong_ends_the_capture_in_words(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    assert devices.virtual is not None
    capture = capture_of(folder, devices)
    capture.run(held[:1])
    devices.virtual.camera.faults.add("wrong_exif", 1000)
    with pytest.raises(SoritesError, match="ISO"):
        capture.run(held)
    devices.virtual.camera.faults._left.clear()
    capture_of(folder, devices).run(held)
    check_whole(folder, held, devices.virtual.camera)


def test_a_body_with_a_mode_dial_needs_two_turns_per_light(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    """Also if it calibrates before each image. After a stop among automatic shots, calibrating needs two more."""
    assert devices.virtual is not None
    body = VirtualCamera(devices.virtual.camera.photographer, dial="m")
    turns: list[str] = []

    def turn(text: str) -> None:
        if "turn the mode dial" in text:
            turns.append(text)
            body.values["shootingmode"] = "p" if "to P" in text else "m"

    def stop(_: int) -> None:
        if (left.pop() if left else None) == 0:
            raise KeyboardInterrupt

    for left in (list(range(4)), list(range(6)), []):
        camera = CcapiCamera(Calls(body.url))
        try:
            capture = capture_of(folder, replace(devices, camera=camera), calibrate_every=1)
            capture.say = turn
            with pytest.raises(KeyboardInterrupt) if left else contextlib.nullcontext():
                capture.run(held, tick=stop)
        finally:
            camera.close()
    body.stop()
    shots = [line["params"] for line in read_log(folder.log, "") if line["event"] == "shot"]
    assert len(shots) == len(folder.done()) == 3 * 2 * 4
    order = [key for key, _ in itertools.groupby((shot["light"], shot["mode"]) for shot in shots)]
    assert order == [("on", "manual"), ("on", "auto"), ("off", "manual"), ("off", "auto")]
    assert len(turns) == 3 + 2
    calibrated = [line for line in read_log(folder.log, "") if line["event"] == "calibration"]
    assert max(line["off_px"] for line in calibrated) < 1


def test_automatic_shots_can_be_added_later(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    without = CaptureFolder(folder.root.parent / "later", folder.split, replace(GRID, shots=0))
    without.prepare(held)
    capture_of(without, devices).run(held)
    assert len(without.done()) == 3 * 2 * 2
    later = CaptureFolder(without.root, folder.split, GRID)
    later.prepare(held)
    capture = capture_of(later, devices)
    capture.run(held)
    assert capture.taken == 3 * 2 * 2
    with pytest.raises(SoritesError, match="another grid"):
        CaptureFolder(without.root, folder.split, replace(GRID, shots=1)).prepare(held)


def test_what_stays_the_same_is_set_logged_and_kept(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    assert devices.virtual is not None
    body = devices.virtual.camera
    capture = capture_of(folder, devices)
    capture.run(held[:1], tick=lambda _: body.values.update(wb="tungsten"))
    shots = list(folder.done().values())
    assert len(shots) == 8
    assert {shot.fixed["white balance"] for shot in shots} == {"daylight"}
    assert {on for shot in shots for on, _ in shot.lamps.values()} == {True, False}
    failed = [line["why"] for line in read_log(folder.log, "") if line["event"] == "failed"]
    assert any("white balance" in why for why in failed)


def test_a_camera_that_is_switched_off_and_on_is_awaited(
    devices: Devices, folder: CaptureFolder, held: list[Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can change a battery while the camera answers."""
    assert devices.virtual is not None
    monkeypatch.setattr("sorites.apps.studio.ccapi.MAX_PAUSE_S", 0.05)
    body, said, at = devices.virtual.camera, list[str](), iter(range(100))
    capture = capture_of(folder, devices, said)

    def tick(_: int) -> None:
        if next(at) in (2, 5):
            body.faults.add("drop", 20)

    capture.run(held[:1], tick=tick)
    assert body.faults.happened.count("drop") == 40
    assert any("no answer from the camera" in text for text in said)
    check_whole(folder, held[:1], body)


def test_a_dial_that_is_turned_during_automatic_shots_is_noticed(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    """The EXIF data of an automatic shot would not show it."""
    assert devices.virtual is not None
    body, turns = VirtualCamera(devices.virtual.camera.photographer, dial="m"), list[str]()
    camera, at = CcapiCamera(Calls(body.url)), iter(range(100))

    def turn(text: str) -> None:
        if "turn the mode dial" in text:
            turns.append(text)
            body.values["shootingmode"] = "p" if "to P" in text else "m"

    def tick(_: int) -> None:
        if next(at) == 4:  # between the two automatic shots of the first light
            body.values["shootingmode"] = "m"

    try:
        capture = capture_of(folder, replace(devices, camera=camera))
        capture.say = turn
        capture.run(held[:2], tick=tick)
    finally:
        camera.close()
        body.stop()
    assert len(folder.done()) == 2 * 2 * 4
    assert len(turns) == 3 + 1


@pytest.mark.slow
def test_the_homography_follows_a_camera_that_moved(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    assert devices.virtual is not None
    photographer, said = devices.virtual.camera.photographer, list[str]()
    capture = capture_of(folder, devices, said, calibrate_every=1)
    at = iter(range(1000))

    def tick(_: int) -> None:
        if next(at) == 3:
            photographer.move(replace(photographer.room.view, roll=1.5, yaw=2.4))

    capture.run(held, tick=tick)
    assert any("moved by" in text for text in said)
    drifts = [line["drift_px"] for line in read_log(folder.log, "") if line["event"] == "calibration"]
    assert drifts[0] is None
    assert max(drifts[1:]) > 2
    assert drifts[-1] < 1


@pytest.mark.slow
def test_originals_are_kept_made_smaller_or_dropped(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices, originals="keep").run(held[:1])
    kept = sorted(folder.root.glob("originals/**/*.JPEG"))
    assert len(kept) == 8
    assert all(path.read_bytes()[:3] == b"\xff\xd8\xff" for path in kept)
    capture_of(folder, devices, originals="drop").run(held[:2])
    assert len(sorted(folder.root.glob("originals/**/*.JPEG"))) == 8


@pytest.mark.parametrize("room", [{"camera": "ptp"}, {"lamps": "hue:192.168.1.30"}])
def test_a_refused_mixture_of_devices_leaves_no_folder(room: dict[str, str], tmp_path: Path) -> None:
    """The remedy, without lamps, would be another grid than that of the folder."""
    job = Job(f"folder:{write_images(tmp_path / 'images')}", tmp_path / "es", wanted=DeviceOptions(**room))
    with pytest.raises(SoritesError, match="cannot see the light"):
        capture_all(job, [].append)
    assert not job.out.exists()


def test_other_lamps_are_refused(folder: CaptureFolder, held: list[Reference]) -> None:
    other = CaptureFolder(folder.root, "test", replace(GRID, lights=("off",)))
    with pytest.raises(SoritesError, match="was started with lamps"):
        other.prepare(held)


def test_another_grid_is_refused(folder: CaptureFolder, held: list[Reference]) -> None:
    other = CaptureFolder(folder.root, "test", camera_grid.Grid(GRID.manual[:1]))
    with pytest.raises(SoritesError, match="was started with another grid"):
        other.prepare(held)


def test_the_camera_s_password_is_in_no_file_and_no_message(
    devices: Devices, folder: CaptureFolder, held: list[Reference], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    assert devices.virtual is not None
    body = devices.virtual.camera
    body._login = ("someone", "s3cret-word")
    devices.camera.close()
    devices.camera = CcapiCamera(Calls(body.url.replace("http://", "http://someone:s3cret-word@")))
    body.faults.add("busy", 2)
    said: list[str] = []
    capture_of(folder, devices, said).run(held[:1])
    files = [path for path in folder.root.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert not any(b"s3cret-word" in path.read_bytes() for path in files)
    assert "s3cret-word" not in "\n".join(said) + caplog.text
