"""Workers of other processes get the samples of their tasks: the source is listed once, by the process that
starts the run, and the table is that of threads.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.conftest import CLASSES

import sorites
from sorites.core.errors import SoritesError
from sorites.core.plugins import SOURCES
from sorites.evaluation import plan, runner, worker
from sorites.evaluation.engines import Engine, GroupedTasks
from sorites.evaluation.outline import Outline, SampleSlices
from sorites.evaluation.pipeline.run import Session
from sorites.evaluation.plan import slice_for
from sorites.evaluation.runner import model_groups
from sorites.evaluation.storage.folder import manifest_of
from sorites.evaluation.storage.record import describe, read_record
from sorites.suites.suite import Suite, parse

CODE = """
import pathlib
from dataclasses import replace
import numpy as np
from sorites.core import Sample, Setting
from sorites.core.plugins import SOURCES
from sorites.core.refs import Generated

def draw(i):
    return np.random.default_rng(i).integers(0, 255, (24, 24, 3), np.uint8)

def fog(i):
    return draw(i) // 2 + 100

def source(argument, labels):
    with open("listed", "a") as file:
        file.write("once\\n")
    start = 100 if argument == "training" else 0
    clean = [Sample(f"{i:03d}", Generated(draw, (i,), 1), i % 4) for i in range(start, start + 40)]
    if argument != "captured":
        return clean
    mist = [replace(one, image=Generated(fog, (i,), 1), shift="mist", setting=Setting(1.0)) for i, one in enumerate(clean)]
    return [*clean, *mist]

if "counted" not in SOURCES.names():
    SOURCES.add("counted", source)

def logits(images):
    rows = np.stack([np.r_[p.mean((0, 1)), p.std((0, 1))] for p in images]).astype(np.float32) / 64
    return rows[:, :4] * 3, rows

def other(images):
    rows, features = logits(images)
    return rows[:, ::-1].copy(), features
