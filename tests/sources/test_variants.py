"""Released variants: corruption trees, arrays, and class folders as named shifts."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sorites
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import imagenet, labels

CAT, DOG, TENCH = "n02123045", "n02085620", "n01440764"


def photo(path: Path, grey: int, size: tuple[int, int] = (24, 24)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(grey).integers(0, 40, (*size, 3))
    Image.fromarray((noise + grey).astype(np.uint8)).save(path)
    return path


def test_a_tree_of_corruptions_with_clean_images(tmp_path: Path) -> None:
    name = "ILSVRC2012_val_00000001"
    for group, corruption in (("blur", "defocus_blur"), ("noise", "shot_noise")):
        for level in range(1, 6):
            photo(tmp_path / "c" / group / corruption / str(level) / CAT / f"{name}.JPEG", 20 * level)
    photo(tmp_path / "val" / CAT / f"{name}.png", 10, (40, 50))
    spec = f"variants:{tmp_path / 'c'}?clean={tmp_path / 'val'}&resize=32&crop=24&jpeg=85&severities=1,5"
    samples = list(sorites.source(spec))
    assert {sample.id for sample in samples} == {f"{CAT}/{name}"}
    assert {sample.label for sample in samples} == {281}
    keys = [
        (sample.shift, sample.family, sample.setting.severity, sample.setting.level) for sample in samples
    ]
    assert keys == [
        ("clean", "", 0.0, None),
        ("defocus_blur", "blur", 1.0, 1),
        ("defocus_blur", "blur", 5.0, 5),
        ("shot_noise", "noise", 1.0, 1),
        ("shot_noise", "noise", 5.0, 5),
    ]
    # The clean image went through the same steps: resize, crop, JPEG.
    with Image.open(tmp_path / "val" / CAT / f"{name}.png") as original:
        small = original.resize((40, 32), Image.Resampling.BILINEAR).crop((8, 4, 32, 28))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=85)
    assert np.array_equal(samples[0].load(), np.asarray(Image.open(buffer)))
    assert all(sample.framed for sample in samples)


def test_folders_of_parameters_are_ranked(tmp_path: Path) -> None:
    """ImageNet-C-bar: its script names folders by the parameter with two decimals."""
    for parameter in ("0.80", "10.60", "1.60", "2.40", "4.00"):
        photo(tmp_path / "blue_noise_sample" / parameter / CAT / "1.JPEG", 50)
    samples = list(sorites.source(f"variants:{tmp_path}"))
    found = {
        (
            sample.setting.severity,
            sample.load().shape[0],
            str(sample.image).split("blue_noise_sample")[1][1:5],
        )
        for sample in samples
    }
    assert {(severity, name) for severity, _, name in found} == {
        (1.0, "0.80"),
        (2.0, "1.60"),
        (3.0, "2.40"),
        (4.0, "4.00"),
        (5.0, "10.6"),
    }
    (tmp_path / "blue_noise_sample" / "2.40").rename(tmp_path / "elsewhere")
    with pytest.raises(SoritesError, match="expected all 5, got 4"):
        list(sorites.source(f"variants:{tmp_path}"))


def test_arrays_of_cifar(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stack, clean = rng.integers(0, 256, (10, 8, 8, 3), np.uint8), rng.integers(0, 256, (4, 8, 8, 3), np.uint8)
    np.save(tmp_path / "fog.npy", stack)
    np.save(tmp_path / "labels.npy", np.array([9, 3] * 5, np.uint8))
    (tmp_path / "original").mkdir()
    np.save(tmp_path / "original" / "test.npy", clean)
    space = labels(["cat", "truck", *"abcdefgh"])
    samples = list(sorites.source(f"variants:{tmp_path}?clean={tmp_path / 'original' / 'test.npy'}", space))
    # Class 9 of CIFAR-10 is the truck, and class 3 the cat, wherever the suite has them.
    assert [sample.label for sample in samples] == [1, 0] * 6
    assert np.array_equal(samples[1].load(), clean[1])
    assert all(np.array_equal(sample.load(), stack[i]) for i, sample in enumerate(samples[2:]))
    assert [sample.setting.level for sample in samples[2:]] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]

    with (tmp_path / "fog.npy").open("wb") as file:
        np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(SoritesError, match="array of numbers"):
        sorites.source(f"variants:{tmp_path}", space)
    (tmp_path / "fog.npy").write_bytes(pickle.dumps([1]))
    with pytest.raises(SoritesError, match="array of numbers"):
        sorites.source(f"variants:{tmp_path}", space)


def test_class_folders_as_named_shifts_with_a_mask_of_classes(tmp_path: Path) -> None:
    for wnid in ("n01498041", TENCH):
        photo(tmp_path / "imagenet-a" / wnid / "1.png", 90)
    space = labels("imagenet-a")
    with pytest.warns(Notice, match=TENCH):
        (sample,) = sorites.source(f"variants:{tmp_path / 'imagenet-a'}", space)
    assert (sample.shift, space.ids[sample.label or 0]) == ("imagenet-a", "n01498041")
    assert sample.setting.severity is None
    assert not sample.framed
    # Folders of numbers (ImageNet-V2) are numbers of ImageNet, also with the classes of a subset.
    photo(tmp_path / "v2" / "6" / "1.png", 90)
    (numbered,) = sorites.source(f"variants:{tmp_path / 'v2'}", space)
    assert numbered.label == sample.label
    # Several at once, and the original images under the name clean.
    both = sorites.source(f"variants:{tmp_path}", imagenet())
    assert {each.shift for each in both} == {"imagenet-a", "v2"}
    (clean,) = sorites.source(f"variants:{tmp_path / 'v2'}?name=clean", imagenet())
    assert clean.shift == "clean"


def test_a_subset_of_imagenet_without_its_mask_is_told(tmp_path: Path) -> None:
    photo(tmp_path / "imagenet-a" / "n01498041" / "1.png", 90)
    with pytest.warns(Notice) as told:
        (sample,) = sorites.source(f"variants:{tmp_path / 'imagenet-a'}", imagenet())
    assert sample.label == 6
    fields = [notice.message.fields for notice in told if isinstance(notice.message, Notice)]
    assert fields == [{"labels": "imagenet-a"}]
    # All 200 classes are recognised under any name.
    for wnid in labels("imagenet-r").ids:
        photo(tmp_path / "renditions" / wnid / "1.png", 90)
    with pytest.warns(Notice, match="imagenet-r"):
        assert len(list(sorites.source(f"variants:{tmp_path / 'renditions'}", imagenet()))) == 200


def test_numbers_of_cifar_are_no_positions_of_imagenet(tmp_path: Path) -> None:
    np.save(tmp_path / "fog.npy", np.zeros((10, 8, 8, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.array([9, 3] * 5, np.uint8))
    for space in (imagenet(), labels("imagenet-a")):
        with pytest.raises(SoritesError, match="10 classes"):
            sorites.source(f"variants:{tmp_path}", space)


def test_classes_of_a_file_and_real_labels(tmp_path: Path) -> None:
    photo(tmp_path / "objects" / "alarm_clock" / "1.png", 90)
    photo(tmp_path / "objects" / "air_freshener" / "1.png", 90)
    mapping = {"Alarm clock": "analog clock; digital clock"}
    (tmp_path / "map.json").write_text(json.dumps(mapping))
    with pytest.warns(Notice, match="air_freshener"):
        (clock,) = sorites.source(f"variants:{tmp_path / 'objects'}?classes={tmp_path / 'map.json'}")
    assert clock.right == {imagenet().find("analog clock"), imagenet().find("digital clock")}

    for number in (1, 2):
        photo(tmp_path / "val" / CAT / f"ILSVRC2012_val_0000000{number}.png", 90)
    (tmp_path / "real.json").write_text("[[281, 282], []]")
    spec = f"variants:{tmp_path / 'val'}?name=clean&real={tmp_path / 'real.json'}"
    first, second = sorites.source(spec)
    assert (first.right, second.right) == ({281, 282}, frozenset())


def test_folders_of_objectnet(tmp_path: Path) -> None:
    """Its folders are not always called like the classes of its mapping, and its images have a border."""
    for folder in ("coffee_french_press", "drying_rack_for_dishes"):
        photo(tmp_path / "images" / folder / "1.png", 90)
    mapping = {"Coffee/French press": "espresso maker", "Drying rack for plates": "plate rack"}
    (tmp_path / "map.json").write_text(json.dumps(mapping))
    spec = f"variants:{tmp_path / 'images'}?classes={tmp_path / 'map.json'}"
    with pytest.warns(Notice) as told:
        (only,) = sorites.source(spec)
    assert only.label == imagenet().find("espresso maker")
    codes = {
        notice.message.code: str(notice.message) for notice in told if isinstance(notice.message, Notice)
    }
    assert "drying rack for plates" in codes["names_without_folders"]
    assert "drying_rack_for_dishes" in codes["classes_left_out"]

    (tmp_path / "folders.json").write_text('{"drying_rack_for_dishes": "Drying rack for plates"}')
    both = sorites.source(f"{spec}&folders={tmp_path / 'folders.json'}&trim=2")
    assert [sample.label for sample in both] == [only.label, imagenet().find("plate rack")]
    assert np.array_equal(both.samples[0].load(), only.load()[2:-2, 2:-2])
    for wrong in ("&trim=0", f"&folders={tmp_path / 'none.json'}"):
        with pytest.raises(SoritesError):
            sorites.source(spec + wrong)
    with pytest.raises(SoritesError, match="pass that, too"):
        sorites.source(f"variants:{tmp_path / 'images'}?folders={tmp_path / 'folders.json'}")
    photo(tmp_path / "c" / "fog" / "1" / CAT / "1.png", 90)
    with pytest.raises(SoritesError, match="class folders"):
        sorites.source(f"variants:{tmp_path / 'c'}?trim=2")


@pytest.mark.parametrize(("name", "count", "some"), [
    ("imagenet-a", 200, "n01498041"), ("imagenet-r", 200, "n01443537"), ("imagenet-100", 100, "n02869837"), ("imagenet-200", 200, "n01443537"),
])  # fmt: skip
def test_published_class_lists(name: str, count: int, some: str) -> None:
    space = labels(name)
    assert len(set(space.ids)) == count
    assert set(space.ids) <= set(imagenet().ids)
    assert space.names[space.find(some)] == imagenet().names[imagenet().find(some)]


def test_a_model_is_masked_to_the_classes_of_the_variants(tmp_path: Path) -> None:
    import polars as pl

    def predict(images: list[np.ndarray]) -> np.ndarray:
        logits = np.zeros((len(images), 1000), np.float32)
        logits[:, imagenet().find(TENCH)] = 9  # not among the 200 classes
        logits[:, imagenet().find("n01498041")] = 5
        return logits

    model = sorites.Model(
        "m", lambda images: sorites.Outputs(predict(images)), labels=imagenet().ids, version="1"
    )
    photo(tmp_path / "imagenet-a" / "n01498041" / "1.png", 90)
    source = f"variants:{tmp_path / 'imagenet-a'}"
    run = sorites.run(
        "variants", source=source, labels="imagenet-a", models={"m": model}, out=tmp_path / "run"
    )
    assert run.table.filter(pl.col("shift") == "imagenet-a").collect()["correct"].to_list() == [True]
