"""A run on a real cluster of two nodes gives the table of a run on threads, bit for bit, whoever is
killed meanwhile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.evaluation.engines.cluster import Cluster, two_nodes

from sorites.core import table
from sorites.core.errors import Damaged, Notice, SoritesError
from sorites.evaluation.engines import ENGINES, ray
from sorites.evaluation.engines.ray import Worker, _unwrap
from sorites.io.decode import max_pixels

TYPED = [sys.executable, "-c", "from sorites.cli import main; main()"]
MODEL = """
import pathlib, time
import numpy as np

def logits(images):
    if pathlib.Path("slow").exists():
        time.sleep(0.1 * len(images))
    rows = np.stack([np.r_[p.mean((0, 1)), p.std((0, 1))] for p in images]).astype(np.float32) / 64
    return np.tile(rows, (1, 167))[:, :1000] * 3 + np.sin(np.arange(1000, dtype=np.float32)), rows
"""
PLAIN = """
source = "folder:{photos}"
models = ["python:by_colour:logits", "second=python:by_colour:logits"]
shifts = ["gaussian_noise", "contrast", "jpeg"]
scorers = ["msp"]
frame = {{resize = 48}}
"""
FITTED = """
refine = 0.2
[fit]
source = "folder:{photos}"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "by_colour.py").write_text(MODEL)
    (home / "plain.toml").write_text(PLAIN.format(photos=photos))
    whole = (PLAIN + FITTED).replace('"msp"', '"msp", "knn(k=3)"')
    (home / "whole.toml").write_text(whole.format(photos=photos))
    return home


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes. Their folder has a short name: the path of a socket in it may have 107 bytes."""
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temp,
        two_nodes(Path(temp)) as both,
    ):
        yield both


def started(home: Path, suite: str, out: str, env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [*TYPED, "run", f"{suite}.toml", "--out", out, "--batch", "4", *words]
    return subprocess.Popen(command, cwd=home, env=env, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> None:
    try:
        _, said = process.communicate(timeout=150)
    finally:
        process.kill()
    assert process.returncode == 0, said[-3000:]


def rows(home: Path, out: str) -> pl.DataFrame:
    return table.read(home / out).sort("model", "image_id", "output", "scorer", "probe").collect()


@pytest.mark.long
@pytest.mark.slow
def test_two_nodes_give_the_table_of_threads_though_nodes_and_workers_die(
    home: Path, cluster: Cluster
) -> None:
    there = ["--engine", "ray", "--address", cluster.address, "--workers"]
    here = [
        started(home, suite, suite, dict(os.environ), "--engine", "local") for suite in ("plain", "whole")
    ]
    for process in (*here, started(home, "plain", "ray2", cluster.env, *there, "2")):
        finished(process)
    making = ["--cpus-per-worker", "2", "--models-per-worker", "1"]
    finished(started(home, "plain", "ray4", cluster.env, *there, "2", *making))
    for workers in ("2", "4"):
        assert_frame_equal(rows(home, f"ray{workers}"), rows(home, "plain"))
    (home / "slow").touch()
    process = started(home, "whole", "killed", cluster.env, *there, "4", "--models-per-worker", "1")
    until = time.monotonic() + 120
    for number in range(3):
        _kill_a_worker(cluster, process, home / "killed", number, until)
    os.kill(cluster.second_raylet(), signal.SIGKILL)
    (home / "slow").unlink()
    finished(process)
    assert rows(home, "killed").height > 400
    assert_frame_equal(rows(home, "killed"), rows(home, "whole"))


def _kill_a_worker(
    cluster: Cluster, process: subprocess.Popen[str], out: Path, number: int, until: float
) -> None:
    """Kill a worker that has begun once the run wrote so many shards."""
    while time.monotonic() < until and process.poll() is None:
        busy = cluster.workers()
        if busy and len(list(out.glob("predictions/*.parquet"))) >= number:
            os.kill(busy[number % len(busy)], signal.SIGKILL)
            time.sleep(1.0)
            return
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"no worker to kill: {process.communicate()[1][-2000:]}")


@pytest.mark.slow
def test_an_address_without_a_cluster_is_an_error_in_words(home: Path) -> None:
    process = started(home, "plain", "none", dict(os.environ), "--engine", "ray", "--address", "127.0.0.1:9")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "HOST:PORT" in said
    assert "Traceback" not in said


def _damaged(unit: int) -> int:
    raise Damaged("a.parquet", "it is empty", "repair=True")


def _exits(unit: int) -> int:
    sys.exit(3)


def test_a_worker_tells_any_error(tmp_path: Path) -> None:
    def do(work: Callable[[int], object], unit: int) -> object:
        return _unwrap(Worker(str(tmp_path / "gone"), {}, work, max_pixels()).do(unit))

    assert do(abs, -3) == 3
    with pytest.raises(SoritesError, match="a.parquet cannot be read"):
        do(_damaged, 1)
    with pytest.raises(SoritesError, match="sys.exit"):
        do(_exits, 1)
    with pytest.raises(ZeroDivisionError):
        do((1).__truediv__, 0)


def test_without_the_library_the_message_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SoritesError, match=r"pip install 'sorites\[ray\]'"):
        list(ENGINES.get("ray")([1], abs, 1))


class _EmptyCluster:
    """A cluster on which no worker ever starts."""

    def put(self, value: object) -> object:
        return value

    def remote(self, kind: type) -> Any:
        return self

    def options(self, **_: object) -> Any:
        return SimpleNamespace(remote=lambda *_: SimpleNamespace(here=SimpleNamespace(remote=object)))

    def wait(self, tasks: list[object], **_: object) -> tuple[list[object], list[object]]:
        time.sleep(0.01)
        return [], tasks

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 0}

    available_resources = cluster_resources


def test_a_cluster_without_capacity_is_reported_and_then_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "WAIT_NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(ray, "START_TIMEOUT_SECONDS", 0.3)
    pool = ray._WorkerPool(_EmptyCluster(), _damaged, [1], 2, ray.Resources())
    with pytest.warns(Notice) as shown, pytest.raises(SoritesError, match="0 of 0 CPU free"):
        pool.next_done()
    assert [notice.message.code for notice in shown] == ["no_workers"]


def test_workers_get_the_credentials_of_stores_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("SECRET_OF_SOMETHING_ELSE", "secret")
    cluster, given = _EmptyCluster(), []

    def hire(*arguments: object) -> Any:
        given.append(arguments[1])
        return SimpleNamespace(here=SimpleNamespace(remote=object))

    monkeypatch.setattr(cluster, "options", lambda **_: SimpleNamespace(remote=hire), raising=False)
    ray._WorkerPool(cluster, _damaged, [1], 1, ray.Resources())
    assert given[0]["AWS_ACCESS_KEY_ID"] == "key"
    assert "SECRET_OF_SOMETHING_ELSE" not in given[0]
