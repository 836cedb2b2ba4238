"""The capture loop: for every light, mode, image and setting show, set, read back, shoot, fetch, check,
rectify, write and log.

The light is the outermost loop, so that lamps are switched once; within it all manual shots come before all
automatic ones, so that a body with a mode dial needs one turn per light and mode. Before and after each
photograph the screen confirms what it shows; a photograph during which it changed, or that does not match its
reference, is taken again. A photograph is written atomically and then logged; a file that is not in the log
with its size is shot again. While one photograph is rectified and written, the next is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sorites.apps.studio.calibration import DRIFTED_PX, Calibration, calibrate, decode_photo
from sorites.apps.studio.cameras import (
    Camera,
    CameraError,
    FixedSettings,
    NeedsHand,
    Photo,
    differences,
    exif_of,
    format_setting,
)
from sorites.apps.studio.folder import CaptureFolder, Shot, original_of
from sorites.apps.studio.lamps import LampError, Lamps, LampState, NoLamps
from sorites.apps.studio.likeness import likeness
from sorites.apps.studio.markers import QUALITY, encode_jpeg, rectify
from sorites.apps.studio.references import Reference
from sorites.apps.studio.screen.server import Screen, ScreenError, Shown
from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.io.digests import digest_of
from sorites.io.files import write_bytes
from sorites.io.logs import Log
from sorites.sources.captures import (
    SHOTS,
    Paused,
    Prepared,
    ShotFailed,
    ShotReplaced,
    ShotTaken,
)

# Attempts per shot, and how often a photograph that does not match its reference is taken again.
TRIES, RETAKES = 6, 2
# In this order under each light.
MODES = ("manual", "auto")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Options of a capture."""

    originals: str = "keep"
    """What to do with the camera's files: ``keep``, ``jpeg`` (recompress) or ``drop``."""
    clear_card: bool = False
    calibrate_every: int = 20
    """Images between calibrations."""
    quality: int = QUALITY
    patience_s: float = 600.0
    """Seconds to wait for the operator, for example to change a battery or a card, or to fix the screen."""
    pause_s: float = 2.0
    fixed: FixedSettings = field(default_factory=FixedSettings)


class ScreenChanged(CameraError):
    """The screen showed something else before a photograph than after it."""


@dataclass(frozen=True)
class Attempt:
    """A photograph, and what camera, EXIF data and lamps reported about it."""

    photo: Photo
    answered: Mapping[str, Any]
    exif: Mapping[str, Any]
    fixed: Mapping[str, str]
    lamps: Mapping[str, LampState]


@dataclass(frozen=True)
class Taken:
    """A photograph that waits to be rectified, checked and written."""

    shot: Shot
    reference: ImageU8
    shown: Shown
    calibration: Calibration
    attempt: Attempt
    retries: int
    retakes: int


