"""Model-friendly capture: compare policies that choose camera settings from the model's answers, by accuracy
and shots.

A quarter of the images, chosen by a hash of their ids, determine the setting of the aggregate policy; all
policies are evaluated on the others. A photograph that two policies need is taken once and counted for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from sorites import core
from sorites.apps.studio import policies
from sorites.apps.studio.calibration import Calibration, calibrate, decode_photo
from sorites.apps.studio.cameras import (
    Camera,
    CameraError,
    NeedsHand,
    Photo,
    check_value,
    differences,
    exif_of,
    format_setting,
)
from sorites.apps.studio.devices import check_mixture, check_specs, open_devices
from sorites.apps.studio.folder import ENDING, CaptureFolder, open_folder
from sorites.apps.studio.lamps import LampError, Lamps, NoLamps
from sorites.apps.studio.markers import rectify
from sorites.apps.studio.policies import Answer, Outcome, Policy, by_exposure, checked_names, key_of
from sorites.apps.studio.references import Reference, stage_of
from sorites.apps.studio.screen.server import Screen, ScreenError, Shown
from sorites.apps.studio.session import LOCK, Job
from sorites.apps.studio.sheets import images_of
from sorites.core import FileRef, ImageU8, Model
from sorites.core.camera_grid import Grid, Params
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.io.decode import decode
from sorites.io.digests import read_sealed, write_sealed
from sorites.io.files import locked, write_bytes
from sorites.io.listed import RESTORE
from sorites.io.logs import Entry, Log, read_entries
from sorites.metrics import paired_interval, wilson_interval

NAME = "control.jsonl"
# Attempts per photograph.
TRIES = 5
# Seconds between attempts while the operator must act.
PAUSE_S = 1.0
# Images between calibrations.
CALIBRATE_EVERY = 20


@dataclass
class Judge:
    """A classifier with its labels and a scorer that needs no fit."""

    model: Model
    scorer: Any
    labels: tuple[str, ...]

    def __call__(self, image: ImageU8, label: str) -> Answer:
        """Return the model's answer for a photograph of a class."""
        outputs = self.model([image])
        if outputs.logits is None:
            raise SoritesError(f"{self.model.name} has no logits; control needs a classifier")
        logits = outputs.logits[0].astype(np.float64)
        shares = np.exp(logits - logits.max())
        ood = float(self.scorer(outputs)[0])
        return Answer(self.labels[int(logits.argmax())] == label, float(shares.max() / shares.sum()), ood)


def judge(model: str, scorer: str, labels: tuple[str, ...]) -> Judge:
    """Return a judge from the names of a model and a scorer."""
    loaded = core.model(model)
    model_labels = loaded.labels or labels
    missing = set(labels) - set(model_labels) if loaded.labels else set()
    if missing:
        raise SoritesError(
            f"{model} does not have the class {min(missing)}; choose a model with these classes"
        )
    return Judge(loaded, core.scorer(scorer), tuple(model_labels))


