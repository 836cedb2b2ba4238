"""The published lists over a small tree of the published make; what is missing is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites import core
from sorites.core import Model, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet, labels
from sorites.evaluation import plan
from sorites.sources.papers.is_ood import is_ood, prompts, styles
from sorites.suites.suite import load

VAL = ["ILSVRC2012_val_00000001", "ILSVRC2012_val_00000002"]
LISTS = {
    "imagenet1k/test_imagenet.txt": [f"./val/{name}.JPEG" for name in VAL],
    "imagenet21k/train/cov_0_sem_7.txt": ["./imagenet21k_train/n01323261/n01323261_1932.JPEG"],
    "imagenet21k/val/cov_0_sem_7.txt": ["./imagenet21k_val/n01440764/n01440764_1.JPEG", ""],
    "imagenet21k/val/cov_5_sem_1.txt": [f"./imagenet21k_val/n01323261/n01323261_{i}.JPEG" for i in range(5)],
    "SynIS/cov_2_sem_3.txt": ["./cov_2_sem_3/1076_5135_33.png"],
}
HOMES = {"imagenet1k": "imagenet1k", "imagenet21k": "imagenet21k", "SynIS": "SynIS"}


def image(path: Path, value: int = 7) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path, "PNG")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, lines in LISTS.items():
        path = tmp_path / "imglist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for line in filter(None, lines):
            image(tmp_path / HOMES[name.split("/")[0]] / line)
    rows = "ImageId,PredictionString\n" + "".join(f"{name},n01440764 1 2 3 4\n" for name in VAL)
    (tmp_path / "imagenet1k" / "LOC_val_solution.csv").write_text(rows, encoding="utf-8")
    return tmp_path


def told(sample: object) -> dict[str, str]:
    return {attr.key: attr.value for attr in sample.attrs}  # type: ignore[attr-defined]


def test_reads_the_lists_with_levels_from_one(root: Path) -> None:
    found = {sample.id: sample for sample in is_ood(str(root), imagenet())}
    assert len(found) == 2 + 1 + 1 + 5 + 1
    graded = found["imagenet21k/imagenet21k_train/n01323261/n01323261_1932.JPEG"]
    assert (told(graded), graded.shift, graded.label, graded.split) == (
        {"sem_level": "8", "cov_level": "1"},
        "imagenet21k",
        None,
        "unknown",
    )
    known = found["imagenet21k/imagenet21k_val/n01440764/n01440764_1.JPEG"]
    assert (known.label, known.shift, known.split) == (0, "imagenet21k", "val")
    made = found["SynIS/cov_2_sem_3/1076_5135_33.png"]
    assert (made.shift, told(made)) == (
        "syn_is",
        {"sem_level": "4", "cov_level": "3", "word": "5135", "style": "33"},
    )
    in_distribution = found[f"imagenet1k/val/{VAL[0]}.JPEG"]
    assert (in_distribution.label, in_distribution.shift, in_distribution.attrs) == (0, "clean", ())
    assert made.load().mean() == 7


def test_the_repository_itself_is_the_folder_above(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    above = tmp_path_factory.mktemp("repository")
    root.rename(above / "data")
    assert len(is_ood(str(above), imagenet())) == 10


def test_labels_of_the_in_distribution_come_from_class_folders_too(root: Path) -> None:
    (root / "imagenet1k" / "LOC_val_solution.csv").unlink()
    assert {s.label for s in is_ood(str(root), imagenet()) if s.shift == "clean"} == {None}, "none is needed"
    for i, name in enumerate(VAL):
        (root / "imagenet1k" / "val" / f"{name}.JPEG").unlink()
        image(root / "imagenet1k" / "val" / imagenet().ids[i] / f"{name}.JPEG")
    assert [s.label for s in is_ood(str(root), imagenet()) if s.shift == "clean"] == [0, 1]


def test_one_set_alone_and_some_of_each_list(root: Path) -> None:
    assert {s.shift for s in is_ood(f"{root},syn_is", imagenet())} == {"clean", "syn_is"}
    some = is_ood(f"{root},imagenet21k,each=2", imagenet())
    assert len(some) == 2 + 1 + 1 + 2
    again = is_ood(f"{root},imagenet21k,each=3", imagenet())
    assert {s.id for s in some} <= {s.id for s in again}


def test_missing_files_are_counted_and_named(root: Path) -> None:
    (root / "imagenet21k/imagenet21k_val/n01323261/n01323261_3.JPEG").unlink()
    (root / "SynIS/cov_2_sem_3/1076_5135_33.png").unlink()
    (root / "SynIS/cov_2_sem_3").rmdir()
    (root / "SynIS").rmdir()
    with pytest.raises(SoritesError) as error:
        is_ood(str(root), imagenet())
    said = str(error.value)
    assert "2 of 10 listed images are missing" in said
    assert f"SynIS: 1; no folder {root / 'SynIS'}, first SynIS/cov_2_sem_3/1076_5135_33.png" in said
    assert "imagenet21k: 1, first imagenet21k/imagenet21k_val/n01323261/n01323261_3.JPEG" in said
    assert f"is_ood:{root},present" in said
    with pytest.warns(UserWarning, match="2 of 10 listed"):
        assert len(is_ood(f"{root},present", imagenet())) == 8


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "is_ood"),
        ("nowhere", "published lists"),
        ("{},each=0", "got 'each=0'"),
    ],
)
def test_reports_what_is_expected(root: Path, path: str | None, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        is_ood(path and path.format(root), imagenet())


def test_a_missing_list_is_reported(root: Path) -> None:
    (root / "imglist/imagenet1k/test_imagenet.txt").unlink()
    with pytest.raises(
        SoritesError,
        match="such file or directory",
    ):
        is_ood(str(root), imagenet())


def test_the_styles_are_the_papers_51() -> None:
    assert len(set(styles())) == 51
    assert (styles()[0], styles()[-1]) == ("art nouveau", "tilt-shift")
    made = list(prompts(labels(["frog", "ship"]).names))
    assert len(made) == 102
    assert made[0] == ("frog", "art nouveau", "art nouveau style frog")


@pytest.mark.parametrize("line", ["../secret.png", "val/../../x.png", "/etc/passwd", "C:\\x.png"])
def test_a_list_may_not_lead_out_of_its_folder(tmp_path: Path, line: str) -> None:
    (tmp_path / "imglist/imagenet1k").mkdir(parents=True)
    (tmp_path / "imglist/imagenet1k/test_imagenet.txt").write_text(f"\nval/a.png\n{line}\n")
    with pytest.raises(SoritesError, match="line 3: expected a path"):
        core.source(f"is_ood:{tmp_path},present")


def test_absurd_options_are_reported(tmp_path: Path) -> None:
    (tmp_path / "imglist").mkdir()
    for word in ("each=0", "each=-1", "each=" + "9" * 5000, "each=x"):
        with pytest.raises(SoritesError, match="imagenet21k, syn_is, each=N"):
            core.source(f"is_ood:{tmp_path},{word}")


def test_table_1_eight_methods_stand_in_the_suite_and_three_wait_for_training_images(
    root: Path, tiny: Callable[..., Model]
) -> None:
    eight = {"msp", "odin", "mds", "gradnorm", "knn", "dice", "rankfeat", "ash_b"}
    suite = load("is_ood")
    assert eight <= {*suite.scorers, *suite.scorers_if_fitted}
    made = plan.make(suite, Source("is_ood", is_ood(str(root), imagenet())), {"lite0": tiny()})
    assert set(made.left_out) == {"mds", "knn", "dice"}
    assert eight - set(made.left_out) == eight & set(made.scorers)


def test_imagenet_21k_is_framed_224_and_224_as_the_released_code_does() -> None:
    image = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    resized = Pillow.fromarray(image).resize((298, 224), Pillow.Resampling.BILINEAR).crop((37, 0, 261, 224))
    np.testing.assert_array_equal(load("is_ood").frames["imagenet21k"](image), np.asarray(resized))
