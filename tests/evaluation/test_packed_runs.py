"""A run of samples in columns is the run of the same samples as objects: id, manifest, shards,
table, and what it does again.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image as Pillow
from polars.testing import assert_frame_equal
from tests.conftest import scene
from tests.evaluation import fading

import sorites
from sorites.core import CLEAN, Model, packed, table
from sorites.core.errors import BadImage
from sorites.core.packed import SampleList
from sorites.evaluation import resume
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.record import read_record
from sorites.suites.suite import parse

SUITE = {
    "name": "s",
    "shifts": ["contrast", {"name": "jpeg", "levels": [1, 5]}],
    "scorers": ["msp"],
    "frame": {"resize": 40},
}


def both(monkeypatch: pytest.MonkeyPatch, out: Path, run: Callable[[Path], object]) -> tuple[Path, Path]:
    """Run once with samples as objects, and once with four of them in a block of columns."""
    run(out / "objects")
    monkeypatch.setattr(packed, "SAMPLES_PER_BLOCK", 4)
    run(out / "columns")
    return out / "objects", out / "columns"


def same(one: Path, other: Path) -> None:
    assert read_record(one).run_id == read_record(other).run_id
    assert_frame_equal(read_manifest(one), read_manifest(other))
    names = [sorted(path.name for path in (run / "predictions").iterdir()) for run in (one, other)]
    assert names[0] == names[1]
    assert_frame_equal(table.read(one).collect(), table.read(other).collect())


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 7])
def test_a_folder(
    photos: Path,
    tiny: Callable[..., Model],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
) -> None:
    def run(out: Path) -> None:
        sorites.run(
            parse(SUITE, "test"), source=f"folder:{photos}", models=[tiny()], out=out, limit=limit, refine=0.2
        )

    one, other = both(monkeypatch, tmp_path, run)
    same(one, other)
    held = plan_of(other).groups[CLEAN]
    assert sum(not isinstance(block, SampleList) for block in held._blocks) == 5
    assert held[0].load().shape == plan_of(one).groups[CLEAN][0].load().shape


def tars(folder: Path) -> Path:
    """Write twenty images in three tars."""
    folder.mkdir()
    for part in range(3):
        with tarfile.open(folder / f"a-{part}.tar", "w") as tar:
            for i in range(part, 20, 3):
                data = io.BytesIO()
                Pillow.fromarray(scene(i, 60, 80)).save(data, "png")
                for name, content in (
                    (f"{i:02d}.png", data.getvalue()),
                    (f"{i:02d}.cls", str(i % 4).encode()),
                ):
                    about = tarfile.TarInfo(name)
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"order": "shards", "limit": 9}])
def test_tars(
    tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    where = tars(tmp_path / "tars")
    suite = parse(
        {**SUITE, "labels": list(tiny().labels or ()), "source": f"webdataset:{where}", **more}, "test"
    )
    same(*both(monkeypatch, tmp_path, lambda out: sorites.run(suite, models=[tiny()], out=out)))


@pytest.mark.slow
def test_several_sources(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path) -> None:
        ood = {"far:there": f"folder:{photos}"}
        sorites.run(parse(SUITE, "test"), source=f"folder:{photos}", ood=ood, models=[tiny()], out=out)

    same(*both(monkeypatch, tmp_path, run))


def test_dials_of_samples_own(fading_source: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same(
        *both(
            monkeypatch, tmp_path, lambda out: sorites.run(fading.suite(), models=[fading.model()], out=out)
        )
    )


@pytest.mark.slow
def test_a_changed_image_is_done_again_and_no_other(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "SAMPLES_PER_BLOCK", 4)
    here = shutil.copytree(photos, tmp_path / "photos")

    def run() -> pl.DataFrame:
        return sorites.run(
            parse(SUITE, "test"), source=f"folder:{here}", models=[tiny()], out=tmp_path / "run"
        ).collect()

    run()
    image = next(here.rglob("p07.png"))
    Pillow.fromarray(scene(99, 50, 50)).save(image)
    with pytest.warns(UserWarning, match="1 of 20 images have changed"):
        after = run()
    assert len(list((tmp_path / "run/replaced/predictions").iterdir())) == 3
    assert after.height == sorites.read(tmp_path / "run").collect().height


@pytest.mark.parametrize("few", [0, 1000])
def test_a_image_that_changed_meanwhile_is_not_shown(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(packed, "SAMPLES_PER_BLOCK", 4)
    monkeypatch.setattr(resume, "MAX_DICT_ROWS", few)
    here = shutil.copytree(photos, tmp_path / "photos")
    sorites.run(parse(SUITE, "test"), source=f"folder:{here}", models=[tiny()], out=tmp_path / "run")
    Pillow.fromarray(scene(99, 50, 50)).save(next(here.rglob("p07.png")))
    samples = list(plan_of(tmp_path / "run").groups[CLEAN])
    (other,) = (sample for sample in samples if sample.id.endswith("p07.png"))
    with pytest.raises(BadImage, match=r"p07\.png has changed"):
        other.load()
    assert {sample.load().ndim for sample in samples if sample is not other} == {3}
