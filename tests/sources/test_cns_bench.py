from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

import sorites
from sorites import core
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet, labels
from sorites.sources.papers.cns_bench import classes

SCALES = (0, 500, 1000, 1500, 2000, 2500)


def shot(
    root: Path, shift: str, folder: str, seed: int, scale: int, name: str = "seed_{:04d}_scale_{:04d}.jpg"
) -> None:
    path = root / shift / folder / name.format(seed, scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.full((8, 8, 3), scale // 10, np.uint8)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for shift in ("heavy_snow", "painting_style"):
        for folder, seed in (("022_bald eagle", 34), ("950_orange", 7)):
            for scale in SCALES:
                shot(tmp_path, shift, folder, seed, scale)
    return tmp_path


def test_the_hundred_classes_are_imagenet_s() -> None:
    held = classes()
    assert len(held) == 100
    assert all(imagenet().find(name) == number for number, name in held.items())


def test_a_trajectory_is_shift_class_and_seed_with_its_scale_as_severity(root: Path) -> None:
    source = core.source(f"cns_bench:{root}")
    own = [s for s in source if s.id == "painting_style/022/seed_0034"]
    assert {s.label for s in own} == {22}
    assert sorted((s.shift, s.setting.severity, s.setting.level) for s in own) == [
        (CLEAN, 0.0, None), ("painting_style", 0.5, 1), ("painting_style", 1.0, 2), ("painting_style", 1.5, 3),
        ("painting_style", 2.0, 4), ("painting_style", 2.5, 5),
    ]  # fmt: skip
    assert len(source) == 2 * 2 * 6


def test_each_image_is_the_one_its_name_says(root: Path) -> None:
    for sample in core.source(f"cns_bench:{root}"):
        assert abs(int(sample.load().mean()) - 100 * (sample.setting.severity or 0)) <= 2


def test_annotations_say_which_images_count(root: Path) -> None:
    images = [
        {"image": f"heavy_snow/022_bald eagle/seed_0034_scale_{s:04d}.jpg", "seed": 34, "scale": s / 1000}
        | {"shift": "heavy_snow", "class": 22}
        for s in SCALES
    ]
    (root / "annotations_cns.json").write_text(json.dumps({"info": {}, "images": images}))
    by_folder, by_file = (core.source(f"cns_bench:{path}") for path in (root, root / "annotations_cns.json"))
    assert [s.id for s in by_folder] == [s.id for s in by_file] == ["heavy_snow/022/seed_0034"] * 6


def test_annotations_may_lie_apart_from_the_images(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    images = [
        {"image": f"heavy_snow/022_bald eagle/seed_0034_scale_{s:04d}.jpg", "seed": 34, "scale": s / 1000}
        | {"shift": "heavy_snow", "class": 22}
        for s in SCALES
    ]
    file = tmp_path_factory.mktemp("apart") / "mine.json"
    file.write_text(json.dumps({"images": images}))
    found = core.source(f"cns_bench:{root}?annotations={file}")
    assert [s.id for s in found] == ["heavy_snow/022/seed_0034"] * 6
    assert all(abs(int(s.load().mean()) - 100 * (s.setting.severity or 0)) <= 2 for s in found)
    with pytest.raises(SoritesError, match="annotations=FILE"):
        core.source(f"cns_bench:{file}?annotations={file}")
    with pytest.raises(SoritesError, match="such file or directory"):
        core.source(f"cns_bench:{root}?annotations={root / 'none.json'}")


def test_names_of_the_published_script_and_bare_class_names_are_read(tmp_path: Path) -> None:
    for scale in (0, 1000):
        shot(tmp_path, "heavy_rain", "bald eagle", 3, scale, "seed_{:04d}_startnoise_0750_scale_{:04d}m.png")
    made = core.source(f"cns_bench:{tmp_path}")
    assert [(s.label, s.setting.severity) for s in made] == [(22, 0.0), (22, 1.0)]


def test_a_trajectory_that_lacks_a_scale_goes_by_the_rule(root: Path) -> None:
    (root / "heavy_snow/022_bald eagle/seed_0034_scale_1500.jpg").unlink()
    (root / "painting_style/950_orange/seed_0007_scale_0000.jpg").unlink()
    with pytest.warns(UserWarning, match="2 of 4 trajectories"):
        assert len(core.source(f"cns_bench:{root}")) == 12
    with pytest.warns(UserWarning, match="1 of 4"):
        made = core.source(f"cns_bench:{root}?trajectories=completed")
    own = [s for s in made if s.id == "painting_style/950/seed_0007"]
    assert next((s.shift, s.setting.severity) for s in own) == (CLEAN, 0.0)
    assert len(core.source(f"cns_bench:{root}?trajectories=all")) == 22


def eagle(root: Path, name: str, folder: str = "022_bald eagle") -> None:
    shot(root, "heavy_snow", folder, 34, 500, name)


def told(root: Path, text: str) -> None:
    (root / "annotations_cns.json").write_text(text)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (
            lambda root: eagle(root, "seed_0034_scale_0500.png"),
            "scale 0.5:",
        ),
        (lambda root: eagle(root, "odd.png"), "name like"),
        (
            lambda root: eagle(root, "seed_0034_scale_0500.jpg", "a dragon"),
            "like '022_bald eagle'",
        ),
        (
            lambda root: told(root, '{"images": [{"image": "x.jpg"}]}'),
            "0: expected image, seed",
        ),
        (lambda root: told(root, "[]"), "expected JSON"),
    ],
)
def test_bad_input_is_reported(root: Path, spoil: object, match: str) -> None:
    spoil(root)  # type: ignore[operator]
    with pytest.raises(SoritesError, match=match):
        core.source(f"cns_bench:{root}")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("cns_bench", "cns_bench:PATH"),
        ("cns_bench:/nowhere", "does not exist"),
        ("cns_bench:{}?trajectory=all", "'trajectory'. Did you"),
        ("cns_bench:{}?trajectories=some", "completed, all; got 'some'"),
        ("cns_bench:{}?all", "PATH\\?key=value"),
    ],
)
def test_a_wrong_spec_is_reported(root: Path, spec: str, match: str) -> None:
    with pytest.raises(SoritesError, match=match):
        core.source(spec.format(root))


