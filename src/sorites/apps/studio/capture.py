"""The capture loop: for every light, image and setting show, set, read back, shoot, fetch, check, rectify,
write and log.

The light is the outermost loop, so that lamps are switched once. A photograph is written atomically and then
logged; a file that is not in the log with its size is shot again. While one photograph is rectified and
written, the next is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites import core
from sorites.apps.studio.calibration import DRIFTED_PX, Calibration, calibrate, decode_photo
from sorites.apps.studio.cameras import (
    Camera,
    CameraError,
    NeedsHand,
    Photo,
    differences,
    exif_of,
    format_setting,
)
from sorites.apps.studio.devices import DeviceOptions, Devices, check_specs, open_devices
from sorites.apps.studio.folder import CaptureFolder, Shot, flagged, original_of
from sorites.apps.studio.lamps import LampError, Lamps, NoLamps
from sorites.apps.studio.markers import QUALITY, encode_jpeg, rectify
from sorites.apps.studio.references import Reference, part_of, references, stage_of
from sorites.apps.studio.references import grid as named_grid
from sorites.apps.studio.screen.server import Screen, Shown
from sorites.core import CLEAN
from sorites.core.camera_grid import LIGHTS
from sorites.core.errors import SoritesError
from sorites.core.labels import labels as labels_of
from sorites.core.progress import Bar
from sorites.evaluation.samples import hashed_samples
from sorites.io.digests import digest_of
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.logs import Log
from sorites.sources.captures import SHOTS, Paused, ShotFailed, ShotReplaced, ShotTaken

# Shots of both published splits: 1000 images, two lights, 64 + 5 and 27 + 5 settings.
FULL_SHOTS = 1000 * 2 * 69 + 1000 * 2 * 32
# Approximate size of a recompressed original relative to the camera's JPEG.
RECOMPRESSED_SHARE = 0.4


def format_duration(seconds: float) -> str:
    """Format a duration."""
    for size, unit in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def forecast(seconds_per_shot: float, kept_bytes: float, camera_bytes: float, shots: int = FULL_SHOTS) -> str:
    """Estimate time and disk space of the whole dataset from the mean time and sizes of the shots so far."""
    gigabytes = {
        "originals kept": kept_bytes + camera_bytes,
        "kept as JPEG": kept_bytes + RECOMPRESSED_SHARE * camera_bytes,
        "dropped": kept_bytes,
    }
    sizes = ", ".join(
        f"{size * shots / 1e9:,.0f} GB with originals {how.removeprefix('originals ')}"
        for how, size in gigabytes.items()
    )
    duration = format_duration(seconds_per_shot * shots)
    return f"at this pace a full ImageNet-ES ({shots:,} shots) takes {duration} and {sizes}"


# Attempts per shot.
TRIES = 6
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Options of a capture."""

    originals: str = "keep"
    """The treatment of the camera's files: ``keep``, ``jpeg`` (recompress) or ``drop``."""
    clear_card: bool = False
    calibrate_every: int = 20
    """Images between calibrations."""
    quality: int = QUALITY
    patience_s: float = 600.0
    """Seconds to wait for the operator, for example to change a battery or a card, or to fix the screen."""
    pause_s: float = 2.0


@dataclass(frozen=True)
class Attempt:
    """A photograph, the settings that the camera reported, and those in its EXIF data."""

    photo: Photo
    answered: Mapping[str, Any]
    exif: dict[str, Any]