"""
MODELS = ["a=python:drawn_here:logits", "b=python:drawn_here:other", "c=python:drawn_here:logits"]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    (tmp_path / "drawn_here.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SOURCES, "_objects", dict(SOURCES._objects))
    monkeypatch.delitem(sys.modules, "drawn_here", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("drawn_here")
    return parse(
        {
            "name": "small",
            "source": "counted",
            "labels": list(CLASSES),
            "models": MODELS,
            "shifts": [{"name": "contrast", "levels": [1, 3, 5]}, {"name": "gaussian_noise", "levels": [2]}],
            "scorers": ["msp", "knn(k=3)"],
            "fit": {"source": "counted:training"},
            "refine": 0.2,
            "frame": {"resize": 20},
        },
        "test",
    )


def copying(sent: list[Any]) -> Engine:
    """An engine that sends everything through pickle, as other processes get it."""

    def start(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        assert isinstance(units, GroupedTasks)
        copy = pickle.loads(pickle.dumps(work))
        for index in range(len(units)):
            sent.append((units.group(index), units[index]))
            yield units[index], copy(pickle.loads(pickle.dumps(units[index])))

    return Engine(start, one_process=False, name="copying")


@pytest.mark.slow
def test_the_producers_of_a_worker_stay_for_its_next_tasks(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = suite.model_copy(update={"fit": None, "scorers": ("msp",), "refine": None})
    wanted = rows(sorites.run(quick, out=tmp_path / "threads"))
    started: list[int] = []
    start = Session._started
    monkeypatch.setattr(Session, "_started", lambda self, job: started.append(1) or start(self, job))
    sent: list[Any] = []
    copies = sorites.run(quick, out=tmp_path / "copies", engine=replace(copying(sent), producers=1))
    assert len(sent) == 9
    assert started == [1]
    assert_frame_equal(rows(copies), wanted)


def rows(run: sorites.Run | Path) -> pl.DataFrame:
    read = run if isinstance(run, Path) else run.folder
    return sorites.read(read).sort("model", "image_id", "output", "scorer", "probe").collect()


@pytest.mark.slow
def test_no_worker_opens_the_run(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = rows(sorites.run(suite, out=tmp_path / "threads"))

    def refuse(folder: Path) -> None:
        raise AssertionError("a worker listed the source or read the manifest")

    monkeypatch.setattr(worker, "_open", refuse)
    listed = (tmp_path / "listed").read_text().count("once")
    sent: list[Any] = []
    copies = sorites.run(suite, out=tmp_path / "copies", engine=copying(sent))
    assert (
        (tmp_path / "listed").read_text().count("once") == 2 * listed == 4
    )  # of the test and training images
    assert_frame_equal(rows(copies), wanted)
    assert len(sent) == 1 + 9 + 6
    assert max(len(pickle.dumps(parcel)) for _, parcel in sent) < 5000


@pytest.mark.slow
def test_real_processes_list_no_source(suite: Suite, tmp_path: Path) -> None:
    quick = suite.model_copy(update={"fit": None, "scorers": ("msp",), "refine": None})
    wanted = rows(sorites.run(quick, out=tmp_path / "threads"))
    before = (tmp_path / "listed").read_text().count("once")
    run = sorites.run(quick, out=tmp_path / "processes", engine="processes", workers=2)
    assert (tmp_path / "listed").read_text().count("once") == before + 1
    assert_frame_equal(rows(run), wanted)


@pytest.mark.slow
def test_groups_of_models_have_tasks_and_shards_of_their_own(suite: Suite, tmp_path: Path) -> None:
    wanted = rows(sorites.run(suite, out=tmp_path / "threads"))
    sent: list[Any] = []
    prepared = runner.prepare(plan.make(suite))
    out = runner.execute(prepared, tmp_path / "two", engine=copying(sent), models_per_worker=2)
    assert {group for group, _ in sent} == {("a", "b"), ("c",)}
    assert len(sent) == 2 * (1 + 9 + 6)
    assert_frame_equal(rows(out), wanted)
    assert len(list((out / "predictions").iterdir())) == 2 * (9 + 6)
    assert read_record(out).groups == (("a", "b"), ("c",))
    again: list[Any] = []
    runner.execute(prepared, out, engine=copying(again), models_per_worker=1)
    assert not again, "rows of another grouping are found"
    assert read_record(out).groups == (("a", "b"), ("c",), ("a",), ("b",))
    next((out / "predictions").glob("contrast-0000016--2-models*")).unlink()
    runner.execute(prepared, out, engine=copying(again), models_per_worker=1)
    assert sorted(group for group, _ in again) == [("a",), ("b",)]
    assert_frame_equal(rows(out), wanted)


def test_slices_grow_with_the_number_of_groups() -> None:
    assert slice_for([10_000_000]) == 256
    for groups in (1, 4, 40):
        size = slice_for([10_000_000], groups)
        files = 2 * groups * -(-10_000_000 // size)  # grid and probes
        assert files <= 100_000


def test_models_are_grouped_by_their_weights(suite: Suite) -> None:
    made = plan.make(suite)
    engine, threads = (Engine(lambda *_: iter(()), one_process=one) for one in (False, True))
    assert model_groups(made, engine, None) == (("a", "b", "c"),)
    large = {name: _with_parameters(model, 600_000_000) for name, model in made.models.items()}
    huge = plan.replace(made, models=large)
    assert model_groups(huge, engine, None) == (("a",), ("b",), ("c",))
    assert model_groups(huge, threads, None) == (("a", "b", "c"),)
    assert model_groups(huge, engine, 2) == (("a", "b"), ("c",))


def _with_parameters(model: Any, count: int) -> Any:
    return plan.replace(model, parameters=count)


def test_a_worker_with_another_model_refuses(suite: Suite) -> None:
    made = plan.make(suite)
    outline = Outline.of(made, describe(made))
    assert set(outline.with_models(["b"]).models) == {"b"}
    record = outline.record.having(models={**outline.record.models, "b": "another"})
    with pytest.raises(SoritesError, match="models or libraries differ"):
        Outline.of(made, record).with_models(["b"])
    assert set(Outline.of(made, record).with_models(["a"]).models) == {"a"}


def test_a_sample_that_changed_since_the_run_started_cannot_be_decoded(photos: Path, tmp_path: Path) -> None:
    import shutil

    from sorites.core.errors import BadImage
    from sorites.evaluation.storage.contents import contents
    from sorites.evaluation.storage.folder import listed_samples

    shutil.copytree(photos, tmp_path / "photos")
    made = plan.make(parse({"name": "s", "source": f"folder:{tmp_path / 'photos'}"}, "test"))
    known = manifest_of(made).hstack(contents(listed_samples(made)))
    held = SampleSlices(made, known).pack("clean", 2, 5)
    assert held is not None
    assert [sample.id for sample in held.samples] == [sample.id for sample in made.groups["clean"][2:5]]
    file = Path(str(held.samples[1].image.path))  # type: ignore[attr-defined]
    file.write_bytes(file.read_bytes() + b"\0")
    first, second, _ = held.guarded()
    assert first.load().ndim == 3
    with pytest.raises(BadImage, match="has changed"):
        second.load()


@pytest.mark.slow
def test_verbs_that_recompute_images_send_samples_too(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = suite.model_copy(update={"fit": None, "scorers": ("msp",), "refine": None})
    folders = [tmp_path / name for name in ("threads", "copies")]
    for folder in folders:
        sorites.run(quick, out=folder)
    wanted = pl.read_parquet(sorites.similarity(folders[0], ["psnr"]))
    built = sorites.build(quick, out=tmp_path / "built")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a worker opened the run or loaded a model")

    monkeypatch.setattr(worker, "_open", refuse)
    listed = (tmp_path / "listed").read_text().count("once")
    sent: list[Any] = []
    found = sorites.similarity(folders[1], ["psnr"], engine=copying(sent))
    assert (tmp_path / "listed").read_text().count("once") == listed + 1
    assert_frame_equal(pl.read_parquet(found), wanted)
    assert len(sent) == 2 * 40
    assert wanted.height == 4 * 40
    again = sorites.build(quick, out=tmp_path / "again", engine=copying(sent))
    assert (tmp_path / "listed").read_text().count("once") == listed + 2
    assert again == built
    files = {
        path.relative_to(tmp_path / name): path.read_bytes()
        for name in ("built", "again")
        for path in (tmp_path / name).rglob("*.png")
    }
    assert len(files) == built.images == 5 * 40
    for path in files:
        assert (tmp_path / "built" / path).read_bytes() == (tmp_path / "again" / path).read_bytes()


@pytest.mark.slow
def test_captured_images_are_sent_with_their_clean_ones(suite: Suite, tmp_path: Path) -> None:
    captured = suite.model_copy(
        update={
            "source": "counted:captured",
            "fit": None,
            "scorers": ("msp",),
            "refine": None,
            "shifts": (),
        }
    )
    folders = [tmp_path / name for name in ("threads", "copies")]
    for folder in folders:
        sorites.run(captured, out=folder)
    wanted = pl.read_parquet(sorites.similarity(folders[0], ["psnr"]))
    sent: list[Any] = []
    found = sorites.similarity(folders[1], ["psnr"], engine=copying(sent))
    assert wanted.height == len(sent) == 40
    assert_frame_equal(pl.read_parquet(found), wanted)
    assert all(len(parcel.samples.references) == 1 for _, parcel in sent)
