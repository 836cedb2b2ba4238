"""A run on a real S3 server is the run on a disk: killed, continued, reported, checked, kept apart,
on a bad day of the store.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.io.stores.peer import door, environment, s3_server

from sorites.core import table

TYPED = [sys.executable, "-c", "from sorites.cli import main; main()"]
MODEL = """
import os, pathlib, time
import numpy as np

def logits(images):
    if pathlib.Path("slow").exists():
        time.sleep(0.1)
    held = pathlib.Path("held")
    while held.exists() and held.read_text() == str(os.getpid()):
        time.sleep(0.1)
    rows = np.stack([np.r_[p.mean((0, 1)), p.std((0, 1))] for p in images]).astype(np.float32) / 64
    return np.tile(rows, (1, 167))[:, :1000] * 3 + np.sin(np.arange(1000, dtype=np.float32)), rows
"""
COPY = """
import sys, s3fs
store, (bucket, folder) = s3fs.S3FileSystem(), sys.argv[1:]
store.mkdir(bucket)
store.put(folder, f"{bucket}/in", recursive=True)
"""
LOOK = """
import s3fs, sys, time
until = time.monotonic() + 120
while not s3fs.S3FileSystem(use_listings_cache=False).glob("bucket/run/predictions/*.parquet"):
    if time.monotonic() > until:
        sys.exit(1)
    time.sleep(0.1)