@dataclass
class Capture:
    """A capture in progress.

    Attributes:
        taken: Number of shots in this run.
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
    seconds: dict[str, float] = field(default_factory=dict)
    _calibration: Calibration | None = None
    _images: int = 0
    _waiting: list[tuple[Future[None], Photo]] = field(default_factory=list)

    def run(
        self,
        references: Iterable[Reference],
        again: frozenset[str] = frozenset(),
        tick: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Take all missing photographs; images named in ``again`` are shot once more."""
        done = {path for path, shot in self.folder.done().items() if shot.sample not in again}
        log = self.folder.open_log(SHOTS)
        pool = ThreadPoolExecutor(1, "straighten")
        try:
            self._patiently(self.camera.prepare, log)
            for light in self.folder.grid.lights:
                for reference in references:
                    missing = [shot for shot in self.folder.shots(reference, light) if shot.path not in done]
                    if missing:
                        self._capture_image(reference, light, missing, log, pool, tick)
            self._finish()
        finally:
            pool.shutdown(wait=True)
            log.close()

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
        self._patiently(self.camera.check, log)
        if self._images % self.options.calibrate_every == 0:
            self._calibrate(log)
        self._images += 1
        image = reference.image()
        shown = self._patiently(
            lambda: self._timed("show", lambda: self.screen.show(reference.id, reference.png())), log
        )
        size = (image.shape[1], image.shape[0])
        for shot in missing:
            self._shot(shot, shown, size, log, pool)
            tick(1)

    def _calibrate(self, log: Log) -> None:
        """Find the homography again and report its drift."""
        self._finish()
        before = None if self._calibration is None else self._calibration.matrix
        calibration = self._patiently(
            lambda: self._timed("calibrate", lambda: calibrate(self.camera, self.screen, self.stage, before)),
            log,
        )
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

    def _shot(
        self, shot: Shot, shown: Shown, size: tuple[int, int], log: Log, pool: ThreadPoolExecutor
    ) -> None:
        """Take one photograph, retrying failures, and hand it to the writer thread."""
        failures: list[str] = []
        while True:
            try:
                attempt = self._patiently(lambda: self._attempt(shot), log)
                break
            except CameraError as error:
                failures.append(str(error))
                log.write(ShotFailed(sample=shot.reference.id, params=dict(shot.params), why=str(error)))
                if len(failures) == TRIES:
                    raise SoritesError(
                        f"{shot.reference.id}, {format_setting(shot.params)}: {error}. Repeat the command to"
                        " resume"
                    ) from error
                self._patiently(self.camera.settle, log)
        self._finish()
        assert self._calibration is not None
        work = (shot, shown, size, self._calibration, attempt, len(failures), log)
        self._waiting.append((pool.submit(self._keep, *work), attempt.photo))
        self.taken += 1

    def _attempt(self, shot: Shot) -> Attempt:
        """Set the camera, shoot, and check that camera and EXIF report the requested settings."""
        answered = self._timed("set", lambda: self.camera.set(shot.params))
        photo = self._timed("shoot", self.camera.shoot)
        exif = exif_of(photo)
        wrong = differences(shot.params, answered) + (
            differences(shot.params, exif) if exif.keys() - {"taken"} else []
        )
        if wrong:
            raise CameraError(f"{photo.name}: {'; '.join(wrong)}")
        return Attempt(photo, answered, exif)

    def _keep(
        self,
        shot: Shot,
        shown: Shown,
        size: tuple[int, int],
        calibration: Calibration,
        attempt: Attempt,
        retries: int,
        log: Log,
    ) -> None:
        """Rectify a photograph, write it and its original, then log it."""
        start, photo = time.perf_counter(), attempt.photo
        image = rectify(decode_photo(photo), calibration.matrix, shown, size)
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
        taken = ShotTaken(
            **paths,
            sample=shot.reference.id,
            params=dict(shot.params),
            bytes=len(data),
            camera_file=photo.name,
            camera_bytes=len(photo.data),
            answered=dict(attempt.answered),
            exif=attempt.exif,
            retries=retries,
        )
        log.write(taken)
        self._count("write", start)

    def _finish(self) -> None:
        """Wait until pending photographs are written, then delete them from the card if requested."""
        while self._waiting:
            future, photo = self._waiting.pop(0)
            future.result()
            self._forget(photo)

    def _forget(self, photo: Photo) -> None:
        if self.options.clear_card:
            self.camera.forget(photo)

    def _patiently(self, do: Callable[[], Any], log: Log) -> Any:
        """Run a step; if it needs the operator, report it once, wait, and retry until the patience runs
        out.
        """
        end, reported = time.monotonic() + self.options.patience_s, ""
        while True:
            try:
                return do()
            except (NeedsHand, LampError) as error:
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


def missing_shots(
    folder: CaptureFolder, references: Iterable[Reference], again: frozenset[str] = frozenset()
) -> int:
    """Return the number of photographs still to be taken."""
    done = {path for path, shot in folder.done().items() if shot.sample not in again}
    return sum(
        shot.path not in done
        for light in folder.grid.lights
        for reference in references
        for shot in folder.shots(reference, light)
    )


# Running a capture


LOCK = ".sorites.lock"


@dataclass(frozen=True)
class Job:
    """Arguments of a capture."""

    source: str
    out: Path
    grid: str = "test"
    auto: int | None = None
    limit: int | None = None
    labels: str | None = None
    wanted: DeviceOptions = field(default_factory=DeviceOptions)
    options: Options = field(default_factory=Options)
    reshoot: bool = False
    port: int = 0
    side: int | None = None

    def held(self) -> list[Reference]:
        """Return the images, in the fair order of the source."""
        space = labels_of(self.labels or "imagenet")
        clean = [
            sample for sample in hashed_samples(core.source(self.source, space)) if sample.shift == CLEAN
        ]
        return references(clean[: self.limit], space, self.side)

    def folder(self) -> CaptureFolder:
        """Return the capture folder; without lamps there is one light."""
        lights = ("off",) if self.wanted.lamps == "none" else tuple(LIGHTS)
        return CaptureFolder(self.out, part_of(self.grid), named_grid(self.grid, self.auto, lights))


