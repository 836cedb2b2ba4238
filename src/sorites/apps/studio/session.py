"""A capture from its arguments to its summary: open the folder and the devices, and take what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sorites import core
from sorites.apps.studio.capture import Capture, Options, Say
from sorites.apps.studio.devices import DeviceOptions, Devices, check_mixture, check_specs, open_devices
from sorites.apps.studio.folder import CaptureFolder, to_retake, undecided
from sorites.apps.studio.references import Reference, part_of, references, stage_of
from sorites.apps.studio.references import grid as named_grid
from sorites.core import CLEAN
from sorites.core.camera_grid import LIGHTS
from sorites.core.errors import SoritesError
from sorites.core.labels import labels as labels_of
from sorites.core.messages import command, option
from sorites.core.progress import Bar
from sorites.evaluation.samples import hashed_samples
from sorites.io.files import locked, sweep_temporaries
from sorites.io.paths import following_links

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


def missing_shots(
    folder: CaptureFolder, references: Iterable[Reference], again: frozenset[str] = frozenset()
) -> int:
    """Return the number of photographs still to be taken."""
    done = folder.done().keys() - again
    return sum(
        shot.path not in done
        for light in folder.grid.lights
        for reference in references
        for shot in folder.shots(reference, light)
    )


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
    follow_links: bool = False

    def held(self) -> list[Reference]:
        """Return the images, in the fair order of the source."""
        space = labels_of(self.labels or "imagenet")
        with following_links(self.follow_links):
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
        taken: Number of photographs taken now, those that were taken again included.
        seconds: Duration.
        parts: Time spent by kind of work.
        kept_bytes: Mean size of a rectified photograph.
        camera_bytes: Mean size of a camera file.
        camera_s: Time that the virtual camera itself took.
        suspicious: Photographs that do not match their reference, or cannot be compared with it, and that no
            reviewer has seen, by path, with the reason.
        repeated: How many were taken again because an earlier photograph did not match.
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
    suspicious: Mapping[str, str] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    """Class folders of the images."""
    repeated: int = 0

    def lines(self) -> list[str]:
        """Return a summary as text lines."""
        repeated = f", {self.repeated} of them because an earlier one did not match" if self.repeated else ""
        lines = [
            f"{self.wanted} photographs of {self.images} images are in {self.root}; {self.taken} were"
            f" taken now{repeated}"
        ]
        if self.suspicious:
            path, reason = next(iter(self.suspicious.items()))
            look = command("studio review", str(self.root))
            lines.append(
                f"{len(self.suspicious)} photographs do not match their image or cannot be compared with it,"
                f" for example {path}: {reason}. They are marked in {look}, where you can accept them; to"
                f" take them again, repeat the command with {option('reshoot')}"
            )
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
    check_mixture(job.wanted)  # before anything is written
    folder, references_ = job.folder(), job.held()
    with locked(job.out, "capture", LOCK):
        sweep_temporaries(job.out)
        folder.prepare(references_)
        again = to_retake(folder) if job.reshoot else frozenset()
        if job.reshoot and not again:
            say("no photograph is flagged and all match; there is nothing to shoot again")
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
    kept_bytes = sum(shot.bytes for shot in done.values()) / len(done)
    camera_bytes = sum(shot.camera_bytes for shot in done.values()) / len(done)
    spent = (
        devices.virtual.camera.photographer.busy_s
        if devices is not None and devices.virtual is not None
        else None
    )
    taken, parts = (capture.taken, capture.seconds) if capture is not None else (0, {})
    repeated = capture.repeated if capture is not None else 0
    return Summary(
        folder.root,
        len(references),
        len(done),
        taken,
        seconds,
        parts,
        kept_bytes,
        camera_bytes,
        spent,
        undecided(folder),
        frozenset(reference.folder for reference in references),
        repeated,
    )