@dataclass
class Rig:
    """Screen, lamps and camera that take photographs one at a time and ask the judge; answers are cached."""

    screen: Screen
    lamps: Lamps | NoLamps
    camera: Camera
    stage: tuple[int, int]
    judge: Judge
    log: Log
    known: dict[tuple[str, str, str], Answer]
    tick: Callable[[int], None] = lambda n: None
    say: Callable[[str], None] = lambda text: None
    patience_s: float = 600.0
    _shown: str = ""
    _matrix: Any = None
    _window: Any = None
    _images: int = 0

    def at(self, reference: Reference, light: str) -> Callable[[Params], Answer]:
        """Return the shooter of an image under a light."""
        return lambda params: self._answer(reference, light, params)

    def _answer(self, reference: Reference, light: str, params: Params) -> Answer:
        key = (reference.id, light, key_of(params))
        if key not in self.known:
            answer = self.judge(self._image(reference, light, params), reference.folder)
            self.log.write(Answered(sample=reference.id, light=light, setting=key[2], **asdict(answer)))
            self.known[key] = answer
            self.tick(1)
        return self.known[key]

    def _image(self, reference: Reference, light: str, params: Params) -> ImageU8:
        """Photograph an image; a photograph during which the screen changed is taken again."""
        self._patiently(lambda: self.lamps.set(light))
        high, wide = reference.image().shape[:2]
        for left in reversed(range(TRIES)):
            try:
                shown = self._show(reference)
                photo = self._patiently(lambda: self._shoot(params))
                if self._patiently(self.screen.confirm) != shown:
                    raise CameraError("the screen changed during the photograph")
                return rectify(decode_photo(photo), self._matrix, shown, (wide, high))
            except CameraError:
                if left == 0:
                    raise
                time.sleep(0.2)
                self.camera.settle()
        raise AssertionError

    def _show(self, reference: Reference) -> Shown:
        """Show an image unless it is on the screen; calibrate if that is due or the window changed."""
        while True:
            if self._shown == reference.id:
                shown: Shown = self._patiently(self.screen.confirm)
                if shown.window == self._window:
                    return shown
                self._window = None
            elif self._images % CALIBRATE_EVERY == 0:
                self._window = None
            if self._window is None or self._patiently(self.screen.confirm).window != self._window:
                found = self._patiently(self._calibrate)
                self._matrix, self._window = found.matrix, found.shown.window
            self._images += self._shown != reference.id
            self._patiently(lambda: self.screen.show(reference.id, reference.png()))
            self._shown = reference.id

    def _calibrate(self) -> Calibration:
        return calibrate(self.camera, self.screen, self.stage, self._matrix)

    def _shoot(self, params: Params) -> Photo:
        self.camera.set(params)
        photo = self.camera.shoot()
        wrong = differences(params, exif_of(photo))
        if wrong and exif_of(photo).keys() - {"taken"}:
            raise CameraError("; ".join(wrong))
        return photo

    def _patiently(self, do: Callable[[], Any]) -> Any:
        """Run a step; if it needs the operator, report it once and retry until the patience runs out."""
        end, reported = time.monotonic() + self.patience_s, ""
        while True:
            try:
                return do()
            except (NeedsHand, LampError, ScreenError) as error:
                if time.monotonic() > end:
                    raise
                if str(error) != reported:
                    reported = str(error)
                    self.say(f"paused: {error}")
            time.sleep(PAUSE_S)


@dataclass
class Replay:
    """A finished capture in place of a camera, to compare policies without shooting again."""

    folder: CaptureFolder
    judge: Judge
    known: dict[tuple[str, str, str], Answer] = field(default_factory=dict)
    tick: Callable[[int], None] = lambda n: None

    def at(self, reference: Reference, light: str) -> Callable[[Params], Answer]:
        """Return the shooter of an image under a light."""
        places = {key_of(params): place for params, place in self.folder.grid.under(light)}

        def shoot(params: Params) -> Answer:
            key = (reference.id, light, key_of(params))
            if key not in self.known:
                if key[2] not in places:
                    raise SoritesError(f"{self.folder.root} was not captured at {format_setting(params)}")
                path = (
                    self.folder.root
                    / self.folder.part
                    / places[key[2]]
                    / reference.folder
                    / f"{reference.stem}{ENDING}"
                )
                self.known[key] = self.judge(decode(path), reference.folder)
                self.tick(1)
            return self.known[key]

        return shoot


@dataclass(frozen=True)
class Plan:
    """The plan of a comparison: images, grid, policies, the fixed setting and lights."""

    held: Sequence[Reference]
    grid: Grid
    names: tuple[str, ...]
    setting: Params
    lights: tuple[str, ...]
    teach: float = 0.25
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def settings(self) -> list[Params]:
        """The manual settings."""
        return [{**params, "mode": "manual"} for params in self.grid.manual]

    @property
    def max_shots(self) -> int:
        """The number of photographs if every setting and automatic exposure are taken."""
        return len(self.held) * len(self.lights) * (len(self.settings) + 1)

    def teaches(self, reference: Reference) -> bool:
        """Return whether the aggregate policy learns from an image."""
        return int.from_bytes(digest(reference.id, "control", size=4), "big") / 2**32 < self.teach


