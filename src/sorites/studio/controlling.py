"""Compare policies as typed: open the devices, try the policies, write the table."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from sorites.errors import SoritesError
from sorites.es_grid import Params
from sorites.files import locked, write_bytes
from sorites.progress import Bar
from sorites.sources._decode import decode
from sorites.studio import log as logs
from sorites.studio.capturing import LOCK, Job
from sorites.studio.control import NAME, Plan, Replay, Rig, compare, judge, remembered
from sorites.studio.devices import open_devices
from sorites.studio.folder import open_folder
from sorites.studio.policies import by_exposure, checked_names
from sorites.studio.references import Reference, stage_of
from sorites.studio.sheets import pictures_of
from sorites.studio.values import checked

FACTS = "control.json"


@dataclass(frozen=True)
class Control:
    """The arguments of a comparison of policies, as typed."""

    job: Job
    model: str
    names: Sequence[str] = field(default_factory=tuple)
    scorer: str = "energy"
    setting: str | None = None


def control(wanted: Control, say: Callable[[str], None], bar: Bar | None = None) -> tuple[pl.DataFrame, list[str]]:
    """Compare policies; a folder that was begun with another model or scorer is refused."""
    job, names = wanted.job, checked_names(wanted.names)
    folder, held = job.folder(), job.held()
    settings = [{**params, "mode": "manual"} for params in folder.grid.manual]
    fixed = _setting(wanted.setting) if wanted.setting else by_exposure(settings)[len(by_exposure(settings)) // 2]
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
            tick = bar("photographs", len(held) * len(plan.lights) * (len(settings) + 1)) if bar else lambda n: None
            rig = Rig(devices.screen, devices.lamps, devices.camera, stage_of(held), asked, log, remembered(job.out), tick)
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
        for name, path in pictures_of(folder)
    ]
    names = checked_names(wanted.names)
    settings = [{**params, "mode": "manual"} for params in folder.grid.manual]
    fixed = _setting(wanted.setting) if wanted.setting else by_exposure(settings)[len(by_exposure(settings)) // 2]
    asked = judge(wanted.model, wanted.scorer, tuple(sorted({reference.folder for reference in held})))
    tick = bar("answers", len(held) * len(folder.grid.lights) * (len(settings) + 1)) if bar else lambda n: None
    plan = Plan(held, folder.grid, names, fixed, folder.grid.lights)
    table, notes = compare(plan, Replay(folder, asked, tick=tick))
    write_bytes(table.write_csv().encode(), wanted.job.out / "control.csv")
    return table, notes


def _same(out: Path, facts: dict[str, object]) -> None:
    file = out / FACTS
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != facts:
        raise SoritesError(f"{out} holds a comparison with another model, scorer or size ({file}); choose another --out DIR")
    write_bytes(json.dumps(facts).encode(), file)


def _setting(text: str) -> Params:
    """Return a setting that was typed as ISO,SHUTTER,APERTURE."""
    parts = text.split(",")
    if len(parts) != 3:
        raise SoritesError(f"--setting wants ISO,SHUTTER,APERTURE, such as 250,1/60,f5.0; got {text!r}")
    values = {key: checked(key, part, "--setting") for key, part in zip(("iso", "shutter", "aperture"), parts, strict=True)}
    return {**values, "mode": "manual"}
