"""The loop: for every light, picture and setting show, set, read back, shoot, fetch, check, straighten, write and log.

The light is the outermost loop, so that lamps are switched once. A photograph is written under a temporary name and renamed, then
logged: what the log does not hold with its size is shot again, at the same path. While a photograph is straightened and
written, the next is taken.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.studio.calibration import DRIFTED_PX, Calibration, calibrate, opened
from sorites.studio.cameras import Camera, CameraError, NeedsHand, Photo, exif_of
from sorites.studio.folder import CaptureFolder, Shot
from sorites.studio.lamps import LampError, Lamps, NoLamps
from sorites.studio.log import Log
from sorites.studio.originals import kept_original
from sorites.studio.references import Reference
from sorites.studio.screen.server import Screen, Shown
from sorites.studio.straighten import QUALITY, encoded, straightened
from sorites.studio.values import agree, in_words

TRIES = 6
"""The times a shot is taken until it is right."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The options of a capture."""

    originals: str = "keep"
    """The fate of the camera's files: keep, jpeg (smaller), drop."""
    clear_card: bool = False
    calibrate_every: int = 20
    """Pictures between two calibrations."""
    quality: int = QUALITY
    patience_s: float = 600.0
    """The seconds that the capture waits for a person: to change a battery or a card, turn a dial or mend a screen."""
    pause_s: float = 2.0


