"""Policies on answers that follow a known law: the surest setting is found, shots are counted,
gains are those by hand.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from PIL import Image as Pillow

from sorites.apps.studio import control as controlling
from sorites.apps.studio import policies
from sorites.apps.studio.cameras import Photo
from sorites.apps.studio.control import Rig, summary
from sorites.apps.studio.lamps import NoLamps
from sorites.apps.studio.policies import Answer, by_exposure, key_of
from sorites.apps.studio.references import Reference
from sorites.apps.studio.screen.server import ScreenError, Shown
from sorites.core import FileRef
from sorites.core.camera_grid import Params, published_grid
from sorites.core.errors import SoritesError
from sorites.io.logs import Log

GRID = [{**params, "mode": "manual"} for params in published_grid("test").manual]


def world(best: int) -> tuple[Callable[[Params], Answer], list[Params]]:
    """A model that is surer the nearer a shot's exposure is to one place of the line, and right
    within two of it.
    """
    line, shot = by_exposure(GRID), list[Params]()

    def shoot(params: Params) -> Answer:
        shot.append(params)
        if params["mode"] == "auto":
            return Answer(False, 0.3, 5.0)
        amount = params["iso"] * params["shutter"] / params["aperture"] ** 2
        place = min(
            range(len(line)),
            key=lambda i: abs(line[i]["iso"] * line[i]["shutter"] / line[i]["aperture"] ** 2 - amount),
        )
        return Answer(abs(place - best) <= 2, 1 / (1 + abs(place - best)), abs(place - best))

    return shoot, shot


def test_exposures_rise() -> None:
    amounts = [p["iso"] * p["shutter"] / p["aperture"] ** 2 for p in by_exposure(GRID)]
    assert amounts == sorted(amounts)
    assert len({round(a, 6) for a in amounts}) == len(amounts)


@pytest.mark.parametrize("best", range(0, len(by_exposure(GRID)), 3))
def test_bisection_comes_near_the_best_with_few_shots(best: int) -> None:
    shoot, shot = world(best)
    outcome = policies.bisect(shoot, GRID)
    assert outcome.shots == len({key_of(p) for p in shot}) == len(shot) <= 9
    assert outcome.answer.confidence >= 1 / 4


def test_sample_wise_policies_take_the_whole_grid_and_the_surest_or_least_ood() -> None:
    for policy in (policies.confidence, policies.scorer, policies.oracle):
        shoot, shot = world(10)
        outcome = policy(shoot, GRID)
        assert (outcome.answer.confidence, outcome.shots) == (1.0, 27)
        assert len(shot) == 27
    shoot, shot = world(3)
    assert policies.auto(shoot, GRID).shots == 1
    assert shot == [{"mode": "auto", "shot": 1}]


def test_the_aggregate_setting_is_the_one_with_most_right() -> None:
    answers = {key_of(params): [Answer(False, 0.5)] * 2 for params in GRID}
    answers[key_of(GRID[7])] = [Answer(True, 0.2), Answer(False, 0.2)]
    assert policies.best_of(answers, GRID) == GRID[7]
    assert policies.fixed(GRID[7])(lambda params: Answer(params == GRID[7], 1.0), GRID).answer.right


def test_the_summary_is_arithmetic() -> None:
    rows = [
        {"policy": name, "light": "on", "sample": str(i), "right": right[i], "shots": shots}
        for name, right, shots in (
            ("auto", (True, False, False, False), 1),
            ("bisect", (True, True, True, False), 5),
        )
        for i in range(4)
    ]
    table = summary(pl.DataFrame(rows))
    found = table.filter(pl.col("policy") == "bisect").row(0, named=True)
    assert (found["accuracy"], found["n"], found["shots"], found["gain"]) == (0.75, 4, 5.0, 0.5)
    assert found["low"] < 0.75 < found["high"]
    assert table.filter(pl.col("policy") == "auto")["gain_low"].to_list() == [None]
    # Agresti & Min: half a pair is added to each of the four outcomes
    half = 1.96 * ((3 / 6 - (2 / 6) ** 2) / 6) ** 0.5
    assert (found["gain_low"], found["gain_high"]) == pytest.approx((2 / 6 - half, 2 / 6 + half), abs=1e-4)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(SoritesError, match="Did you mean bisect"):
        policies.checked_names(["bisekt"])
    assert policies.checked_names([]) == policies.NAMES


@dataclass
class Window:
    """A screen that confirms what it shows, is closed for a while, and may come back as another page."""

    page: str = "first"
    closed: int = 0
    asked: int = 0

    def _shown(self) -> Shown:
        return Shown(1, (64, 48), 0, 0, 8, 8, page=self.page)

    def show(self, name: str, data: bytes | None) -> Shown:
        return self._shown()

    def confirm(self) -> Shown:
        self.asked += 1
        if self.closed:
            self.closed -= 1
            raise ScreenError("no screen is connected")
        return self._shown()


@dataclass
class Body:
    """A camera that takes what it is asked for; somebody else may act during a photograph."""

    during: list[Callable[[], None]]
    taken: int = 0

    def set(self, params: Params) -> dict[str, float]:
        return {}

    def settle(self) -> None:
        return

    def shoot(self) -> Photo:
        self.taken += 1
        if self.during:
            self.during.pop(0)()
        file = io.BytesIO()
        Pillow.new("RGB", (8, 8), (self.taken, 0, 0)).save(file, "JPEG")
        return Photo(f"{self.taken}.jpg", file.getvalue())


def test_a_photograph_during_which_the_screen_changed_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was closed is awaited; another page is calibrated, and the photograph is taken again."""
    window, calibrated, said = Window(), list[str](), list[str]()

    def closed_and_opened_again() -> None:
        window.closed, window.page = 3, "second"

    def calibrate(camera: Body, screen: Window, stage: object, before: object) -> object:
        calibrated.append(screen.page)
        return SimpleNamespace(matrix=screen.page, shown=screen.show("markers", None))

    monkeypatch.setattr(controlling, "calibrate", calibrate)
    monkeypatch.setattr(controlling, "rectify", lambda image, matrix, shown, size: matrix)
    monkeypatch.setattr(controlling, "PAUSE_S", 0.0)
    camera = Body([lambda: None, closed_and_opened_again])
    Pillow.new("RGB", (8, 8)).save(tmp_path / "p.png")
    image = Reference("a/p.png", "a", "p", FileRef(tmp_path / "p.png"))
    judged: list[object] = []

    def judge(photo: object, label: str) -> Answer:
        judged.append(photo)
        return Answer(True, 0.5)

    with contextlib.closing(Log(tmp_path / "log.jsonl")) as log:
        rig = Rig(window, NoLamps(), camera, (8, 8), judge, log, {}, say=said.append)  # type: ignore[arg-type]
        for params in GRID[:3]:
            rig.at(image, "on")(params)
    assert judged == ["first", "second", "second"]
    assert (calibrated, camera.taken) == (["first", "second"], 4)
    assert said == ["paused: no screen is connected"]
