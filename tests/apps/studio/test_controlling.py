"""Policies compared with a camera available: every photograph is taken once, and a second call takes none."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.apps.studio.conftest import write_images

from sorites.apps.studio.control import NAME, ControlOptions, control
from sorites.apps.studio.devices import DeviceOptions
from sorites.apps.studio.policies import NAMES
from sorites.apps.studio.session import Job
from sorites.core.errors import SoritesError
from sorites.io.logs import read_log

pytestmark = pytest.mark.slow

MODEL = """
import numpy as np

def logits(images):
    red, blue = (np.array([image[..., k].mean() / 255 for image in images]) for k in (0, 2))
    return np.stack([red, blue], axis=1).astype(np.float32) * 8
"""
ROWS = "idx,iso,ss,aperture\n1,250,1/4,9\n2,2000,1/60,5\n"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlOptions:
    """Eight images, two settings, a model that looks at the colour."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tints.py").write_text(MODEL)
    (tmp_path / "grid.csv").write_text(ROWS)
    write_images(tmp_path / "images", 8)
    job = Job(
        "folder:images",
        tmp_path / "out",
        "grid.csv",
        1,
        None,
        None,
        DeviceOptions(megapixels=0.06),
        side=None,
    )
    return ControlOptions(job, "python:tints:logits")


def answers(out: Path) -> list[dict[str, object]]:
    return [line for line in read_log(out / NAME, "") if line["event"] == "answer"]


def test_policies_share_photographs_and_the_same_call_takes_none(asked: ControlOptions) -> None:
    table, notes = control(asked, [].append)
    taken = answers(asked.job.out)
    assert set(table["policy"]) == set(NAMES)
    judged, taught = (int(word) for word in notes[0].replace(",", "").split() if word.isdigit())
    assert judged + taught == 8
    assert set(table["n"]) == {judged}
    keys = {(line["sample"], line["light"], line["setting"]) for line in taken}
    assert len(keys) == len(taken) <= 8 * 2 * (2 + 1)
    shots = dict(table.group_by("policy").agg(pl.col("shots").max()).iter_rows())
    assert (shots["auto"], shots["fixed"], shots["aggregate"], shots["oracle"]) == (1, 1, 1, 2)
    right = {
        row["policy"]: row["accuracy"] for row in table.filter(light=table["light"][0]).iter_rows(named=True)
    }
    assert right["oracle"] >= max(share for name, share in right.items() if name != "auto")
    again, _ = control(asked, [].append)
    assert again.equals(table)
    assert answers(asked.job.out) == taken
    with pytest.raises(SoritesError, match="another model, scorer or size"):
        control(ControlOptions(asked.job, "lite0"), [].append)