def compare(plan: Plan, rig: Rig | Replay) -> tuple[pl.DataFrame, list[str]]:
    """Try every policy on every evaluated image under every light; return one row per policy and light,
    and notes.
    """
    evaluated = [reference for reference in plan.held if not plan.teaches(reference)]
    teaching = [reference for reference in plan.held if plan.teaches(reference)]
    if not evaluated or ("aggregate" in plan.names and not teaching):
        raise SoritesError(
            f"{len(plan.held)} images are too few to teach and evaluate; increase {option('limit', 'N')}"
        )
    rows, notes = (
        [],
        [f"{len(evaluated)} images are evaluated, {len(teaching)} others teach the aggregate policy"],
    )
    for light in plan.lights:
        by_name = _policies(plan, rig, light, teaching, notes)
        for reference in evaluated:
            shoot = rig.at(reference, light)
            for name, policy in by_name.items():
                outcome: Outcome = policy(shoot, plan.settings)
                rows.append(
                    {
                        "policy": name,
                        "light": light,
                        "sample": reference.id,
                        "right": outcome.answer.right,
                        "shots": outcome.shots,
                    }
                )
    return summary(pl.DataFrame(rows)), notes


def _policies(
    plan: Plan, rig: Rig | Replay, light: str, teaching: Sequence[Reference], notes: list[str]
) -> dict[str, Policy]:
    by_name: dict[str, Policy] = {}
    for name in plan.names:
        if name == "fixed":
            by_name[name] = policies.fixed(plan.setting)
        elif name == "aggregate":
            answers = {
                key_of(params): [rig.at(reference, light)(params) for reference in teaching]
                for params in plan.settings
            }
            best = policies.best_of(answers, plan.settings)
            shots = len(teaching) * len(plan.settings)
            notes.append(
                f"lamp {light}: best for {len(teaching)} images is {format_setting(best)} ({shots} shots)"
            )
            by_name[name] = policies.fixed(best)
        else:
            by_name[name] = policies.PLAIN[name]
    return by_name


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Return accuracy with its interval, n, shots per image and the gain over automatic exposure, per policy
    and light.

    The gain of automatic exposure itself is null.
    """
    base = rows.filter(pl.col("policy") == "auto").select("light", "sample", base="right")
    joined = rows.join(base, on=["light", "sample"], how="left")
    gain = pl.col("right").cast(pl.Float64) - pl.col("base").cast(pl.Float64)
    table = joined.group_by("light", "policy", maintain_order=True).agg(
        accuracy=pl.col("right").mean(),
        n=pl.len(),
        shots=pl.col("shots").mean(),
        gain=gain.mean(),
        apart=gain.abs().mean(),
    )
    table = table.with_columns(**wilson_interval(pl.col("accuracy"), pl.col("n")))
    bounds = paired_interval(pl.col("gain"), pl.col("apart"), pl.col("apart"), pl.col("n"))
    table = table.with_columns(gain_low=bounds["low"], gain_high=bounds["high"])
    gains = [
        pl.when(pl.col("policy") != "auto").then(pl.col(name)).alias(name)
        for name in ("gain", "gain_low", "gain_high")
    ]
    table = table.with_columns(gains)
    return table.select(
        "light", "policy", "accuracy", "low", "high", "n", "shots", "gain", "gain_low", "gain_high"
    )


class Answered(Entry):
    """The model's answer for one photograph, in the log."""

    event: Literal["answer"] = "answer"
    sample: str
    light: str
    setting: str
    right: bool
    confidence: float
    ood: float | None = None


REMOVE_ANSWER = "Delete this line and repeat the command; the image is judged again."


def load_answers(out: Path) -> dict[tuple[str, str, str], Answer]:
    """Return the answers in a folder's log.

    Raises:
        Damaged: A line is damaged.
    """
    return {
        (entry.sample, entry.light, entry.setting): Answer(entry.right, entry.confidence, entry.ood)
        for entry in read_entries(out / NAME, TypeAdapter(Answered), REMOVE_ANSWER)
    }


# Running a comparison


FACTS = "control.json"


