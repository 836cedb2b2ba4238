"""The table of the default images, how they are laid out, and, slowly, that they really arrive."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, imagenet
from sorites.io.decode import GROUND, on_ground
from sorites.sources.stamps import compose, stamps, table


def test_the_table_is_sound() -> None:
    rows, ids = table(), set(imagenet().ids)
    assert len({row.file for row in rows}) == len({row.sha256 for row in rows}) == len(rows)
    assert [row.file for row in rows] == sorted(row.file for row in rows)
    for row in rows:
        assert (row.split == "test") == bool(row.label)
        assert row.accept[:1] == ((row.label,) if row.label else ())
        assert len(set(row.accept)) == len(row.accept)
        assert set(row.accept) <= ids
        assert row.split in {"test", "unknown"}
        assert len(bytes.fromhex(row.sha256)) == 32
        assert not row.file.startswith("/")
        assert ".." not in row.file.split("/")
        assert "cartoon" not in row.file


def test_the_table_is_large_enough_to_be_of_use() -> None:
    assert sum(row.split == "test" for row in table()) >= 100
    assert len({row.label for row in table() if row.label}) >= 90
    assert sum(row.split == "unknown" for row in table()) >= 100


@pytest.mark.parametrize(
    ("height", "width", "side"), [(7, 7, 8), (70, 35, 80), (35, 70, 80), (1, 1, 2), (50, 3, 58)]
)
def test_compose_centres_in_a_square_of_eight_sevenths(height: int, width: int, side: int) -> None:
    stamp = np.zeros((height + 9, width + 5, 4), np.uint8)
    stamp[4 : 4 + height, 3 : 3 + width] = (10, 20, 30, 255)
    square = compose(stamp)
    assert square.shape == (side, side, 4)
    rows, columns = np.nonzero(square[..., 3])
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == (height, width)
    assert abs(rows.min() - (side - 1 - rows.max())) <= 1
    assert abs(columns.min() - (side - 1 - columns.max())) <= 1
    image = on_ground(square)
    assert set(map(tuple, image[square[..., 3] == 0])) <= {(GROUND,) * 3}
    assert set(map(tuple, image[square[..., 3] == 255])) == {(10, 20, 30)}


def test_other_arguments_and_label_spaces_are_reported() -> None:
    with pytest.raises(SoritesError, match='"stamps" or "stamps:unknown"'):
        stamps("all", imagenet())
    with pytest.raises(SoritesError, match="labelled by WordNet id"):
        stamps(None, Labels(("cat", "dog"), ("cat", "dog")))


@pytest.mark.slow
def test_nothing_is_fetched_by_import_or_listing(tmp_path: Path) -> None:
    code = "import sorites.sources, sorites.core; assert 'stamps' in sorites.core.SOURCES.names()"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "SORITES_CACHE": str(tmp_path)}
    )
    assert list(tmp_path.iterdir()) == []


def start() -> subprocess.Popen[bytes]:
    code = "from sorites import core; print(len(core.source('stamps')))"
    return subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_a_fetch_killed_midway_is_finished_by_two_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path))
    with start() as first:
        until = time.monotonic() + 300
        while not any(tmp_path.glob("stamps/**/*.png")) and first.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
    there = len(list(tmp_path.glob("stamps/**/*.png")))
    assert 0 < there < len(table())
    racers = [start(), start()]
    said = [racer.communicate(timeout=600) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], said
    assert sum(b"GPL" in err for _, err in said) == 1
    assert not (tmp_path / "stamps" / ".apt").exists()
    check_images()


def check_images() -> None:
    samples = core.source("stamps").samples
    assert [s.id for s in samples] == [row.file for row in table() if row.split == "test"]
    ood = core.source("stamps:unknown").samples
    assert {s.label for s in ood} == {None}
    for sample in (*samples, *ood):
        image, mask = sample.load(), sample.alpha
        assert mask is not None
        alpha = mask()
        assert image.shape == (*alpha.shape, 3)
        assert alpha.shape[0] == alpha.shape[1]
        assert (image[alpha == 0] == GROUND).all()
        assert (alpha > 127).mean() > 0.02
    lion = next(s for s in samples if s.id.endswith("/lion.png"))
    assert imagenet().names[lion.label or 0] == "lion"
    few = Labels(imagenet().ids[:300], imagenet().names[:300])
    assert {s.label for s in stamps(None, few)} == {s.label for s in samples if (s.label or 0) < 300}
