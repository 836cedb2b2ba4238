"""Model-friendly capture: policies choose settings from the model's answers, and are compared by
accuracy and shots spent.

A quarter of the images, by a hash of their ids, teach the aggregate policy its setting; all are
judged on the others. A photograph that two policies want is taken once, and each of them is charged
for it.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites import core
from sorites.apps.studio import folder as logs
from sorites.apps.studio import policies
from sorites.apps.studio.calibration import calibrate, opened
from sorites.apps.studio.cameras import Camera, CameraError, agree, checked, exif_of, in_words
from sorites.apps.studio.capture import LOCK, Job
from sorites.apps.studio.devices import open_devices
from sorites.apps.studio.folder import ENDING, CaptureFolder, open_folder
from sorites.apps.studio.lamps import Lamps, NoLamps
from sorites.apps.studio.markers import straightened
from sorites.apps.studio.policies import Answer, Outcome, Policy, by_exposure, checked_names, key_of
from sorites.apps.studio.references import Reference, stage_of
from sorites.apps.studio.screen.server import Screen, Shown
from sorites.apps.studio.sheets import images_of
from sorites.core import ImageU8, Model
from sorites.core.camera_grid import Grid, Params
from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.io.files import locked, write_bytes
from sorites.metrics import paired_interval, wilson_interval
from sorites.sources.decode import decode

NAME = "control.jsonl"
TRIES = 5
CALIBRATE_EVERY = 20


@dataclass
class Judge:
    """A model with its labels and a scorer that needs no fit."""

    model: Model
    scorer: Any
    labels: tuple[str, ...]

    def __call__(self, image: ImageU8, label: str) -> Answer:
        """Return what the model says of a photograph of a class."""
        outputs = self.model([image])
        if outputs.logits is None:
            raise SoritesError(f"{self.model.name} gives no logits; control needs a classifier")
        logits = outputs.logits[0].astype(np.float64)
        shares = np.exp(logits - logits.max())
        ood = float(self.scorer(outputs)[0])
        return Answer(self.labels[int(logits.argmax())] == label, float(shares.max() / shares.sum()), ood)


def judge(model: str, scorer: str, labels: tuple[str, ...]) -> Judge:
    """Return a judge by names."""
    made = core.model(model)
    known = made.labels or labels
    missing = set(labels) - set(known) if made.labels else set()
    if missing:
        raise SoritesError(f"{model} does not know the class {min(missing)}; name a model of these classes")
    return Judge(made, core.scorer(scorer), tuple(known))


@dataclass
class Rig:
    """Screen, lamps and camera that take one photograph at a time and ask the judge; what was asked
    before is remembered.
    """

    screen: Screen
    lamps: Lamps | NoLamps
    camera: Camera
    stage: tuple[int, int]
    judge: Judge
    log: logs.Log
    known: dict[tuple[str, str, str], Answer]
    tick: Callable[[int], None] = lambda n: None
    _shown: tuple[str, Shown] | None = None
    _matrix: Any = None
    _images: int = 0

    def at(self, reference: Reference, light: str) -> Callable[[Params], Answer]:
        """Return the shooter of an image under a light."""
        return lambda params: self._answer(reference, light, params)

    def _answer(self, reference: Reference, light: str, params: Params) -> Answer:
        key = (reference.id, light, key_of(params))
        if key not in self.known:
            answer = self.judge(self._image(reference, light, params), reference.folder)
            self.log.add("answer", sample=reference.id, light=light, setting=key[2], **asdict(answer))
            self.known[key] = answer
            self.tick(1)
        return self.known[key]

    def _image(self, reference: Reference, light: str, params: Params) -> ImageU8:
        self.lamps.set(light)
        if self._shown is None or self._shown[0] != reference.id:
            if self._images % CALIBRATE_EVERY == 0:
                self._matrix = calibrate(self.camera, self.screen, self.stage, self._matrix).matrix
            self._images += 1
            self._shown = (reference.id, self.screen.show(reference.id, reference.png()))
        high, wide = reference.image().shape[:2]
        for left in reversed(range(TRIES)):
            try:
                self.camera.set(params)
                photo = self.camera.shoot()
                wrong = agree(params, exif_of(photo))
                if not wrong or not exif_of(photo).keys() - {"taken"}:
                    return straightened(opened(photo), self._matrix, self._shown[1], (wide, high))
                raise CameraError("; ".join(wrong))
            except CameraError:
                if left == 0:
                    raise
                time.sleep(0.2)
                self.camera.settle()
        raise AssertionError


@dataclass
class Replay:
    """The photographs of a finished capture in the place of a camera: policies are compared without
    shooting again.
    """

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
                    raise SoritesError(f"{self.folder.root} was not captured at {in_words(params)}")
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
    """The plan of a comparison: images, lights, the grid, policies and the fixed setting."""

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

    def teaches(self, reference: Reference) -> bool:
        """Return whether an image is one that the aggregate policy learns from."""
        return int.from_bytes(digest(reference.id, "control", size=4), "big") / 2**32 < self.teach


def compare(plan: Plan, rig: Rig | Replay) -> tuple[pl.DataFrame, list[str]]:
    """Try every policy on every judged image under every light; return one row per policy and
    light, and notes.
    """
    judged = [reference for reference in plan.held if not plan.teaches(reference)]
    taught = [reference for reference in plan.held if plan.teaches(reference)]
    if not judged or ("aggregate" in plan.names and not taught):
        raise SoritesError(
            f"{len(plan.held)} images are too few to teach and to judge; take more with --limit"
        )
    rows, notes = [], [f"{len(judged)} images are judged, {len(taught)} others teach the aggregate policy"]
    for light in plan.lights:
        made = _policies(plan, rig, light, taught, notes)
        for reference in judged:
            shoot = rig.at(reference, light)
            for name, policy in made.items():
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
    plan: Plan, rig: Rig | Replay, light: str, taught: Sequence[Reference], notes: list[str]
) -> dict[str, Policy]:
    made: dict[str, Policy] = {}
    for name in plan.names:
        if name == "fixed":
            made[name] = policies.fixed(plan.setting)
        elif name == "aggregate":
            answers = {
                key_of(params): [rig.at(reference, light)(params) for reference in taught]
                for params in plan.settings
            }
            best = policies.best_of(answers, plan.settings)
            spent = len(taught) * len(plan.settings)
            notes.append(
                f"lamp {light}: best for {len(taught)} images is {in_words(best)}, found with {spent} shots"
            )
            made[name] = policies.fixed(best)
        else:
            made[name] = policies.PLAIN[name]
    return made


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Return accuracy with its interval, n, shots per image and the gain over automatic exposure,
    per policy and light.

    Automatic exposure has no gain over itself: null.
    """
    base = rows.filter(pl.col("policy") == "auto").select("light", "sample", base="right")
    joined = rows.join(base, on=["light", "sample"], how="left")
    gain = pl.col("right").cast(pl.Float64) - pl.col("base").cast(pl.Float64)
    told = joined.group_by("light", "policy", maintain_order=True).agg(
        accuracy=pl.col("right").mean(),
        n=pl.len(),
        shots=pl.col("shots").mean(),
        gain=gain.mean(),
        apart=gain.abs().mean(),
    )
    told = told.with_columns(**wilson_interval(pl.col("accuracy"), pl.col("n")))
    bounds = paired_interval(pl.col("gain"), pl.col("apart"), pl.col("apart"), pl.col("n"))
    told = told.with_columns(gain_low=bounds["low"], gain_high=bounds["high"])
    gains = [
        pl.when(pl.col("policy") != "auto").then(pl.col(name)).alias(name)
        for name in ("gain", "gain_low", "gain_high")
    ]
    told = told.with_columns(gains)
    return told.select(
        "light", "policy", "accuracy", "low", "high", "n", "shots", "gain", "gain_low", "gain_high"
    )


