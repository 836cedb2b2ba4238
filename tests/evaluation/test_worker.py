"""Tasks get their run explicitly: several runs are open in one process, and a worker process opens a run once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.conftest import CLASSES

import sorites
from sorites.core import Model
from sorites.core.errors import SoritesError
from sorites.evaluation import plan, runner, worker
from sorites.evaluation.engines import Engine
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.worker import Opener, Running
from sorites.io.digests import read_sealed, write_sealed
from sorites.suites.suite import parse

SUITE = {"name": "small", "source": "stamps", "limit": 3, "shifts": [{"name": "contrast", "levels": [1]}]}


MODEL = """
import numpy as np

def logits(images):
    rows = np.stack([np.r_[p.mean((0, 1)), p.std((0, 1))] for p in images]).astype(np.float32) / 64
    return rows[:, :4] * 3, rows
"""


@pytest.fixture
def make(photos: Path, tiny: Callable[..., Model]) -> Callable[[], Plan]:
    suite = parse({**SUITE, "source": f"folder:{photos}", "models": ["tiny"]}, "test")
    return lambda: plan.make(suite, models={"tiny": tiny()})


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that any process can import by name."""
    (tmp_path / "shades.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return "python:shades:logits"


def with_id(run: Running, task: int, *, add: int) -> tuple[str, int]:
    return run.run_id, task + add


def test_a_task_has_the_run_of_its_engine(make: Callable[[], Plan], tmp_path: Path) -> None:
    threads, others = (Engine(lambda *_: iter(()), one_process=one) for one in (True, False))
    run = Running(tmp_path, make(), "x")
    assert run.work(threads, with_id, add=2)(1) == ("x", 3)
    sent = pickle.dumps(run.work(others, with_id, add=2))
    assert len(sent) < 1000
    with pytest.raises(SoritesError, match=r"run\.json"):
        pickle.loads(sent)(1)


@pytest.mark.slow
def test_runs_in_one_process_do_not_interfere(tiny: Callable[..., Model], tmp_path: Path) -> None:
    """Each run starts another one, into another folder, while its own tasks are under way."""
    inner: list[pl.DataFrame] = []
    lock = threading.Lock()

    def nested(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        for unit in units:
            with lock:
                if not inner:
                    other = parse({**SUITE, "seed": 5}, "test")
                    inner.append(sorites.run(other, models=[tiny()], out=tmp_path / "inner").collect())
            yield unit, work(unit)

    engine = Engine(nested, one_process=True, name="nested")
    suite = parse(SUITE, "test")
    outer = sorites.run(suite, models=[tiny()], out=tmp_path / "outer", engine=engine).collect()
    alone = sorites.run(suite, models=[tiny()], out=tmp_path / "alone").collect()
    assert outer.sort("image_id").equals(alone.sort("image_id"))
    assert inner[0]["run_id"].unique().to_list() == [read_record(tmp_path / "inner").run_id]
    assert outer["run_id"].unique().to_list() == [read_record(tmp_path / "outer").run_id]


def test_a_folder_is_opened_once_and_pickled_as_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Plan]
) -> None:
    opened: list[Path] = []

    def opens(folder: Path) -> Running:
        opened.append(folder)
        return Running(folder, make(), "x")

    monkeypatch.setattr(worker, "_open", opens)
    opener = Opener(tmp_path)
    assert opener.open() is opener.open()
    assert opened == [tmp_path]
    copy = pickle.loads(pickle.dumps(opener))
    assert copy.open().folder == tmp_path
    assert len(opened) == 2


def test_an_engine_of_a_user_that_pickles_its_work_gives_the_same_table(
    spec: str, photos: Path, tmp_path: Path
) -> None:
    """A copy of the work for every task costs time, and changes nothing."""

    def start(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
        for unit in units:
            yield unit, pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(unit)))

    suite = parse({**SUITE, "source": f"folder:{photos}", "labels": list(CLASSES), "models": [spec]}, "test")
    engine = Engine(start, one_process=False, name="copies")
    mine = sorites.run(suite, out=tmp_path / "mine", engine=engine).collect()
    assert mine.equals(sorites.run(suite, out=tmp_path / "local", workers=1).collect())


def test_a_model_that_changed_since_is_named(spec: str, photos: Path, tmp_path: Path) -> None:
    suite = parse({**SUITE, "source": f"folder:{photos}", "labels": list(CLASSES), "models": [spec]}, "test")
    folder = runner.execute(runner.prepare(plan.make(suite)), tmp_path / "run")
    assert Opener(folder).open().run_id == read_record(folder).run_id
    path = folder / "run.json"
    content = read_sealed(path, "")
    write_sealed({**content, "suite": {**content["suite"], "seed": 1}}, path)
    with pytest.raises(SoritesError, match="suite"):
        Opener(folder).open()
    write_sealed({**content, "run_id": f"0{content['run_id']}"}, path)
    with pytest.raises(SoritesError, match="cannot be reopened"):
        Opener(folder).open()
