"""Dials that samples have themselves: which are taken, what images they give, what is refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.evaluation import fading as world
from tests.evaluation.fading import CLASSES, LEVELS, fading, model, suite

from sorites import core
from sorites.core import (
    Generated,
    ImageF32,
    ImageU8,
    Model,
    Outputs,
    OwnDial,
    Sample,
    Source,
    to_float,
    to_uint8,
)
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.core.table import read
from sorites.evaluation import plan as plans
from sorites.evaluation.images import shifted_shots
from sorites.evaluation.integrity.check import check
from sorites.evaluation.resume import redo_changed
from sorites.evaluation.run import run
from sorites.suites.suite import Frame, parse

pytestmark = pytest.mark.usefixtures("fading_source")
FRAME = {"resize": 32, "crop": 32}


def test_a_suite_without_shifts_takes_every_dial_at_its_levels() -> None:
    plan = plans.make(suite())
    assert {name: len(group) for name, group in plan.groups.items()} == {"clean": 40, "fade": 40, "drift": 20}
    assert plan.settings == {"fade": LEVELS, "drift": (1.0,)}
    assert (plan.shifts["fade"].unit, plan.family("fade"), plan.shifts["fade"].setting(1.0).level) == (
        "light",
        "generated",
        2,
    )
    assert plan.images() == 40 + 40 * 4 + 20


def test_a_suite_names_some_of_them_beside_shifts_that_are_made() -> None:
    plan = plans.make(
        suite(shifts=[{"name": "fade", "severities": [0.3, 2.6]}, {"name": "drift", "levels": [1]}, "jpeg"])
    )
    assert plan.settings["fade"] == (0.3, 2.6)
    assert len(plan.groups["drift"]) == 20
    assert len(plan.groups["jpeg"]) == 40
    assert list(plan.own) == ["fade", "drift"]


def test_the_sample_s_dial_wins_over_a_registered_shift_of_its_name() -> None:
    def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
        return (np.full((8, 8, 3), 0.5, np.float32) for _ in severities)

    own = Sample(
        "a",
        Generated(lambda: np.zeros((8, 8, 3), np.uint8)),
        0,
        dials=(OwnDial("jpeg", (1.0,), sweep, version=7),),
    )
    plan = plans.make(
        suite(shifts=["jpeg"]), Source("mine", [own, dataclasses.replace(own, id="b", dials=())])
    )
    assert [sample.id for sample in plan.groups["jpeg"]] == ["a"]
    assert (plan.shifts["jpeg"].version, plan.settings["jpeg"]) == (7, (1.0,))
    (shot,) = shifted_shots(plan, own, "jpeg", plan.settings["jpeg"])
    assert shot.image is not None
    assert (shot.image == 128).all()


@pytest.mark.parametrize("frame", [None, FRAME])
def test_a_frame_is_laid_on_its_images_as_on_a_file_and_once(frame: dict[str, int] | None) -> None:
    plan = plans.make(suite(frame=frame))
    sample = plan.groups["fade"][3]
    number = int(sample.id[-2:])
    lay = (lambda image: image) if frame is None else Frame(**frame)
    found = [shot.image for shot in shifted_shots(plan, sample, "fade", [0.0, 0.5, 0.0, 2.0])]
    assert np.array_equal(found[0], plan.framed(sample.id))  # type: ignore[arg-type]
    for image, severity in zip(found, [0.0, 0.5, 0.0, 2.0], strict=True):
        assert np.array_equal(image, lay(to_uint8(world.drawn(number, severity))))  # type: ignore[arg-type]


def test_the_version_is_in_the_id_of_every_image_but_the_clean_one() -> None:
    one, two = plans.make(suite()), plans.make(suite(source="fading:40,2"))
    ids = [
        [
            plan.image_id(plan.groups["fade"][0], shift, plan.shifts["fade"].setting(at))
            for shift, at in (("clean", 0.0), ("fade", 1.0))
        ]
        for plan in (one, two)
    ]
    assert ids[0][0] == ids[1][0]
    assert ids[0][1] != ids[1][1]


def test_what_the_numbers_follow_from_holds_version_levels_and_unit(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(suite(), models=[model()], out=folder)
    check(str(folder))
    with pytest.raises(SoritesError, match="contains another run"):
        run(suite(source="fading:40,2"), models=[model()], out=folder)

    changed: dict[str, Any] = {}

    def other(argument: str | None, space: object) -> Iterator[Sample]:
        for sample in fading("40", labels(CLASSES)):
            yield dataclasses.replace(
                sample, dials=tuple(dataclasses.replace(d, **changed) for d in sample.dials)
            )

    core.SOURCES._objects["fading"] = other
    for key, value in {"version": "b", "levels": (1.0, 3.0), "unit": "lux"}.items():
        changed.clear()
        changed[key] = value
        with pytest.raises(SoritesError, match=rf"contains another run \(dials\.drift\.{key}"):
            run(suite(), models=[model()], out=folder)


def test_runs_without_such_dials_are_known_by_what_they_were() -> None:
    from sorites.evaluation.storage.record import describe

    assert "dials" not in describe(plans.make(suite(shifts=["jpeg"]))).as_json()


def _image(image: object) -> OwnDial:
    return OwnDial("fade", LEVELS, lambda severities: iter([image] * (len(severities) - 1)))  # type: ignore[arg-type,list-item]


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (
            np.zeros((8, 8, 3), np.uint8),
            r"got uint8 \(8, 8, 3\)",
        ),
        (np.zeros((8, 8), np.float32), r"got float32 \(8, 8\)"),
        (np.full((8, 8, 3), np.nan, np.float32), "not finite at 0.5"),
        ("text", "got str"),
        (np.zeros((8, 8, 3), np.float32), "expected an image at 2.0, .* got none"),
    ],
)
def test_what_is_no_image_is_an_error_of_its_rows(image: object, said: str) -> None:
    sample = Sample("a", Generated(lambda: np.zeros((8, 8, 3), np.uint8)), 0, dials=(_image(image),))
    plan = plans.make(suite(), Source("mine", [sample]))
    shots = list(shifted_shots(plan, sample, "fade", LEVELS))
    assert len(shots) == len(LEVELS)
    assert re.search(said, str(shots[-1].error))


def test_ground_truth_boxes_are_refused() -> None:
    sample = dataclasses.replace(
        next(fading("1", labels(CLASSES))), ground_truth=(core.Box((1, 1, 9, 9), 0),)
    )
    (shot,) = shifted_shots(plans.make(suite(), Source("mine", [sample])), sample, "fade", [1.0])
    assert "ground-truth boxes would be wrong" in str(shot.error)


def _no(severities: Sequence[float]) -> Iterator[ImageF32]:
    raise AssertionError


def test_wrong_dials_are_refused_before_any_work() -> None:
    for levels in ((), (0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (float("inf"),), (float("nan"),)):
        with pytest.raises(SoritesError, match="above 0 and increasing"):
            OwnDial("fade", levels, _no)
    with pytest.raises(SoritesError, match="cannot be named"):
        OwnDial("clean", (1.0,), _no)
    first = next(fading("1", labels(CLASSES)))
    with pytest.raises(SoritesError, match="dials have the same name"):
        dataclasses.replace(first, dials=first.dials * 2)
    with pytest.raises(SoritesError, match="needs a clean image"):
        dataclasses.replace(first, shift="snow")
    other = dataclasses.replace(first, id="b", dials=(OwnDial("fade", LEVELS, _no, "light", version=2),))
    with pytest.raises(SoritesError, match="all samples: its version is 1"):
        plans.make(suite(), Source("mine", sorted([first, other], key=lambda s: s.id)))
    captured = dataclasses.replace(first, dials=(), shift="fade", setting=core.Setting(1.0))
    with pytest.raises(SoritesError, match="fade twice"):
        plans.make(suite(), Source("mine", [first, captured]))
    with pytest.raises(SoritesError, match="no options, got padding"):
        plans.make(suite(shifts=[{"name": "fade", "options": {"padding": 1}}]), Source("mine", [first]))
    with pytest.raises(SoritesError, match="'fad'.*mean fade.*drift"):
        plans.make(suite(shifts=["fad"]), Source("mine", [first]))
    with pytest.raises(SoritesError, match="fade has levels 1 to 4, got 5"):
        plans.make(suite(shifts=[{"name": "fade", "levels": [5]}]), Source("mine", [first]))


def test_the_clean_image_is_the_one_at_severity_0() -> None:
    for sample in fading("8", labels(CLASSES)):
        (image,) = sample.dials[0].sweep([0.0])
        assert np.array_equal(sample.load(), to_uint8(image))
        assert to_float(sample.load()).shape == image.shape


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "OwnDial" in block]
    try:
        exec(code, {})
        asked = parse({"name": "bars", "source": "bars", "labels": list("abcde"), "refine": 0.1}, "test")
        widths = Model("wide", lambda images: Outputs(_widths(images)), labels=tuple("abcde"), version="1")
        run(asked, models=[widths], out=tmp_path / "run")
    finally:
        del core.SOURCES._objects["bars"]
    table = read(tmp_path / "run").collect()
    assert table["error"].null_count() == table.height
    assert table.filter(pl.col("shift") == "clean")["correct"].to_list() == [True] * 5
    assert set(table.filter(pl.col("shift") == "swing", ~pl.col("probe"))["severity"]) == {10, 30, 90}
    assert table["probe"].any()


def _widths(images: Sequence[ImageU8]) -> np.ndarray:
    """Return how near the bright part of the middle row is to the width of each bar."""
    bright = np.array([(image[32, :, 0] > 128).sum() for image in images])
    wide = np.array([np.sum(np.abs(np.linspace(-1, 1, 64)) < 0.05 * n) for n in range(1, 6)])
    return -np.abs(bright[:, None] - wide).astype(np.float32)


def test_probes_start_from_the_clean_units_that_hold_their_samples(tmp_path: Path) -> None:
    plan = plans.make(suite(source="fading:80"))
    for unit in plan.probes():
        held = plan.clean_units(unit)
        ids = {sample.id for one in held for sample in plan.groups["clean"][one.start : one.stop]}
        own = {sample.id for sample in plan.groups[unit.shift][unit.start : unit.stop]}
        assert own <= ids
        assert len(held) == 1 or unit.shift == "drift"
    run(suite(source="fading:80", refine=0.1), models=[model()], out=tmp_path / "run")
    one = plan.groups["drift"][20]  # in the second unit of drift, in a later one of the clean images
    plan = dataclasses.replace(plan, models={"bright": model()})
    redo_changed(tmp_path / "run", plan, [one])
    gone = {
        path.name.split("--")[0] for path in (tmp_path / "run" / "replaced" / "predictions").glob("*.parquet")
    }
    place = next(i for i, sample in enumerate(plan.groups["clean"]) if sample.id == one.id) // 16 * 16
    assert {
        f"clean-{place:07d}",
        f"fade-{place:07d}",
        f"fade-{place:07d}-probe",
        "drift-0000016",
        "drift-0000016-probe",
    } <= gone
    after = [unit.key for unit in plan.probes() for clean in plan.clean_units(unit) if clean.start == place]
    assert set(after) <= gone
