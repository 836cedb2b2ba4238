"""Units in other processes give the same table; objects that live in this one are refused by name."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.core import Model
from sorites.core.errors import Notice, SoritesError
from sorites.evaluation.engines.local import processes
from sorites.suites.suite import parse

SUITE = parse(
    {
        "name": "small",
        "frame": {"resize": 48, "crop": 40},
        "shifts": ["gaussian_noise", {"name": "contrast", "levels": [1, 4]}],
        "scorers": ["msp", "knn(k=3)"],
    },
    "test",
)
OVERLAP = "20 training images are also in the test set"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that any process can import by name: the mean and spread of colours decide between
    four classes.
    """
    (tmp_path / "by_shade.py").write_text(
        textwrap.dedent("""
            import numpy as np
            from sorites import Outputs

            def logits(images):
                rows = np.stack([np.r_[p.mean((0, 1)), p.std((0, 1))] for p in images]).astype(np.float32) / 64
                return rows[:, :4] * 3, rows
            """)
    )
    monkeypatch.chdir(tmp_path)
    return "python:by_shade:logits"


@pytest.mark.slow
def test_a_process_pool_gives_the_same_table(photos: Path, spec: str, tmp_path: Path) -> None:
    labels = ["n01440764", "n01443537", "n01484850", "n01491361"]
    with pytest.warns(Notice, match=OVERLAP):
        tables = [
            sorites.run(
                SUITE, source=f"folder:{photos}", models=[spec], labels=labels, fit=f"folder:{photos}", refine=0.1,
                engine=engine, workers=2, out=tmp_path / engine,
            ).collect()
            for engine in ("local", "processes")
        ]  # fmt: skip
    assert tables[0].height > 400
    assert tables[0]["error"].null_count() == tables[0].height
    assert_frame_equal(*(table.sort("image_id", "output", "scorer", "probe") for table in tables))


@pytest.mark.slow
def test_a_dataset_and_its_similarity_are_made_by_processes_too(photos: Path, tmp_path: Path) -> None:
    suite = SUITE.override(source=f"folder:{photos}", limit=5)
    counts = [
        sorites.build(suite, tmp_path / engine, engine=engine, workers=2) for engine in ("local", "processes")
    ]
    assert counts[0] == counts[1] == (5 * 8, [])
    names = [
        sorted(p.relative_to(tmp_path / e) for p in (tmp_path / e).rglob("*.png"))
        for e in ("local", "processes")
    ]
    assert names[0] == names[1]
    assert all(
        (tmp_path / "local" / n).read_bytes() == (tmp_path / "processes" / n).read_bytes() for n in names[0]
    )


def test_objects_are_refused_by_name(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    with pytest.warns(Notice, match=OVERLAP), pytest.raises(SoritesError, match="objects passed from Python"):
        sorites.run(
            SUITE,
            source=f"folder:{photos}",
            models=[tiny()],
            fit=f"folder:{photos}",
            engine="processes",
            out=tmp_path,
        )


def _fails(unit: int) -> int:
    if unit == 2:
        raise ValueError("two")
    return unit


@pytest.mark.slow
def test_the_first_failure_is_raised_and_the_workers_end() -> None:
    with pytest.raises(ValueError, match="two"):
        list(processes([2], _fails, 2))
    assert sorted(processes([0, 1, 3], _fails, 2)) == [(0, 0), (1, 1), (3, 3)]


def _dies(unit: int) -> int:
    os._exit(3)


@pytest.mark.slow
def test_a_worker_that_dies_is_said_in_words() -> None:
    with pytest.raises(SoritesError, match="a worker process ended early"):
        list(processes([1, 2], _dies, 2))
