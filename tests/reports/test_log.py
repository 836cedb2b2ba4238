"""Runs in experiment trackers: the numbers are read back with the trackers' own code."""

from __future__ import annotations

import struct
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.peers import peer

import sorites
from sorites.core.errors import MissingExtra, MissingFile, Notice, SoritesError, UnknownName
from sorites.evaluation.trackers import live
from sorites.evaluation.trackers.base import TRACKERS, Point, curves, naming, step_scale
from sorites.suites.suite import Suite


def suite(photos: Path) -> Suite:
    return Suite(
        name="small", source=f"folder:{photos}", shifts=("defocus_disk", "gaussian_noise"), models=()
    )


@pytest.fixture(scope="module")
def run(photos: Path, tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> sorites.Run:
    return sorites.run(
        suite(photos), models=[tiny()], limit=8, out=tmp_path_factory.mktemp("run") / "small", levels=[1, 5]
    )


def expected(run: sorites.Run) -> dict[tuple[str, float], float]:
    rows = run.collect().filter(pl.col("output") == "label")
    shares = rows.group_by("shift", "severity").agg(pl.col("correct").mean())
    return {(shift, severity): share for shift, severity, share in shares.rows()}


def test_curves_are_the_shares_of_correct_rows(run: sorites.Run) -> None:
    points = curves(run.folder)
    found = {(p.group.removeprefix("tiny/"), p.severity): p.value for p in points if p.name == "accuracy"}
    assert found == pytest.approx(expected(run))
    assert {p.value for p in points if p.name == "n"} == {8.0}
    steps = {(p.group, p.severity): p.step for p in points if p.severity is not None}
    assert len(set(steps.values())) > 2
    assert all(step >= (severity or 0) for (_, severity), step in steps.items())


def test_steps_are_whole_severities() -> None:
    assert [step_scale(s) for s in ([1.0, 3.0], [0.7, 2], [0.25], [0.04, 0.123])] == [1, 10, 100, 1000]


def test_other_trackers_are_refused(run: sorites.Run) -> None:
    with pytest.raises(UnknownName):
        sorites.log(run, "mlflov")


class Failing:
    """A tracker whose server went away."""

    where = "nowhere"
    closed: bool | None = None

    def points(self, points: list[Point]) -> None:
        raise ConnectionError("gone")

    def file(self, path: Path) -> None:
        raise ConnectionError("gone")

    def close(self, failed: bool = False) -> None:
        self.closed = failed


def test_a_tracker_that_fails_does_not_end_the_run(
    photos: Path, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Failing()
    monkeypatch.setattr(live, "tracker", lambda spec: lambda name, facts: tracker)
    with pytest.warns(Notice, match="no more is logged"):
        done = sorites.run(
            suite(photos), models=[tiny()], limit=4, levels=[1], out=tmp_path / "r", log="mlflow"
        )
    assert done.collect().height
    assert tracker.closed is True


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_live(photos: Path, tiny: Any, tmp_path: Path) -> None:
    peer("tensorboard")
    readers = peer("tensorboard.backend.event_processing.event_accumulator")
    where = tmp_path / "events"
    done = sorites.run(
        suite(photos), models=[tiny()], limit=8, out=tmp_path / "r", log=f"tensorboard:{where}", levels=[1, 5]
    )
    events = readers.EventAccumulator(str(where)).Reload()
    tags = events.Tags()["scalars"]
    assert "so_far/tiny/accuracy_pooled" in tags
    assert all(0 < event.step < 100 for event in events.Scalars("so_far/tiny/accuracy_pooled"))
    severities = {e.step: e.value for e in events.Scalars("tiny/gaussian_noise/severity")}
    for event in events.Scalars("tiny/gaussian_noise/accuracy"):
        severity = min((s for _, s in expected(done)), key=lambda s: abs(s - severities[event.step]))
        assert event.value == pytest.approx(expected(done)["gaussian_noise", severity])


@pytest.mark.parametrize("kind", TRACKERS)
def test_a_missing_library_has_the_command_that_installs_it(
    run: sorites.Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(MissingExtra) as raised:
        sorites.log(run, kind)
    assert raised.value.fields["extra"] == kind
    assert kind in optional_dependencies()


def optional_dependencies() -> dict[str, list[str]]:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    return dict(tomllib.loads(text)["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    ("error", "expected"), [(ModuleNotFoundError("alembic"), MissingExtra), (OSError("down"), SoritesError)]
)
def test_a_tracker_that_cannot_start_is_named(error: Exception, expected: type[SoritesError]) -> None:
    with pytest.raises(expected) as raised, naming("mlflow"):
        raise error
    assert "mlflow" in str(raised.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_stores_in_sqlite(run: sorites.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = peer("mlflow")
    monkeypatch.chdir(tmp_path)  # beside a database, artifacts go to the current folder
    peer("alembic")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    where = sorites.log(run, f"mlflow:{uri}")
    assert mlflow.MlflowClient(uri).get_run(where.rpartition(" ")[2]).info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_refuses_a_folder(run: sorites.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    peer("mlflow")
    with pytest.raises(SoritesError, match="mlflow failed"):
        sorites.log(run, f"mlflow:file:{tmp_path}/mlruns")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow(run: sorites.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = peer("mlflow")
    uri = f"file:{tmp_path}/mlruns"
    folder = tmp_path / "passport"
    folder.mkdir()
    (folder / "passport.json").write_text("{}")
    with pytest.raises(MissingFile):
        sorites.log(run, f"mlflow:{uri}", passport=tmp_path)
    where = sorites.log(run, f"mlflow:{uri}", passport=folder)
    client = mlflow.MlflowClient(uri)
    logged = client.get_run(where.rpartition(" ")[2])
    assert logged.info.status == "FINISHED"
    assert logged.data.tags["sorites.suite"] == "small"
    history = client.get_metric_history(logged.info.run_id, "tiny/defocus_disk/accuracy")
    severities = client.get_metric_history(logged.info.run_id, "tiny/defocus_disk/severity")
    found = {("defocus_disk", s.value): h.value for s, h in zip(severities, history, strict=True)}
    assert found == pytest.approx({k: v for k, v in expected(run).items() if k[0] == "defocus_disk"})
    assert {file.path for file in client.list_artifacts(logged.info.run_id)} == {
        "report.html",
        "passport.json",
    }


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """Read a log of LevelDB, the format of wandb's files, after their header of seven bytes."""
    place, whole = 7, b""
    data = b"\0" * 7 + data
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield whole
            whole = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(run: sorites.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{key}", value)
    for key in ("CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{key}", str(tmp_path / "own"))
    peer("wandb")
    sorites.log(run, "wandb")
    protocol = peer("wandb.proto.wandb_internal_pb2")
    rows, files = [], set()
    for data in leveldb_records(next(tmp_path.rglob("*.wandb")).read_bytes()[7:]):
        record = protocol.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            numbers = {i.key or "/".join(i.nested_key): i.value_json for i in items}
            rows.append({key: float(text) for key, text in numbers.items() if key.startswith("tiny")})
        if record.WhichOneof("record_type") == "artifact":
            files |= {entry.path for entry in record.artifact.manifest.contents}
    name = "tiny/defocus_disk"
    found = {
        ("defocus_disk", r[f"{name}/severity"]): r[f"{name}/accuracy"]
        for r in rows
        if f"{name}/accuracy" in r
    }
    assert found == pytest.approx({k: v for k, v in expected(run).items() if k[0] == "defocus_disk"})
    assert files == {"report.html"}