@dataclass(frozen=True)
class ControlOptions:
    """Arguments of a comparison of policies."""

    job: Job
    model: str
    names: Sequence[str] = field(default_factory=tuple)
    scorer: str = "energy"
    setting: str | None = None


def control(
    arguments: ControlOptions, say: Callable[[str], None], bar: Bar | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Compare policies with real or virtual devices.

    Args:
        arguments: The arguments.
        say: Receives messages for the operator.
        bar: Progress display.

    Returns:
        One row per policy and light, and notes.

    Raises:
        SoritesError: The folder was started with another model or scorer.
    """
    job, names = arguments.job, checked_names(arguments.names)
    check_specs(job.wanted)
    check_mixture(job.wanted)
    folder, references = job.folder(), job.held()
    plan = _plan(references, folder.grid, names, arguments.setting)
    with locked(job.out, "control", LOCK):
        _check_same(job.out, {"model": arguments.model, "scorer": arguments.scorer, "side": job.side})
        judge_ = judge(
            arguments.model, arguments.scorer, tuple(sorted({reference.folder for reference in references}))
        )
        devices = open_devices(job.wanted, stage_of(references), port=job.port)
        log = Log(job.out / NAME)
        try:
            if devices.virtual is None or devices.virtual.tv is None:
                say(f"open this link full screen on the screen: {devices.screen.url}")
                devices.screen.show("start", None, wait=job.options.patience_s)
            for deviation in devices.camera.prepare(job.options.fixed):
                say(f"camera: {deviation}")
            tick = bar("photographs", plan.max_shots) if bar else lambda n: None
            rig = Rig(
                devices.screen,
                devices.lamps,
                devices.camera,
                stage_of(references),
                judge_,
                log,
                load_answers(job.out),
                tick,
                say,
                job.options.patience_s,
            )
            table, notes = compare(plan, rig)
        finally:
            log.close()
            devices.close()
        write_bytes(table.write_csv().encode(), job.out / "control.csv")
        return table, notes


def replay(
    arguments: ControlOptions, captured: Path, bar: Bar | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Compare policies on the photographs of a finished capture."""
    folder = open_folder(captured)
    references = [
        Reference(name, name.partition("/")[0], name.partition("/")[2], FileRef(path))
        for name, path in images_of(folder)
    ]
    plan = _plan(references, folder.grid, checked_names(arguments.names), arguments.setting)
    judge_ = judge(
        arguments.model, arguments.scorer, tuple(sorted({reference.folder for reference in references}))
    )
    tick = bar("answers", plan.max_shots) if bar else lambda n: None
    table, notes = compare(plan, Replay(folder, judge_, tick=tick))
    write_bytes(table.write_csv().encode(), arguments.job.out / "control.csv")
    return table, notes


def _plan(references: Sequence[Reference], grid: Grid, names: tuple[str, ...], setting: str | None) -> Plan:
    """Return a plan; the fixed setting is the middle exposure of the grid by default."""
    by_light = by_exposure([{**params, "mode": "manual"} for params in grid.manual])
    if not by_light:
        raise SoritesError(
            f"policies choose among manual settings, and this grid has none: use another"
            f" {option('grid', None)}"
        )
    fixed = _setting(setting) if setting else by_light[len(by_light) // 2]
    return Plan(references, grid, names, fixed, grid.lights)


def _check_same(out: Path, facts: dict[str, object]) -> None:
    file = out / FACTS
    if file.exists() and read_sealed(file, RESTORE) != facts:
        raise SoritesError(
            f"{out} contains a comparison with another model, scorer or size ({file}); choose another"
            f" {option('out', 'DIR')}"
        )
    write_sealed(facts, file)


def _setting(text: str) -> Params:
    """Parse a setting ``ISO,SHUTTER,APERTURE``."""
    parts = text.split(",")
    if len(parts) != 3:
        raise SoritesError(f"setting: expected ISO,SHUTTER,APERTURE such as 250,1/60,f5.0, got {text!r}")
    values = {
        key: check_value(key, part, "setting")
        for key, part in zip(("iso", "shutter", "aperture"), parts, strict=True)
    }
    return {**values, "mode": "manual"}
