from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command

from sorites.core import Model, table
from sorites.evaluation.run import run
from sorites.suites.suite import parse

ENCODER = """
import numpy as np
class Colours:
    version = "1"
    def images(self, images):
        return np.array([np.concatenate([p.mean((0, 1)), p.std((0, 1)) + 1]) for p in images])
    def texts(self, sentences):
        return np.array([[len(s), 3, 2, 1, s.count("a"), 5] for s in sentences])
"""
NAME = "python:filter_colours:Colours"


@pytest.fixture
def folder(home: Path, photos: Path, tiny: Callable[..., Model]) -> Path:
    (home / "filter_colours.py").write_text(ENCODER, encoding="utf-8")
    suite = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 32}, "limit": 3}
    run(
        parse({**suite, "shifts": [{"name": "contrast", "severities": [0.5, 0.9]}]}, "far"),
        models=[tiny()],
        out=home / "run",
    )
    return home / "run"


def test_a_run_is_filtered_and_judged_again_by_other_thresholds(
    command: Command, folder: Path, home: Path
) -> None:
    code, out, err = command(
        "filter", "run", "--encoder", NAME, "--second", NAME, "--shift-text", "contrast=in fog"
    )
    assert code == 0, err
    assert "the published thresholds are for" in err
    assert {"shift", "severity", "images", "judged", "kept"} <= set(out.split())
    assert out.splitlines()[-1] == "next: sorites report run"
    ids = (
        table.read(folder)
        .filter(pl.col("severity") == 0.9)
        .select("image_id")
        .collect()["image_id"]
        .to_list()
    )
    (home / "labels.csv").write_text(
        "image_id,outside\n" + "".join(f"{i},{n < 2}\n" for n, i in enumerate(ids))
    )
    code, out, err = command(
        "filter", "run", "--thresholds", "calibrated", "--annotations", "labels.csv", "--rule", "code"
    )
    assert (code, "note:" in err) == (0, False)
    assert "tpr: share of out-of-class images removed" in out
    assert "rule code, thresholds calibrated: class_text " in out
    held = pl.read_parquet(folder / "facts" / "out_of_class.parquet")
    assert held.height == 6
    assert held["valid"].null_count() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "none is not a run folder"),
        (["run"], "pass --encoder NAME and --second NAME"),
        (
            ["run", "--shift-text", "contrast"],
            "--shift-text expects SHIFT=WORDS",
        ),
    ],
)
def test_a_mistake_is_one_line(command: Command, folder: Path, words: list[str], said: str) -> None:
    code, _, err = command("filter", *words)
    assert code == 2
    assert said in err.splitlines()[-1]
