"""Images of a run that flipped: which are chosen, what is kept of them, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.training.networks import small

import sorites
from sorites import core
from sorites.core import Box, Generated, Model, Outputs, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.table import write_shard
from sorites.evaluation.integrity.check import check
from sorites.evaluation.run import Run
from sorites.evaluation.storage.explanations import (
    KINDS,
    LIST,
    ROOM,
    Change,
    Kind,
    image_file,
    image_files,
    read_changes,
    read_image,
)
from sorites.io.digests import stem_of
from sorites.suites.suite import Suite, parse
from sorites.training.explain import explain, grad_cam
from sorites.training.explain.flips import changes

pytest.importorskip("torch")

SEEDS = {"one": 0, "other": 3}


@pytest.fixture(autouse=True)
def _networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small networks under the names ``one`` and ``other``."""
    monkeypatch.setattr(core, "model", lambda spec: small(spec, SEEDS[spec]))


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A run of both networks, in a folder that is copied for each test."""
    out = tmp_path_factory.mktemp("explain") / "run"
    models = [small(name, seed) for name, seed in SEEDS.items()]
    sorites.run(
        Suite(name="s"), source=f"folder:{photos}", models=models, shifts=["contrast", "jpeg"], out=out
    )
    return out


@pytest.fixture
def run(held: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(held, tmp_path / "run"))


def stored(run: Path, file: str, kind: Kind) -> Path:
    """The image of a side, which exists."""
    path = image_file(run, file, kind)
    assert path is not None
    return path


def verdict(run: Path, change: Change) -> list[tuple[bool, int]]:
    """What the table says of both sides."""
    rows = sorites.read(run).collect()
    found = []
    for side in change.sides:
        row = rows.filter(pl.col("image_id") == side.image_id, pl.col("model") == side.model).row(
            0, named=True
        )
        found.append((row["correct"], row["pred"]))
    return found


def test_two_models_differ_on_the_same_image(run: Path) -> None:
    found = explain(run, ["one", "other"], limit=6)
    assert 2 <= len(found) <= 6
    for change in found:
        one, other = change.sides
        assert (one.model, other.model, one.image_id) == ("one", "other", other.image_id)
        assert verdict(run, change) == [(one.correct, one.pred), (other.correct, other.pred)]
        assert one.correct != other.correct
        assert (one.target, other.target) == (one.pred, other.pred)
    assert len({change.sample_id for change in found}) == len(found), "one change per image"
    assert {change.sides[1].correct for change in found} == {True, False}, "both directions take turns"
    assert read_changes(run) == found


def test_one_model_differs_between_clean_and_the_least_severity(run: Path) -> None:
    found = explain(run, ["other"], shifts=["contrast"], limit=None)
    rows = sorites.read(run).collect().filter(pl.col("model") == "other", pl.col("shift") == "contrast")
    assert found
    for change in found:
        clean, moved = change.sides
        assert (clean.shift, clean.severity, moved.shift) == ("clean", 0.0, "contrast")
        assert clean.correct != moved.correct
        changed = rows.filter(pl.col("sample_id") == change.sample_id, pl.col("correct") == moved.correct)
        assert moved.severity == changed["severity"].min()


def test_what_is_drawn_is_the_image_that_the_model_saw(run: Path) -> None:
    side = explain(run, ["one", "other"], limit=1)[0].sides[0]
    seen, cam, guided = (read_image(stored(run, side.file, kind)) for kind in KINDS)
    assert seen.shape == cam.shape == guided.shape == (32, 32, 3)
    model = small("one", SEEDS["one"])
    again = sorites.read(run).filter(pl.col("image_id") == side.image_id, pl.col("model") == "one").collect()
    given = model([seen], framed=True).logits
    assert given is not None
    assert (
        abs(float(np.exp(given - given.max()).max() / np.exp(given - given.max()).sum()) - again["conf"][0])
        < 0.1
    )
    where = grad_cam(model, [seen], framed=True)[0]
    hot = cam[..., 0].astype(int) - cam[..., 2]
    if not side.empty:
        y, x = np.unravel_index(where.argmax(), where.shape)
        step = 32 // where.shape[0]
        assert hot[y * step : (y + 1) * step, x * step : (x + 1) * step].mean() > hot.mean()


def test_what_is_there_is_not_made_twice_and_what_changed_is(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sorites.training.explain import run as module

    made: list[str] = []
    draw = module.explained
    monkeypatch.setattr(
        module, "explained", lambda model, *a, **k: made.append(model.name) or draw(model, *a, **k)
    )
    first = explain(run, ["one", "other"], limit=2)
    assert made == ["one", "other"] * 2
    explain(run, ["one", "other"], limit=3)
    assert len(made) == 6, "only the third is new"
    stored(run, first[0].sides[0].file, "cam").unlink()
    explain(run, ["one", "other"], limit=2)
    assert len(made) == 8, "a change that lacks an image is made again"
    explain(run, ["other"], limit=2)
    assert len(read_changes(run)) == 5, "explanations of other calls stay"
    explain(run, ["one", "other"], limit=3, target="ground_truth")
    listed = read_changes(run)
    assert len(listed) == 5, "another class takes the place of the first"
    assert all(
        side.target == change.label
        for change in listed
        if change.between == "models"
        for side in change.sides
    )
    assert set(image_files(run)) == {
        f"{side.file}-{kind}" for change in listed for side in change.sides for kind in KINDS
    }


def test_a_stop_leaves_what_is_whole(run: Path) -> None:
    class SettingValue(Exception):
        pass

    ticks: list[int] = []

    def tick(n: int) -> None:
        ticks.append(n)
        if len(ticks) > 2:  # both sides of the first are done
            raise SettingValue

    with pytest.raises(SettingValue):
        explain(run, ["one", "other"], limit=3, bar=lambda what, steps: tick)
    assert len(read_changes(run)) == 1
    assert len(explain(run, ["one", "other"], limit=3)) == 3
    assert "complete" in check(str(run))


def test_a_changed_answer_is_no_longer_explained(run: Path) -> None:
    found = explain(run, ["one", "other"], limit=2)
    shard = next(
        path for path in (run / "predictions").glob("*.parquet") if _holds(path, found[0].sides[0].image_id)
    )
    rows = pl.read_parquet(shard)
    here = (pl.col("image_id") == found[0].sides[0].image_id) & (pl.col("model") == "one")
    changed = rows.with_columns(conf=pl.when(here).then(pl.lit(0.123, pl.Float32)).otherwise("conf"))
    shard.unlink()
    write_shard(changed, run, stem_of(shard.name) or "")
    explain(run, ["other"], limit=1)
    assert found[0] not in read_changes(run)
    assert found[1] in read_changes(run)


def _holds(path: Path, image_id: str) -> bool:
    return image_id in pl.read_parquet(path)["image_id"]


def test_damage_is_named_and_set_aside(run: Path) -> None:
    side = explain(run, ["one", "other"], limit=1)[0].sides[0]
    path = stored(run, side.file, "cam")
    path.write_bytes(b"RIFF")
    (run / ROOM / LIST).write_text('{"changes": [{}]}')
    for damaged in (path.name, LIST):
        with pytest.raises(SoritesError, match=f"{damaged} cannot be read"):
            check(str(run))
    with pytest.raises(SoritesError, match=f"{LIST} cannot be read"):
        explain(run, ["one", "other"], limit=1)
    check(str(run), repair=True)
    assert len(explain(run, ["one", "other"], limit=1)) == 1


def test_the_table_of_a_run_can_be_explained_with_its_objects(photos: Path, tmp_path: Path) -> None:
    networks = {"first": small("a", 0), "second": small("b", 3)}
    table = sorites.run(
        Suite(name="s"), source=f"folder:{photos}", models=networks, shifts=["contrast"], out=tmp_path / "run"
    )
    assert sorites.explain(table, limit=2)[0].sides[1].model == "second"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("models", "options", "said"),
    [
        (["ones"], {}, "no model of this run named 'ones'. Did you mean one"),
        (["one"], {"shifts": ["jpg"]}, "no shift of this run named 'jpg'. Did you mean jpeg"),
        (["one"], {"target": "label"}, "got 'label'"),
        (["one"], {"limit": 0}, "limit"),
        (
            ["one"],
            {"layer": "0.9"},
            "no layer of one with maps named '0.9'.* The last of its 5 are 0.0, 0.1, 0.2, 0.3, 0",
        ),
        (["one"], {"layer": {"two": "0"}}, "no model to explain named 'two'"),
    ],
)
def test_what_cannot_be_explained_is_said(run: Path, models: list[str], options: dict, said: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(SoritesError, match=said):
        explain(run, models, **options)
    assert read_changes(run) == ()


def test_other_weights_and_models_without_gradients_are_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "model", lambda spec: small(spec, 7))
    with pytest.raises(SoritesError, match="weights of one"):
        explain(run, ["one"])


def test_nothing_changes_sides_in_an_empty_table(run: Path) -> None:
    rows = sorites.read(run).collect()
    assert changes(rows.filter(pl.col("correct")), ["one", "other"]) == []
    assert changes(rows.with_columns(error=pl.lit("no")), ["one"]) == []


# Models without gradients.


def bright_half(images: list[Any]) -> Outputs:
    """Class 1 if the left half is brighter than the right one."""
    halves = [np.asarray(image, float).mean(axis=(0, 2)) for image in images]
    differences = [(half[: len(half) // 2].mean() - half[len(half) // 2 :].mean()) / 20 for half in halves]
    return Outputs(logits=np.array([[-d, d] for d in differences], np.float32))


def bright_box(images: list[Any]) -> Outputs:
    """One box around what is brighter than 140, as sure as it is bright."""
    found = []
    for image in images:
        rows, columns = np.nonzero(np.asarray(image).mean(2) > 140)
        x0, y0, x1, y1 = (
            (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if len(rows) else (0, 0, 1, 1)
        )
        sure = float(np.asarray(image)[10:40, 20:50].mean()) / 255
        found.append([Box((float(x0), float(y0), float(x1), float(y1)), 1, sure)])
    return Outputs(boxes=found)


def drawn(number: int) -> Any:
    image = np.full((60, 80, 3), 20, np.uint8)
    image[10:40, 5 : 35 + number] = 200
    return image


def plain_run(model: Model, out: Path) -> Run:
    boxes = model.output == "boxes"
    truth = [(Box((5.0, 10.0, 35.0 + number, 40.0), 1),) for number in range(3)]
    samples = [
        Sample(f"{i}", Generated(drawn, (i,), version=1), label=1, ground_truth=truth[i] if boxes else None)
        for i in range(3)
    ]
    dial = {"name": "exposure_stops_down"} if boxes else {"name": "translation", "severities": [0.4, 0.6]}
    suite = parse({"name": "plain", "shifts": [dial]}, "test")
    return sorites.run(suite, source=Source("made", samples), models=[model], labels=["a", "b"], out=out)


def test_a_classifier_without_gradients_is_explained_by_masks(tmp_path: Path) -> None:
    run = plain_run(Model("half", bright_half, labels=("a", "b"), version="1"), tmp_path / "run")
    found = explain(run, masks=40, limit=1)
    assert [side.method for change in found for side in change.sides] == ["rise", "rise"]
    side = found[0].sides[0]
    assert (side.masks, side.layer) == (40, "")
    assert side.score == pytest.approx(side.conf, abs=1e-6)
    assert side.deletion is not None
    assert set(image_files(run.folder)) == {
        f"{s.file}-{kind}" for s in found[0].sides for kind in ("seen", "cam")
    }
    stored = {path: path.stat().st_mtime_ns for path in image_files(run.folder).values()}
    assert explain(run, masks=40, limit=1) == found
    assert {path: path.stat().st_mtime_ns for path in image_files(run.folder).values()} == stored
    again = explain(run, masks=60, limit=1)
    assert again[0].sides[0].file != side.file
    squares = explain(run, method="occlusion", limit=1)
    assert squares[0].sides[0].masks == 225
    assert read_changes(run.folder) == squares
    for wrong in ({"method": "gradcam"}, {"method": "rise", "layer": "x"}, {"method": "lime"}, {"masks": 1}):
        with pytest.raises(SoritesError):
            explain(run, limit=1, **wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_objects_that_a_detector_loses_are_explained(tmp_path: Path) -> None:
    model = Model("finder", bright_box, labels=("a", "b"), output="boxes", version="1")
    run = plain_run(model, tmp_path / "run")
    found = explain(run, masks=60, limit=2, conf=0.2)
    assert len(found) == 2
    before, after = found[0].sides
    assert (before.correct, after.correct) == (True, False)
    assert before.box is not None
    assert before.box[:2] == (5.0, 10.0)
    assert before.score is not None
    assert after.score is not None
    assert before.score > after.score
    assert explain(run, masks=60, limit=2, conf=0.2) == found
    page = sorites.report(run, tmp_path / "page.html").read_text()
    assert "b missed" in page
    assert "RISE" in page
    with pytest.raises(SoritesError):
        explain(run, method="gradcam")
