"""Run a capture as typed: open references, folder and devices, shoot all that is missing, and sum up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sorites import core
from sorites.core import CLEAN
from sorites.errors import SoritesError
from sorites.es_grid import LIGHTS
from sorites.files import locked, sweep_temporaries
from sorites.labels import labels as labels_of
from sorites.pipeline.samples import in_order
from sorites.progress import Bar
from sorites.studio.capture import Capture, Options, missing_shots
from sorites.studio.devices import Devices, Wanted, check_specs, open_devices
from sorites.studio.estimate import forecast, in_time
from sorites.studio.folder import CaptureFolder
from sorites.studio.grids import grid as named_grid
from sorites.studio.grids import part_of
from sorites.studio.references import Reference, references, stage_of
from sorites.studio.reviews import flagged

Say = Callable[[str], None]
LOCK = ".sorites.lock"


@dataclass(frozen=True)
class Job:
    """The arguments of a capture, as typed."""

    source: str
    out: Path
    grid: str = "test"
    auto: int | None = None
    limit: int | None = None
    labels: str | None = None
    wanted: Wanted = field(default_factory=Wanted)
    options: Options = field(default_factory=Options)
    reshoot: bool = False
    port: int = 0
    side: int | None = None

    def held(self) -> list[Reference]:
        """Return the pictures, in the fair order of the source."""
        space = labels_of(self.labels or "imagenet")
        clean = [sample for sample in in_order(core.source(self.source, space)) if sample.shift == CLEAN]
        return references(clean[: self.limit], space, self.side)

    def folder(self) -> CaptureFolder:
        """Return where the capture goes; without lamps there is one light."""
        lights = ("off",) if self.wanted.lamps == "none" else tuple(LIGHTS)
        return CaptureFolder(self.out, part_of(self.grid), named_grid(self.grid, self.auto, lights))


@dataclass(frozen=True)
class Summary:
    """The results of a capture. ``camera_s`` is the virtual camera's own time."""

    root: Path
    pictures: int
    wanted: int
    taken: int
    seconds: float
    parts: dict[str, float]
    kept_bytes: float
    camera_bytes: float
    camera_s: float | None = None

    def lines(self) -> list[str]:
        """Return a summary of the capture in words."""
        said = [f"{self.wanted} photographs of {self.pictures} pictures are in {self.root}; {self.taken} were taken now"]
        if self.taken:
            each = self.seconds / self.taken
            where = ", ".join(f"{part} {1000 * spent / self.taken:.0f}" for part, spent in self.parts.items())
            said.append(f"{in_time(self.seconds)}, {each:.2f} s per shot (ms: {where})")
            if self.camera_s:
                said.append(f"the loop around the camera cost {self.loop_share:.2f} of the virtual camera's own time")
            said.append(forecast(each, self.kept_bytes, self.camera_bytes))
        return said

    @property
    def loop_share(self) -> float:
        """The time around the camera as a share of the virtual camera's own."""
        return (self.seconds - (self.camera_s or 0.0)) / self.camera_s if self.camera_s else float("nan")


def capture_all(job: Job, say: Say, bar: Bar | None = None) -> Summary:
    """Take every photograph that is missing, and return what was done."""
    check_specs(job.wanted)
    folder, held = job.folder(), job.held()
    with locked(job.out, "capture", LOCK):
        sweep_temporaries(job.out)
        folder.prepare(held)
        again = flagged(folder) if job.reshoot else frozenset()
        if job.reshoot and not again:
            say("no picture is flagged; nothing to shoot again")
        missing = missing_shots(folder, held, again)
        if not missing:
            return _summary(folder, held, None, None, 0.0)
        setup = folder.setup()
        stage = stage_of(held)
        devices = open_devices(job.wanted, stage, setup["token"], job.port or setup["port"])
        try:
            folder.keep_setup(devices.screen.token, devices.screen.port)
            if devices.virtual is None or devices.virtual.tv is None:
                say(f"open this link on the screen, full screen: {devices.screen.url}")
                _await_screen(devices, job.options.patience_s)
            return _captured(job, folder, held, devices, again, missing, say, bar)
        finally:
            devices.close()


def _captured(
    job: Job,
    folder: CaptureFolder,
    held: list[Reference],
    devices: Devices,
    again: frozenset[str],
    missing: int,
    say: Say,
    bar: Bar | None,
) -> Summary:
    capture = Capture(folder, devices.screen, devices.lamps, devices.camera, stage_of(held), job.options, say)
    tick = bar("photographs", missing) if bar else lambda n: None
    start = time.perf_counter()
    capture.run(held, again, tick)
    return _summary(folder, held, capture, devices, time.perf_counter() - start)


def _await_screen(devices: Devices, patience: float) -> None:
    devices.screen.show("start", None, wait=max(1.0, patience))


def _summary(
    folder: CaptureFolder, held: list[Reference], capture: Capture | None, devices: Devices | None, seconds: float
) -> Summary:
    done = folder.done()
    if not done:
        raise SoritesError(f"nothing was captured in {folder.root}")
    sizes = [sum(float(line.get(key) or 0) for line in done.values()) / len(done) for key in ("bytes", "camera_bytes")]
    spent = devices.virtual.camera.photographer.busy_s if devices is not None and devices.virtual is not None else None
    taken, parts = (capture.taken, capture.seconds) if capture is not None else (0, {})
    return Summary(folder.root, len(held), len(done), taken, seconds, parts, sizes[0], sizes[1], spent)
