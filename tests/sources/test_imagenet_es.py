"""ImageNet-ES by its published layout, made small: two references a split, every setting."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from sorites import core, metrics
from sorites.core import Model, camera_grid
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import labels
from sorites.evaluation.run import run
from sorites.reports.report import report
from sorites.suites.suite import load

WNIDS = ("n01443537", "n01484850")
NAMES = labels(WNIDS)


def write(folder: Path, shade: int, number: int) -> None:
    for i, wnid in enumerate(WNIDS):
        (folder / wnid).mkdir(parents=True, exist_ok=True)
        pixels = np.full((20, 24, 3), (shade + 40 * i) % 256, np.uint8)
        Image.fromarray(pixels).save(folder / wnid / f"ILSVRC2012_val_{number + i:08d}.JPEG")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("es") / "ImageNet-ES"
    parts = {"es-val": (64, "sampled_tin_no_resize", 10), "es-test": (27, "sampled_tin_no_resize2", 20)}
    for part, (settings, references, number) in parts.items():
        write(root / part / references, 100, number)
        for lamp in ("l1", "l5"):
            for k in range(1, settings + 1):
                write(root / part / "param_control" / lamp / f"param_{k}", k, number)
            for k in range(1, 6):
                write(root / part / "auto_exposure" / lamp / f"param_{k}", 200 + k, number)
    write(root / "es-train" / "tin_no_resize_sample_removed", 100, 30)
    return root


def test_reads_both_captured_parts_with_their_settings(small: Path) -> None:
    source = core.source(f"imagenet_es:{small},all", NAMES)
    clean = [s for s in source if s.shift == "clean"]
    assert len(clean) == 4
    assert len(source) == 4 + 2 * 2 * (64 + 5) + 2 * 2 * (27 + 5)
    assert {(s.split, s.attrs[0].value) for s in clean} == {("val", "S1"), ("test", "S2")}
    assert {s.label for s in clean} == {0, 1}
    wanted = {
        s.setting.canonical for s in core.source(f"imagenet_es:{small}/es-test", NAMES) if s.shift == "camera"
    }
    assert len(wanted) == 2 * (27 + 5)


def test_a_setting_is_its_folder(small: Path) -> None:
    """JPEG of one flat grey is exact: folder 14 of l5 holds grey 14."""
    params = camera_grid.manual("test", "off")[13]
    found = [s for s in core.source(f"imagenet_es:{small}/es-test", NAMES) if s.setting.params == params]
    assert [s.id for s in found] == [
        "n01443537/ILSVRC2012_val_00000020.JPEG",
        "n01484850/ILSVRC2012_val_00000021.JPEG",
    ]
    assert found[0].load()[0, 0].tolist() == [14, 14, 14]


def test_the_training_part_has_references_alone(small: Path) -> None:
    samples = core.source(f"imagenet_es:{small}/es-train", NAMES).samples
    assert [(s.split, s.shift, s.attrs[0].value) for s in samples] == [("train", "clean", "S3")] * 2


def test_the_folder_above_will_do(small: Path) -> None:
    assert len(core.source(f"imagenet_es:{small.parent}", NAMES)) == len(
        core.source(f"imagenet_es:{small}", NAMES)
    )


def test_missing_settings_are_reported(small: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(small / "es-test", tmp_path / "es-test")
    shutil.rmtree(broken / "param_control" / "l5" / "param_3")
    shutil.rmtree(broken / "auto_exposure" / "l1")
    with pytest.raises(SoritesError, match="lacks"):
        core.source(f"imagenet_es:{broken}", NAMES)


def test_many_missing_folders_are_counted(small: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(small / "es-test", tmp_path / "es-test")
    shutil.rmtree(broken / "param_control")
    with pytest.raises(SoritesError, match="48 more. Unpack"):
        core.source(f"imagenet_es:{broken}", NAMES)


def test_missing_images_are_reported(small: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(small / "es-test", tmp_path / "es-test")
    (broken / "param_control/l1/param_2/n01443537/ILSVRC2012_val_00000020.JPEG").unlink()
    with pytest.raises(
        SoritesError,
        match="each of the 2",
    ):
        core.source(f"imagenet_es:{broken}", NAMES)


@pytest.mark.parametrize(("path", "message"), [("", "folder"), (":/nowhere", "does not exist")])
def test_no_folder_says_what_to_type(path: str, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        core.source(f"imagenet_es{path}", NAMES)


def test_the_suite_asks_about_tiny_imagenets_classes() -> None:
    suite = load("imagenet_es")
    assert len(suite.labels) == len(set(suite.labels)) == 200
    assert list(suite.labels) == sorted(suite.labels)
    thousand = set(labels("imagenet").ids)
    assert set(suite.labels) <= thousand


@pytest.mark.slow
def test_a_run_gives_the_setting_table(small: Path, tmp_path: Path, tiny: Callable[..., Model]) -> None:
    table = run(
        "imagenet_es",
        source=f"imagenet_es:{small}/es-test",
        models=[tiny()],
        labels=WNIDS,
        out=tmp_path / "run",
    )
    rows = metrics.setting_table(table)
    assert set(rows["what"]) == {"auto", "average", "best", "worst"}
    assert set(rows["light"]) == {"on", "off", "both", "difference"}
    assert metrics.setting_accuracy(table)["n"].unique().sort().to_list() == [2, 10]
    assert (
        table.lazy().filter(pl.col("shift") == "camera").select(pl.col("family").unique()).collect().item()
        == "camera"
    )


def test_the_folder_is_read_as_the_test_split(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The paper's tables are about the test split; the message names how to read the other."""
    with caplog.at_level("INFO", "sorites"):
        samples = core.source(f"imagenet_es:{small}", NAMES)
    assert {sample.split for sample in samples} == {"test"}
    assert len(samples) == 2 + 2 * 2 * (27 + 5)
    assert f"imagenet_es:{small}/es-val" in caplog.text
    assert f"imagenet_es:{small},all" in caplog.text
    caplog.clear()
    core.source(f"imagenet_es:{small}/es-test", NAMES)
    assert not caplog.text


def test_a_folder_with_one_part_says_nothing(
    small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(small / "es-test", tmp_path / "es-test")
    with caplog.at_level("INFO", "sorites"):
        assert {sample.split for sample in core.source(f"imagenet_es:{tmp_path}", NAMES)} == {"test"}
    assert not caplog.text


@pytest.mark.slow
def test_splits_are_side_by_side_and_pooled_only_with_a_notice(
    small: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    """Each split has the numbers that a run of it alone has; the page draws both."""
    read = {"models": [tiny()], "labels": WNIDS}
    both = run("imagenet_es", source=f"imagenet_es:{small},all", **read, out=tmp_path / "both")
    alone = run("imagenet_es", source=f"imagenet_es:{small}", **read, out=tmp_path / "test")
    table = metrics.setting_table(both)
    assert set(table["split"]) == {"val", "test"}
    assert table.filter(split="test").equals(metrics.setting_table(alone))
    assert metrics.camera_control(both).filter(split="test").equals(metrics.camera_control(alone))
    with pytest.warns(Notice) as caught:
        metrics.setting_accuracy(both, by=("model",))
    assert [(w.message.code, w.message.fields["splits"]) for w in caught] == [  # type: ignore[union-attr]
        ("splits_pooled", ["test", "val"])
    ]
    page = report([tmp_path / "both"], tmp_path / "page.html").read_text(encoding="utf-8")
    found = re.search(r'<section id="exposure".*?</section>', page, re.S)
    assert found is not None
    assert re.findall("<h3>Split (.*?)</h3>", found.group()) == ["test", "val"]
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