"""
TABLE = (
    "import sys; from sorites.core import table; table.read(sys.argv[1]).collect().write_parquet(sys.argv[2])"
)


@dataclass(frozen=True)
class Home:
    folder: Path
    port: int

    def start(self, *words: str, port: int = 0) -> subprocess.Popen[str]:
        env = environment(port or self.port, self.folder / "cache")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*TYPED, *words], cwd=self.folder, env=env, **pipes)  # type: ignore[call-overload,no-any-return]

    def type(self, *words: str, port: int = 0, code: int = 0) -> str:
        return self.finish(self.start(*words, port=port), code)

    def finish(self, process: subprocess.Popen[str], code: int = 0) -> str:
        try:
            said, _ = process.communicate(timeout=180)
        finally:
            process.kill()
        assert process.returncode == code, said
        return str(said)

    def python(self, code: str, *words: str) -> None:
        env = environment(self.port, self.folder / "cache")
        subprocess.run(
            [sys.executable, "-c", code, *words], cwd=self.folder, env=env, check=True, timeout=180
        )

    def rows(self, run: str) -> pl.DataFrame:
        where = self.folder / "table.parquet"
        self.python(TABLE, run, str(where))
        return in_order(pl.read_parquet(where))


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("run_id", "source", "image_id").sort(
        "sample_id", "shift", "severity", "output", "scorer", "probe"
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("home")
    (folder / "by_colour.py").write_text(MODEL)
    (folder / "s.toml").write_text(
        'source = "folder:none"\nmodels = ["python:by_colour:logits"]\nshifts = ["gaussian_noise",'
        ' "contrast", "jpeg"]\nscorers = [\'msp\']\n[frame]\nresize = 48\n'
    )
    images = folder / "images"
    with tarfile.open(images.parent / "a-000.tar", "w") as tar:
        for path in sorted(photos.rglob("*.png")):
            tar.add(path, f"{path.stem}.png")
            member = tarfile.TarInfo(f"{path.stem}.cls")
            member.size = len(path.parent.name)
            tar.addfile(member, io.BytesIO(path.parent.name.encode()))
    with s3_server(folder) as port:
        found = Home(folder, port)
        found.python(COPY, "bucket", str(photos))
        yield found


@pytest.mark.long
@pytest.mark.slow
def test_a_run_on_a_store_equals_the_run_on_a_disk(home: Home, photos: Path) -> None:
    common = ("run", "s.toml", "--engine", "local", "--batch", "4")
    disk = home.start(*common, "--source", f"folder:{photos}", "--out", "disk")
    there = (*common, "--source", "folder:s3://bucket/in", "--out", "s3://bucket/run")
    home.finish(disk)
    wanted = in_order(table.read(home.folder / "disk").collect())
    (home.folder / "slow").touch()
    process = home.start(*there)
    _wait_for_a_shard(home, process)
    (home.folder / "held").write_text(str(process.pid))
    assert "is writing to s3://bucket/run" in home.type(*there, code=2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for name in ("slow", "held"):
        (home.folder / name).unlink()
    said = home.type(*there)
    assert "Traceback" not in said
    assert_frame_equal(home.rows("s3://bucket/run"), wanted)
    asked = [
        home.start(*words)
        for words in (
            ("check", "s3://bucket/run"), ("report", "s3://bucket/run", "--out", "page.html"),
            ("metrics", "s3://bucket/run", "accuracy"), ("metrics", "disk", "accuracy"),
        )
    ]  # fmt: skip
    checked, _, there_said, here_said = map(home.finish, asked)
    assert "complete" in checked
    assert (home.folder / "page.html").stat().st_size > 100_000
    assert there_said == here_said


def _wait_for_a_shard(home: Home, process: subprocess.Popen[str]) -> None:
    """Look for a shard from one other process, ten times a second, for two minutes."""
    env = environment(home.port, home.folder / "cache")
    looking = subprocess.Popen([sys.executable, "-c", LOOK], env=env)
    while looking.poll() is None and process.poll() is None:
        time.sleep(0.05)
    if looking.poll() == 0:
        return
    for started in (looking, process):
        started.kill()
    pytest.fail(f"no shard was written: {process.communicate()[0][-2000:]}")


@pytest.mark.slow
def test_a_store_on_a_bad_day_gives_the_same_table(home: Home, photos: Path) -> None:
    common = ("run", "s.toml", "--engine", "local", "--shift", "contrast", "--limit", "8")
    home.type(*common, "--source", f"folder:{photos}", "--out", "disk8")
    wanted = in_order(table.read(home.folder / "disk8").collect())
    with door(home.port, 10, 0.0) as fails, door(home.port, 0, 0.05) as slow:
        there = (*common, "--source", "folder:s3://bucket/in", "--out")
        runs = [
            home.start(*there, f"s3://bucket/{name}", port=port)
            for name, port in (("fails", fails), ("slow", slow))
        ]
        for run in runs:
            home.finish(run)
    for name in ("fails", "slow"):
        assert_frame_equal(home.rows(f"s3://bucket/{name}"), wanted)


@pytest.mark.slow
def test_tars_on_a_store_are_read_in_place(home: Home) -> None:
    home.python("import s3fs; s3fs.S3FileSystem().put('a-000.tar', 'bucket/tars/a-000.tar')")
    common = ("run", "s.toml", "--engine", "local", "--shift", "contrast", "--limit", "8")
    both = [
        home.start(*common, "--source", f"webdataset:{where}", "--out", out)
        for where, out in (("a-000.tar", "disktar"), ("s3://bucket/tars/a-{000..000}.tar", "storetar"))
    ]
    for run in both:
        home.finish(run)
    found, wanted = (in_order(table.read(home.folder / out).collect()) for out in ("storetar", "disktar"))
    assert wanted["label"].null_count() == 0
    assert_frame_equal(found, wanted)
    assert "no file at" in home.type(
        *common, "--source", "webdataset:s3://bucket/tars/a-{000..001}.tar", "--out", "no", code=2
    )


@pytest.mark.slow
def test_a_dataset_built_on_a_store_equals_the_one_on_a_disk(home: Home, photos: Path) -> None:
    common = ("build", "s.toml", "--source", f"folder:{photos}", "--shift", "jpeg", "--limit", "6", "--out")
    for built in [home.start(*common, out) for out in ("built", "s3://bucket/built")]:
        home.finish(built)
    assert "36" in home.type(*common, "s3://bucket/built")
    home.python("import s3fs; s3fs.S3FileSystem().get('bucket/built', 'copied', recursive=True)")
    names = [
        path.relative_to(home.folder / "built") for path in sorted((home.folder / "built").rglob("*.png"))
    ]
    assert len(names) == 36
    for name in names:
        assert (home.folder / "copied" / name).read_bytes() == (home.folder / "built" / name).read_bytes()
    common = ("run", "s.toml", "--engine", "local", "--source")
    for run in [
        home.start(*common, f"folder:{at}built", "--out", out)
        for at, out in (("", "b1"), ("s3://bucket/", "b2"))
    ]:
        home.finish(run)
    wanted, found = (in_order(table.read(home.folder / out).collect()) for out in ("b1", "b2"))
    assert wanted["shift"].unique().sort().to_list() == ["clean", "contrast", "gaussian_noise", "jpeg"]
    assert_frame_equal(found, wanted)
