"""``--max-pixels``: an image above the limit is an error row that says what to type, and the run's
id does not know of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command

from sorites.core.table import read
from sorites.io.decode import MAX_PIXELS, max_pixels


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_image_above_the_limit_is_an_error_row(command: Command, home: Path, engine: str) -> None:
    code, _, _ = command("run", "s.toml", "--out", "all")
    assert code == 0
    code, out, err = command("run", "s.toml", "--out", "few", "--max-pixels", 4000, "--engine", engine)
    assert code == 3, err
    assert "pixels exceed the limit of 4,000" in out
    assert "18 of 18 rows have errors in few" in err
    assert command("run", "s.toml", "--out", "few", "--max-pixels", 4000, "--max-errors", 1)[0] == 0
    rows = read(home / "few").collect()
    assert rows["error"].null_count() == 0
    ids = [json.loads((home / name / "run.json").read_text())["run_id"] for name in ("all", "few")]
    assert ids[0] == ids[1]
    assert set(rows["image_id"]) == set(read(home / "all").select("image_id").collect()["image_id"])
    assert read(home / "all").select(pl.col("error").count()).collect().item() == 0
    assert max_pixels() == MAX_PIXELS


@pytest.mark.parametrize("value", ["0", "-5", "nan", "1e9", "9" * 5000])
def test_a_limit_that_is_none_is_refused(command: Command, value: str) -> None:
    code, _, err = command("run", "s.toml", "--max-pixels", value)
    assert code == 2
    assert "--max-pixels" in err
