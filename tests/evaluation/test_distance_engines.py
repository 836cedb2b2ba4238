"""Distances of a run whose features are made on an engine and kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

import sorites
from sorites.core import Model, table
from sorites.evaluation.facts import distance
from sorites.evaluation.storage.shards import delete_facts
from sorites.suites.suite import parse


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["exact", "hnsw"])
def test_a_run_is_encoded_on_an_engine_and_continued(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path, neighbours: str
) -> None:
    folder = tmp_path / "r"
    sorites.run(parse({"name": "s", "shifts": ["contrast"], "frame": {"resize": 40}}, "test"), source=f"folder:{photos}",
                models=[tiny()], out=folder)  # fmt: skip
    how = {"encoder": judge, "against": f"folder:{photos}", "k": 3, "neighbours": neighbours}
    first = distance.distance(str(folder), **how, engine="local", workers=2)
    kept = sorted((folder / "encoded").iterdir())
    times = [path.stat().st_mtime_ns for path in kept[1:]]
    kept[0].unlink()
    delete_facts(folder, "distance")
    again = distance.distance(str(folder), **how, engine="local", workers=2)
    assert [path.stat().st_mtime_ns for path in kept[1:]] == times
    assert again.rows.equals(first.rows)
    names = set(table.read(folder).collect()["degrees"].explode().struct.field("measure").drop_nulls())
    if neighbours == "exact":
        assert names == {"semantic", "covariate"}
        delete_facts(folder, "distance")
        alone = distance.distance(str(folder), **how)
        np.testing.assert_allclose(alone.rows["semantic"], first.rows["semantic"], atol=1e-5)
    else:
        assert all("hnsw(" in name and "recall" in name for name in names)


@pytest.mark.slow
def test_a_image_that_changed_is_encoded_again(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    mine = Path(shutil.copytree(photos, tmp_path / "mine"))
    suite = parse({"name": "s", "shifts": ["contrast"], "frame": {"resize": 40}}, "test")
    sorites.run(suite, source=f"folder:{mine}", models=[tiny()], out=tmp_path / "r")
    how = {"encoder": judge, "against": f"folder:{photos}", "k": 1}
    first = distance.distance(str(tmp_path / "r"), **how, engine="local")
    image = next(mine.rglob("*.png"))
    Pillow.fromarray(np.full((60, 60, 3), 7, np.uint8)).save(image)
    with pytest.warns(match="1 of 20 images have changed"):
        sorites.run(suite, source=f"folder:{mine}", models=[tiny()], out=tmp_path / "r")
    again = distance.distance(str(tmp_path / "r"), **how, engine="local")
    sorites.run(suite, source=f"folder:{mine}", models=[tiny()], out=tmp_path / "fresh")
    fresh = distance.distance(str(tmp_path / "fresh"), **how, engine="local")
    assert (
        again.rows["semantic"].to_list()
        == fresh.rows["semantic"].to_list()
        != first.rows["semantic"].to_list()
    )
