"""Images that a model was trained on are counted, named, and left out on request."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sorites
from sorites import core
from sorites.core.errors import Damaged, SoritesError
from sorites.evaluation.combine import combine, open_folders
from sorites.evaluation.storage.contents import contents
from sorites.evaluation.storage.overlap import overlap_notes, overlap_of, record_overlap
from sorites.models import trained
from sorites.models.preprocess import Input
from sorites.suites.suite import parse


def training(folder: Path, images: list[Path], validation: list[Path], parent: str = "small") -> str:
    """Write the folder of a model that was trained on some images."""
    torch = pytest.importorskip("torch")
    samples = [core.Sample(path.name, core.FileRef(path)) for path in (*images, *validation)]
    part = ["train"] * len(images) + ["validation"] * len(validation)
    listed = pl.DataFrame({"part": part, "id": [sample.id for sample in samples]})
    buffer = io.BytesIO()
    pl.concat([listed, contents(samples)], how="horizontal").write_parquet(buffer)
    folder.mkdir()
    (folder / trained.DATA).write_bytes(buffer.getvalue())
    record = trained.Record(
        network="small",
        classes=("a", "b"),
        input=Input(size=(32, 32)),
        recipe={},
        recipe_hash="",
        data_hash="",
        parent={"spec": parent, "weights": None},
        steps=1,
    )
    trained.write(folder, record, {"w": torch.zeros(1)}, [trained.DATA])
    return f"trained:{folder}"


@pytest.fixture
def files(photos: Path) -> list[Path]:
    return sorted(photos.rglob("*.png"))


def suite(photos: Path, **more: Any) -> Any:
    return parse({"name": "o", "source": f"folder:{photos}", "shifts": ["contrast"], **more}, "test")


@pytest.mark.slow
def test_samples_that_a_model_was_trained_on_are_counted_and_named(
    photos: Path, files: list[Path], tiny: Any, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    copied = [Path(shutil.copy(path, copies / f"x{i}.png")) for i, path in enumerate(files[:7])]
    spec = training(tmp_path / "m", copied, files[7:9])
    run = sorites.run(suite(photos), models=[tiny()], out=tmp_path / "run", engine="local", workers=1)
    assert overlap_of(run.folder) == {}
    found = record_overlap(run.folder, suite(photos, models=[f"tiny={spec}"]))
    assert found == overlap_of(run.folder) == {"tiny": (7, 20)}
    (note,) = overlap_notes(found)
    assert note in combine(open_folders([run.folder])).notes
    other = sorites.run(suite(photos), models=[tiny("o")], out=tmp_path / "other", engine="local", workers=1)
    assert sum("was trained on 7" in text for text in sorites.compare(other.folder, run.folder).notes) == 1


def test_images_that_a_model_or_its_parent_has_seen_are_left_out(
    photos: Path, files: list[Path], tiny: Any, tmp_path: Path
) -> None:
    parent = training(tmp_path / "parent", files[:3], [])
    child = training(tmp_path / "child", files[3:5], files[5:6], parent)
    options: Any = {"models": [tiny()], "engine": "local", "workers": 1}
    run = sorites.run(suite(photos), unseen_by=[child], out=tmp_path / "run", **options)
    seen = set(run.table.select("sample_id").collect()["sample_id"])
    assert seen == {str(path.relative_to(photos)) for path in files[5:]}
    with pytest.raises(SoritesError, match="trained:DIR"):
        sorites.run(suite(photos), unseen_by=["lite0"], out=tmp_path / "no", **options)
    everything = training(tmp_path / "all", files, [])
    with pytest.raises(SoritesError, match="all 20 images"):
        sorites.run(suite(photos), unseen_by=[everything], out=tmp_path / "none", **options)


def test_a_changed_list_of_training_images_is_refused(files: list[Path], tmp_path: Path) -> None:
    training(tmp_path / "m", files[:2], [])
    assert len(trained.training_contents(tmp_path / "m")) == 2
    (tmp_path / "m" / trained.DATA).write_bytes(b"no")
    with pytest.raises(Damaged):
        trained.training_contents(tmp_path / "m")