def test_other_labels_are_refused(root: Path) -> None:
    with pytest.raises(SoritesError, match="class 22 is not among"):
        core.source(f"cns_bench:{root}", labels(["cat", "dog"]))


def test_each_dial_starts_from_its_own_images(root: Path, tiny: object) -> None:
    """Scale 0 of a shift counts the trajectories of that shift alone."""
    for scale in SCALES:
        shot(root, "heavy_snow", "022_bald eagle", 50, scale)
    table = sorites.run("cns_bench", source=f"cns_bench:{root}", models=[tiny()], out=root.parent / "run")  # type: ignore[operator]
    curves = sorites.metrics.accuracy(
        sorites.metrics.with_clean(table.lazy().with_columns(correct=True)), by=("shift", "severity")
    )
    starts = {shift: n for shift, severity, _, n, *_ in curves.rows() if severity == 0}
    assert starts == {"clean": 5, "heavy_snow": 3, "painting_style": 2}


def annotated(root: Path, **changed: object) -> str:
    image = {
        "image": "snow/022_eagle/seed_0001_scale_0000.png",
        "seed": 1,
        "scale": 0,
        "shift": "snow",
        "class": 22,
    } | changed
    (root / "annotations_cns.json").write_text(json.dumps({"images": [image]}))
    return f"cns_bench:{root}"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"class": -1}, "0 to 999, got -1"),
        ({"class": 1000}, "0 to 999, got 1000"),
        ({"class": True}, "0: expected image, seed"),
        ({"seed": -1}, "seed from 0 up,"),
        ({"seed": 10**400}, "0: expected image, seed"),
        ({"scale": float("nan")}, "0: expected image, seed"),
        ({"scale": float("inf")}, "0: expected image, seed"),
        ({"shift": "clean"}, "name of a shift, got 'clean'"),
        ({"shift": ""}, "name of a shift, got ''"),
        (
            {"image": "../../etc/passwd"},
            "image as a path below",
        ),
        ({"image": "/etc/passwd"}, "expected image as a path below"),
    ],
)
def test_an_annotation_that_means_nothing_is_named(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(SoritesError, match=message):
        core.source(annotated(tmp_path, **changed))


def test_a_shift_folder_called_clean_takes_no_other_images_row(tmp_path: Path) -> None:
    for shift in ("clean", "snow"):
        folder = tmp_path / shift / "022_eagle"
        folder.mkdir(parents=True)
        for scale in (0, 1000):
            Pillow.new("RGB", (8, 8)).save(folder / f"seed_0001_scale_{scale:04d}.png")
    with pytest.raises(SoritesError, match="name of a shift, got 'clean'"):
        core.source(f"cns_bench:{tmp_path}")


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Images generated for classes of their own, with the file of these beside them."""
    for folder in ("000_disc", "002_small cross"):
        for scale in (0, 1000):
            shot(tmp_path / "shapes", "night", folder, 3, scale)
    (tmp_path / "classes.txt").write_text("disc\nring\nsmall cross\n")
    return tmp_path / "shapes"


def test_a_class_file_numbers_classes_that_are_not_imagenet_s(shapes: Path) -> None:
    file = shapes.parent / "classes.txt"
    spec = f"cns_bench:{shapes}?classes={file}"
    found = core.source(spec, labels(str(file)))
    assert {(s.id, s.label) for s in found} == {("night/000/seed_0003", 0), ("night/002/seed_0003", 2)}
    assert {s.setting.severity for s in found if s.shift == "night"} == {1.0}
    other_order = core.source(spec, labels(["small cross", "disc", "bird"]))
    assert {(s.id[6:9], s.label) for s in other_order} == {("000", 1), ("002", 0)}


def test_a_class_file_and_folders_that_do_not_agree_are_reported(shapes: Path) -> None:
    file = shapes.parent / "classes.txt"
    with pytest.raises(SoritesError, match="class 2"):
        core.source(f"cns_bench:{shapes}?classes={file}", labels(["disc", "ring"]))
    with pytest.raises(SoritesError, match="does not exist"):
        core.source(f"cns_bench:{shapes}?classes={file}x", labels(str(file)))
    (shapes / "night" / "000_disc").rename(shapes / "night" / "001_disc")
    with pytest.raises(SoritesError, match="like '000_disc': the number"):
        core.source(f"cns_bench:{shapes}?classes={file}", labels(str(file)))
    (shapes / "night" / "001_disc").rename(shapes / "night" / "007_bird")
    with pytest.raises(SoritesError, match="folder like '000_disc'"):
        core.source(f"cns_bench:{shapes}?classes={file}", labels(str(file)))