@dataclass
class Capture:
    """A capture under way. ``seconds`` adds up where the time went, ``taken`` counts the shots of this run."""

    folder: CaptureFolder
    screen: Screen
    lamps: Lamps | NoLamps
    camera: Camera
    stage: tuple[int, int]
    options: Options = Options()
    say: Say = lambda text: None
    taken: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    _calibration: Calibration | None = None
    _pictures: int = 0
    _waiting: list[tuple[Future[None], Photo]] = field(default_factory=list)

    def run(
        self, held: Iterable[Reference], again: frozenset[str] = frozenset(), tick: Callable[[int], None] = lambda n: None
    ) -> None:
        """Take all that is missing; pictures named in ``again`` are shot once more."""
        done = {path for path, line in self.folder.done().items() if line["sample"] not in again}
        log = Log(self.folder.log)
        pool = ThreadPoolExecutor(1, "straighten")
        try:
            self._patiently(self.camera.prepare, log)
            for light in self.folder.grid.lights:
                for reference in held:
                    missing = [shot for shot in self.folder.shots(reference, light) if shot.path not in done]
                    if missing:
                        self._picture(reference, light, missing, log, pool, tick)
            self._finish()
        finally:
            pool.shutdown(wait=True)
            log.close()

    def _picture(
        self,
        reference: Reference,
        light: str,
        missing: list[Shot],
        log: Log,
        pool: ThreadPoolExecutor,
        tick: Callable[[int], None],
    ) -> None:
        """Take what is missing of one picture under one light."""
        self._patiently(lambda: self._timed("lamps", lambda: self.lamps.set(light)), log)
        self._patiently(self.camera.check, log)
        if self._pictures % self.options.calibrate_every == 0:
            self._calibrate(log)
        self._pictures += 1
        picture = reference.picture()
        shown = self._patiently(lambda: self._timed("show", lambda: self.screen.show(reference.id, reference.png())), log)
        size = (picture.shape[1], picture.shape[0])
        for shot in missing:
            self._shot(shot, shown, size, log, pool)
            tick(1)

    def _calibrate(self, log: Log) -> None:
        """Find the homography again and say how far it moved."""
        self._finish()
        before = None if self._calibration is None else self._calibration.matrix
        found = self._patiently(
            lambda: self._timed("calibrate", lambda: calibrate(self.camera, self.screen, self.stage, before)), log
        )
        self._calibration = found
        log.add("calibration", camera_file=found.photo.name, **found.facts())
        for warning in found.found.warnings:
            self.say(f"calibration: {warning}")
        if found.drift_px is not None and found.drift_px > DRIFTED_PX:
            self.say(
                f"the camera or the screen moved by {found.drift_px:.1f} px since the last calibration; the homography follows"
            )
        self._forget(found.photo)

    def _shot(self, shot: Shot, shown: Shown, size: tuple[int, int], log: Log, pool: ThreadPoolExecutor) -> None:
        """Take one photograph until it is right, and leave the rest of the work to the other thread."""
        failed: list[str] = []
        while True:
            try:
                facts, photo = self._patiently(lambda: self._attempt(shot), log)
                break
            except CameraError as error:
                failed.append(str(error))
                log.add("failed", sample=shot.reference.id, params=dict(shot.params), why=str(error))
                if len(failed) == TRIES:
                    raise SoritesError(
                        f"{shot.reference.id}, {in_words(shot.params)}: {error}. Type the same command to go on"
                    ) from error
                self._patiently(self.camera.settle, log)
        self._finish()
        facts |= {"retries": len(failed)}
        assert self._calibration is not None
        work = (shot, shown, size, self._calibration, photo, facts, log)
        self._waiting.append((pool.submit(self._keep, *work), photo))
        self.taken += 1

    def _attempt(self, shot: Shot) -> tuple[dict[str, Any], Photo]:
        """Set the camera, shoot, and check that the file says what was asked."""
        answered = self._timed("set", lambda: self.camera.set(shot.params))
        photo = self._timed("shoot", self.camera.shoot)
        exif = exif_of(photo)
        wrong = agree(shot.params, answered) + (agree(shot.params, exif) if exif.keys() - {"taken"} else [])
        if wrong:
            raise CameraError(f"{photo.name}: {'; '.join(wrong)}")
        return {"answered": dict(answered), "exif": exif}, photo

    def _keep(
        self,
        shot: Shot,
        shown: Shown,
        size: tuple[int, int],
        calibration: Calibration,
        photo: Photo,
        facts: dict[str, Any],
        log: Log,
    ) -> None:
        """Straighten a photograph, write it and its original, then log it."""
        start = time.perf_counter()
        picture = straightened(opened(photo), calibration.matrix, shown, size)
        data = encoded(picture, photo.data, self.options.quality)
        self._count("straighten", start)
        start = time.perf_counter()
        original = kept_original(self.folder.root, shot.path, photo, self.options.originals)
        write_bytes(data, self.folder.root / shot.path)
        known = {"sample": shot.reference.id, "params": dict(shot.params), "file": shot.path, "bytes": len(data)}
        known |= {"sha256": hashlib.sha256(data).hexdigest(), "camera_file": photo.name, "camera_bytes": len(photo.data)}
        log.add("shot", **known, original=original, **facts)
        self._count("write", start)

    def _finish(self) -> None:
        """Wait until what was shot is written, and delete from the card what is safe here."""
        while self._waiting:
            future, photo = self._waiting.pop(0)
            future.result()
            self._forget(photo)

    def _forget(self, photo: Photo) -> None:
        if self.options.clear_card:
            self.camera.forget(photo)

    def _patiently(self, do: Callable[[], Any], log: Log) -> Any:
        """Do a step; where it needs a person say so once, wait, and try again until the patience is used up."""
        end, said = time.monotonic() + self.options.patience_s, ""
        while True:
            try:
                return do()
            except (NeedsHand, LampError) as error:
                if str(error) != said:
                    said = str(error)
                    log.add("pause", why=said)
                    self.say(f"paused: {said}")
                if time.monotonic() > end:
                    raise SoritesError(f"{said}. Type the same command to go on") from error
            time.sleep(self.options.pause_s)

    def _timed(self, what: str, do: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return do()
        finally:
            self._count(what, start)

    def _count(self, what: str, start: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start


def missing_shots(folder: CaptureFolder, held: Iterable[Reference], again: frozenset[str] = frozenset()) -> int:
    """Return how many photographs are still to be taken."""
    done = {path for path, line in folder.done().items() if line["sample"] not in again}
    return sum(
        shot.path not in done for light in folder.grid.lights for reference in held for shot in folder.shots(reference, light)
    )
