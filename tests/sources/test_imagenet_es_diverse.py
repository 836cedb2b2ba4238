"""ImageNet-ES-Diverse by its published layout, made small."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tools.net import images

from sorites import core
from sorites.core import camera_grid
from sorites.core.errors import SoritesError
from sorites.core.labels import labels

SPACE = labels(images.CLASSES)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("es") / "ImageNet-ES-Diverse"
    images.imagenet_es_diverse(str(root))
    return root


@pytest.mark.parametrize("below", ["", "..", "es-diverse-test"])
def test_reads_six_environments_of_32_settings(small: Path, below: str) -> None:
    samples = list(core.source(f"imagenet_es_diverse:{small / below}", SPACE))
    photographs = [sample for sample in samples if sample.shift == "camera"]
    assert len(samples) - len(photographs) == 2
    assert len(photographs) == 2 * 6 * (27 + 5)
    by_light = Counter(sample.setting.params["light"] for sample in photographs)
    assert by_light == dict.fromkeys(("l1", "l2", "l3", "l4", "l6", "l7"), 2 * 32)
    assert {sample.split for sample in samples} == {"test"}


def test_a_setting_is_its_folder(small: Path) -> None:
    samples = list(core.source(f"imagenet_es_diverse:{small}", SPACE))
    wanted = {**camera_grid.manual("test", "on")[4], "light": "l6"}
    found = [sample for sample in samples if sample.setting.params == wanted]
    assert [sample.image.path.parts[-4:-2] for sample in found] == [("l6", "param_5")] * 2  # type: ignore[union-attr]
    auto = [s for s in samples if s.setting.params == {"light": "l7", "mode": "auto", "shot": 3}]
    assert "auto_exposure/l7/param_3" in str(auto[0].image.path)  # type: ignore[union-attr]


@pytest.mark.parametrize("lost", ["param_control/l3", "auto_exposure/l2/param_4", "sampled_tin_no_resize2"])
def test_a_part_that_is_missing_is_named(small: Path, tmp_path: Path, lost: str) -> None:
    shutil.copytree(small, tmp_path / "d")
    shutil.rmtree(tmp_path / "d" / "es-diverse-test" / lost)
    with pytest.raises(SoritesError, match=lost.rpartition("/")[2] if "auto" in lost else "expected"):
        list(core.source(f"imagenet_es_diverse:{tmp_path / 'd'}", SPACE))


@pytest.mark.parametrize("spec", ["imagenet_es_diverse", "imagenet_es_diverse:none"])
def test_another_folder_is_refused(spec: str) -> None:
    with pytest.raises(SoritesError, match="imagenet_es_diverse|ImageNet-ES-Diverse"):
        list(core.source(spec, SPACE))