@dataclass
class Capture:
    """A capture in progress.

    Attributes:
        taken: Number of shots in this run.
        repeated: How many of them were taken again because an earlier photograph did not match its image.
        seconds: Time spent by kind of work.
    """

    folder: CaptureFolder
    screen: Screen
    lamps: Lamps | NoLamps
    camera: Camera
    stage: tuple[int, int]
    options: Options = Options()
    say: Say = lambda text: None
    taken: int = 0
    repeated: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    _calibration: Calibration | None = None
    _images: int = 0
    _waiting: list[tuple[Future[bool], Taken]] = field(default_factory=list)
    _retakes: list[tuple[Shot, int]] = field(default_factory=list)
    _fixed: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        references: Iterable[Reference],
        again: frozenset[str] = frozenset(),
        tick: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Take all missing photographs; those whose paths are in ``again`` are taken once more."""
        done = self.folder.done().keys() - again
        log = self.folder.open_log(SHOTS)
        pool = ThreadPoolExecutor(1, "straighten")
        try:
            self._prepare(log)
            for light in self.folder.grid.lights:
                for mode in MODES:
                    for reference in references:
                        shots = self.folder.shots(reference, light)
                        missing = [s for s in shots if s.params["mode"] == mode and s.path not in done]
                        if missing:
                            self._capture_image(reference, light, missing, log, pool, tick)
            self._finish()
        finally:
            pool.shutdown(wait=True)
            log.close()

    def _prepare(self, log: Log) -> None:
        """Set what stays the same during the capture; report and log what the camera does not follow."""
        deviations = self._patiently(lambda: self.camera.prepare(self.options.fixed), log)
        self._fixed = self.camera.read_fixed()
        log.write(Prepared(fixed=dict(self._fixed), deviations=list(deviations)))
        for deviation in deviations:
            self.say(f"camera: {deviation}")

    def _capture_image(
        self,
        reference: Reference,
        light: str,
        missing: list[Shot],
        log: Log,
        pool: ThreadPoolExecutor,
        tick: Callable[[int], None],
    ) -> None:
        """Take the missing photographs of one image under one light."""
        self._patiently(lambda: self._timed("lamps", lambda: self.lamps.set(light)), log)
        self._patiently(lambda: _or_hand(self.camera.check), log)
        if self._images % self.options.calibrate_every == 0:
            self._calibrate(log, routine=True)
        self._images += 1
        image = reference.image()
        self._show(reference, log)
        pending = [(shot, 0) for shot in missing]
        while pending:
            for shot, retakes in pending:
                self._take(shot, image, retakes, log, pool)
                tick(int(retakes == 0))
            self._finish()
            pending, self._retakes = self._retakes, []
            if pending:  # the camera or the screen may have moved
                self._calibrate(log, routine=True)
                self._show(reference, log)

    def _show(self, reference: Reference, log: Log) -> None:
        show = lambda: self.screen.show(reference.id, reference.png())  # noqa: E731
        self._patiently(lambda: self._timed("show", show), log)

    def _calibrate(self, log: Log, routine: bool = False) -> None:
        """Find the homography again and report its drift.

        A routine calibration is left out if somebody would have to turn the mode dial for it.
        """
        self._finish()
        before = None if self._calibration is None else self._calibration.matrix
        locate = lambda: calibrate(self.camera, self.screen, self.stage, before)  # noqa: E731
        calibration = None
        if routine and before is not None:
            try:
                calibration = self._timed("calibrate", locate)
            except NeedsHand:
                return
            except (CameraError, ScreenError):
                calibration = None
        if calibration is None:
            calibration = self._patiently(lambda: self._timed("calibrate", lambda: _or_hand(locate)), log)
        self._calibration = calibration
        log.write(calibration.entry())
        for warning in calibration.found.warnings:
            self.say(f"calibration: {warning}")
        if calibration.drift_px is not None and calibration.drift_px > DRIFTED_PX:
            self.say(
                f"the camera or the screen moved by {calibration.drift_px:.1f} px since the last calibration;"
                " the homography was updated"
            )
        self._forget(calibration.photo)

    def _take(self, shot: Shot, image: ImageU8, retakes: int, log: Log, pool: ThreadPoolExecutor) -> None:
        """Take one photograph, retrying failures, and hand it to the writer thread."""
        failures, end = 0, time.monotonic() + self.options.patience_s
        while True:
            try:
                shown = self._confirm(shot.reference, log)
                attempt = self._patiently(lambda: self._attempt(shot), log)
                if self._patiently(self.screen.confirm, log) != shown:
                    raise ScreenChanged("the screen changed during the photograph")
                break
            except CameraError as error:
                log.write(ShotFailed(sample=shot.reference.id, params=dict(shot.params), why=str(error)))
                changed = isinstance(error, ScreenChanged)
                failures += not changed
                if failures == TRIES or (changed and time.monotonic() > end):
                    raise SoritesError(
                        f"{shot.reference.id}, {format_setting(shot.params)}: {error}. Repeat the command to"
                        " resume"
                    ) from error
                if not changed:
                    self._patiently(lambda: _or_hand(self.camera.settle), log)
        self._finish()
        assert self._calibration is not None
        taken = Taken(shot, image, shown, self._calibration, attempt, failures, retakes)
        self._waiting.append((pool.submit(self._keep, taken, log), taken))
        self.taken += 1
        self.repeated += int(retakes > 0)

    def _confirm(self, reference: Reference, log: Log) -> Shown:
        """Return what the screen shows; calibrate and show the image again if its window changed."""
        while True:
            shown: Shown = self._patiently(lambda: self._timed("confirm", self.screen.confirm), log)
            if self._calibration is not None and shown.window == self._calibration.shown.window:
                return shown
            self.say("the window of the screen changed; calibrating again")
            self._calibrate(log)
            self._show(reference, log)

    def _attempt(self, shot: Shot) -> Attempt:
        """Set the camera, shoot, and check that camera, lamps and EXIF report the requested settings."""
        lamps = self._timed("lamps", lambda: self.lamps.set(str(shot.params["light"])))
        answered = self._timed("set", lambda: self.camera.set(shot.params))
        photo = self._timed("shoot", self.camera.shoot)
        exif = exif_of(photo)
        wrong = differences(shot.params, answered) + (
            differences(shot.params, exif) if exif.keys() - {"taken"} else []
        )
        fixed = self._timed("set", self.camera.read_fixed)
        wrong += [
            f"{name} changed from {value!r} to {fixed.get(name)!r}"
            for name, value in self._fixed.items()
            if fixed.get(name) != value
        ]
        if wrong:
            if fixed != self._fixed:
                self.camera.prepare(self.options.fixed)
            raise CameraError(f"{photo.name}: {'; '.join(wrong)}")
        return Attempt(photo, answered, exif, fixed, lamps)

    def _keep(self, taken: Taken, log: Log) -> bool:
        """Rectify a photograph; write it and its original and log it, unless it must be taken again.

        Returns:
            Whether it was kept.
        """
        shot, attempt, start = taken.shot, taken.attempt, time.perf_counter()
        photo = attempt.photo
        size = (taken.reference.shape[1], taken.reference.shape[0])
        image = rectify(decode_photo(photo), taken.calibration.matrix, taken.shown, size)
        match = likeness(image, taken.reference, metered=shot.params["mode"] == "auto")
        if match.problem and taken.retakes < RETAKES:
            log.write(ShotFailed(sample=shot.reference.id, params=dict(shot.params), why=match.problem))
            return False
        data = encode_jpeg(image, photo.data, self.options.quality)
        self._count("straighten", start)
        start = time.perf_counter()
        originals = original_of(shot.path, photo, self.options.originals)
        paths: dict[str, Any] = {"file": shot.path, "hash": digest_of(data)}
        for path, content in originals.items():
            paths |= {"original": path, "original_hash": digest_of(content)}
        files = {**originals, shot.path: data}
        if any((self.folder.root / path).exists() for path in files):
            log.write(ShotReplaced(**paths))
        for path, content in files.items():
            write_bytes(content, self.folder.root / path)
        log.write(
            ShotTaken(
                **paths,
                sample=shot.reference.id,
                params=dict(shot.params),
                bytes=len(data),
                camera_file=photo.name,
                camera_bytes=len(photo.data),
                answered=dict(attempt.answered),
                exif=dict(attempt.exif),
                fixed=dict(attempt.fixed),
                lamps={state.name: [state.on, state.brightness] for state in attempt.lamps.values()},
                retries=taken.retries,
                retakes=taken.retakes,
                correlation=None if match.correlation is None else round(match.correlation, 4),
                suspicious=match.problem,
                matrix=taken.calibration.matrix.tolist(),
                shown=[taken.shown.left, taken.shown.top, taken.shown.width, taken.shown.height],
            )
        )
        self._count("write", start)
        return True

    def _finish(self) -> None:
        """Wait until pending photographs are written, then delete them from the card if requested."""
        while self._waiting:
            future, taken = self._waiting.pop(0)
            if not future.result():
                self._retakes.append((taken.shot, taken.retakes + 1))
            self._forget(taken.attempt.photo)

    def _forget(self, photo: Photo) -> None:
        """Delete a photograph from the card if requested; one that cannot be deleted stays there."""
        if not self.options.clear_card:
            return
        try:
            self.camera.forget(photo)
        except CameraError as error:
            self.say(f"{photo.name} stays on the card: {error}")

    def _patiently(self, do: Callable[[], Any], log: Log) -> Any:
        """Run a step; if it needs the operator, report it once, wait, and retry until the patience runs
        out.
        """
        end, reported = time.monotonic() + self.options.patience_s, ""
        while True:
            try:
                return do()
            except (NeedsHand, LampError, ScreenError) as error:
                if str(error) != reported:
                    reported = str(error)
                    log.write(Paused(why=reported))
                    self.say(f"paused: {error}")
                if time.monotonic() > end:
                    raise SoritesError(f"{error}. Repeat the command to resume") from error
            time.sleep(self.options.pause_s)

    def _timed(self, what: str, do: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return do()
        finally:
            self._count(what, start)

    def _count(self, what: str, start: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start


def _or_hand(do: Callable[[], Any]) -> Any:
    """Run a step of the camera; if it fails, the operator must act.

    The camera may be covered, moved or out of focus, off the network, or off while its battery is changed.
    """
    try:
        return do()
    except NeedsHand:
        raise
    except CameraError as error:
        raise NeedsHand(str(error)) from error