@dataclass(frozen=True)
class Summary:
    """Results of a capture.

    Attributes:
        root: Folder of the capture.
        images: Number of images.
        wanted: Number of photographs in the folder.
        taken: Number of photographs taken now.
        seconds: Duration.
        parts: Time spent by kind of work.
        kept_bytes: Mean size of a rectified photograph.
        camera_bytes: Mean size of a camera file.
        camera_s: Time that the virtual camera itself took.
    """

    root: Path
    images: int
    wanted: int
    taken: int
    seconds: float
    parts: dict[str, float]
    kept_bytes: float
    camera_bytes: float
    camera_s: float | None = None

    def lines(self) -> list[str]:
        """Return a summary as text lines."""
        lines = [
            f"{self.wanted} photographs of {self.images} images are in {self.root}; {self.taken} were"
            " taken now"
        ]
        if self.taken:
            seconds_per_shot = self.seconds / self.taken
            where = ", ".join(f"{part} {1000 * spent / self.taken:.0f}" for part, spent in self.parts.items())
            lines.append(f"{format_duration(self.seconds)}, {seconds_per_shot:.2f} s per shot (ms: {where})")
            if self.camera_s:
                lines.append(
                    f"overhead of the capture loop: {self.loop_share:.2f} of the virtual camera's own time"
                )
            lines.append(forecast(seconds_per_shot, self.kept_bytes, self.camera_bytes))
        return lines

    @property
    def loop_share(self) -> float:
        """Time outside the camera relative to the virtual camera's own time."""
        return (self.seconds - (self.camera_s or 0.0)) / self.camera_s if self.camera_s else float("nan")


def capture_all(job: Job, say: Say, bar: Bar | None = None) -> Summary:
    """Take every missing photograph of a job.

    Args:
        job: The job.
        say: Receives messages for the operator.
        bar: Progress display.
    """
    check_specs(job.wanted)
    folder, references_ = job.folder(), job.held()
    with locked(job.out, "capture", LOCK):
        sweep_temporaries(job.out)
        folder.prepare(references_)
        again = flagged(folder) if job.reshoot else frozenset()
        if job.reshoot and not again:
            say("no image is flagged; there is nothing to shoot again")
        missing = missing_shots(folder, references_, again)
        if not missing:
            return _summary(folder, references_, None, None, 0.0)
        setup = folder.setup()
        stage = stage_of(references_)
        devices = open_devices(job.wanted, stage, setup["token"], job.port or setup["port"])
        try:
            folder.keep_setup(devices.screen.token, devices.screen.port)
            if devices.virtual is None or devices.virtual.tv is None:
                say(f"open this link full screen on the screen: {devices.screen.url}")
                devices.screen.show("start", None, wait=max(1.0, job.options.patience_s))
            return _run_capture(job, folder, references_, devices, again, missing, say, bar)
        finally:
            devices.close()


def _run_capture(
    job: Job,
    folder: CaptureFolder,
    references: list[Reference],
    devices: Devices,
    again: frozenset[str],
    missing: int,
    say: Say,
    bar: Bar | None,
) -> Summary:
    capture = Capture(
        folder, devices.screen, devices.lamps, devices.camera, stage_of(references), job.options, say
    )
    tick = bar("photographs", missing) if bar else lambda n: None
    start = time.perf_counter()
    capture.run(references, again, tick)
    return _summary(folder, references, capture, devices, time.perf_counter() - start)


def _summary(
    folder: CaptureFolder,
    references: list[Reference],
    capture: Capture | None,
    devices: Devices | None,
    seconds: float,
) -> Summary:
    done = folder.done()
    if not done:
        raise SoritesError(f"nothing was captured in {folder.root}")
    sizes = [
        sum(getattr(shot, key) for shot in done.values()) / len(done) for key in ("bytes", "camera_bytes")
    ]
    spent = (
        devices.virtual.camera.photographer.busy_s
        if devices is not None and devices.virtual is not None
        else None
    )
    taken, parts = (capture.taken, capture.seconds) if capture is not None else (0, {})
    return Summary(folder.root, len(references), len(done), taken, seconds, parts, sizes[0], sizes[1], spent)