def remembered(out: Path) -> dict[tuple[str, str, str], Answer]:
    """Return the answers that a folder's log holds."""
    return {
        (line["sample"], line["light"], line["setting"]): Answer(
            line["right"], line["confidence"], line["ood"]
        )
        for line in logs.read(out / NAME)
        if line["event"] == "answer"
    }


# Compare policies as typed: open the devices, try the policies, write the table.


FACTS = "control.json"


@dataclass(frozen=True)
class Control:
    """The arguments of a comparison of policies, as typed."""

    job: Job
    model: str
    names: Sequence[str] = field(default_factory=tuple)
    scorer: str = "energy"
    setting: str | None = None


def control(
    wanted: Control, say: Callable[[str], None], bar: Bar | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Compare policies; a folder that was begun with another model or scorer is refused."""
    job, names = wanted.job, checked_names(wanted.names)
    folder, held = job.folder(), job.held()
    settings = [{**params, "mode": "manual"} for params in folder.grid.manual]
    fixed = (
        _setting(wanted.setting) if wanted.setting else by_exposure(settings)[len(by_exposure(settings)) // 2]
    )
    plan = Plan(held, folder.grid, names, fixed, folder.grid.lights)
    with locked(job.out, "control", LOCK):
        _same(job.out, {"model": wanted.model, "scorer": wanted.scorer, "side": job.side})
        asked = judge(wanted.model, wanted.scorer, tuple(sorted({reference.folder for reference in held})))
        devices = open_devices(job.wanted, stage_of(held), port=job.port)
        log = logs.Log(job.out / NAME)
        try:
            if devices.virtual is None or devices.virtual.tv is None:
                say(f"open this link on the screen, full screen: {devices.screen.url}")
                devices.screen.show("start", None, wait=job.options.patience_s)
            devices.camera.prepare()
            tick = (
                bar("photographs", len(held) * len(plan.lights) * (len(settings) + 1))
                if bar
                else lambda n: None
            )
            rig = Rig(
                devices.screen,
                devices.lamps,
                devices.camera,
                stage_of(held),
                asked,
                log,
                remembered(job.out),
                tick,
            )
            table, notes = compare(plan, rig)
        finally:
            log.close()
            devices.close()
        write_bytes(table.write_csv().encode(), job.out / "control.csv")
        return table, notes


def replayed(wanted: Control, captured: Path, bar: Bar | None = None) -> tuple[pl.DataFrame, list[str]]:
    """Compare policies on the photographs of a finished capture."""
    folder = open_folder(captured)
    held = [
        Reference(name, name.partition("/")[0], name.partition("/")[2], functools.partial(decode, path))
        for name, path in images_of(folder)
    ]
    names = checked_names(wanted.names)
    settings = [{**params, "mode": "manual"} for params in folder.grid.manual]
    fixed = (
        _setting(wanted.setting) if wanted.setting else by_exposure(settings)[len(by_exposure(settings)) // 2]
    )
    asked = judge(wanted.model, wanted.scorer, tuple(sorted({reference.folder for reference in held})))
    tick = (
        bar("answers", len(held) * len(folder.grid.lights) * (len(settings) + 1)) if bar else lambda n: None
    )
    plan = Plan(held, folder.grid, names, fixed, folder.grid.lights)
    table, notes = compare(plan, Replay(folder, asked, tick=tick))
    write_bytes(table.write_csv().encode(), wanted.job.out / "control.csv")
    return table, notes


def _same(out: Path, facts: dict[str, object]) -> None:
    file = out / FACTS
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != facts:
        raise SoritesError(
            f"{out} holds a comparison with another model, scorer or size ({file}); choose another --out DIR"
        )
    write_bytes(json.dumps(facts).encode(), file)


def _setting(text: str) -> Params:
    """Return a setting that was typed as ISO,SHUTTER,APERTURE."""
    parts = text.split(",")
    if len(parts) != 3:
        raise SoritesError(f"--setting wants ISO,SHUTTER,APERTURE, such as 250,1/60,f5.0; got {text!r}")
    values = {
        key: checked(key, part, "--setting")
        for key, part in zip(("iso", "shutter", "aperture"), parts, strict=True)
    }
    return {**values, "mode": "manual"}
