"""Composites: what is common is in words, one pose an object, boxes that fit, and more uncommon is harder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

import sorites
from sorites import core
from sorites.cli import app
from sorites.core import CLEAN, Generated, Sample
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.datasets.context import SIZE, Habits, build_context, compose, habits, read_habits, surroundings
from sorites.metrics import partition_accuracy
from sorites.scenes.scenery import DRAWN
from sorites.sources.papers.focus import WORDS

OX = Habits("ox", ("day",), ("grass",), ("street", "snow"))


def disc(name: str = "disc", colour: tuple[int, int, int] = (200, 40, 40)) -> Sample:
    """A disc cut out along its edge, a sample of the class ox."""
    y, x = np.mgrid[:90, :120]
    alpha = np.where((x - 60) ** 2 + (y - 45) ** 2 < 30**2, 255, 0).astype(np.uint8)
    image = np.where(alpha[..., None] > 0, np.array(colour, np.uint8), np.uint8(128))
    return Sample(name, Generated(lambda: image), imagenet().find("n02403003"), alpha=lambda: alpha)


def test_the_table_of_habits_is_in_the_words_of_the_attributes() -> None:
    assert len(habits()) == 95
    for id_, own in habits().items():
        assert own.name == imagenet().names[imagenet().ids.index(id_)]
        assert set(own.common) | set(own.uncommon) <= set(WORDS["location"]) - {"none"}
        assert not set(own.common) & set(own.uncommon)
        assert set(own.times) <= {"day", "night"}
        assert "indoors" not in own.uncommon, "weather has to find it outdoors"
    with pytest.raises(SoritesError, match="expected lines of"):
        read_habits("id\nn02403003\tox\n")


def test_eight_settings_one_for_each_choice_of_common_and_uncommon() -> None:
    found = surroundings(OX, np.random.default_rng(0))
    assert [s.level for s in found] == [0, 1, 1, 1, 2, 2, 2, 3]
    assert found[0].words == ("day", "sunny", "grass")
    assert len({s.rare for s in found}) == 8
    for setting in found:
        told = {a.key: a.common for a in setting.attrs("ox")}
        assert [not told[k] for k in ("time", "weather", "location")] == list(setting.rare)


def test_weather_stays_outdoors_and_night_is_common_for_some() -> None:
    mug = surroundings(Habits("mug", ("day",), ("indoors",), ("snow",)), np.random.default_rng(0))
    assert [s.level for s in mug] == [0, 1, 1, 2, 2, 3]
    assert {s.words[1] for s in mug if s.words[2] == "indoors"} == {"none"}
    assert mug[0].attrs("mug")[2].common is None
    frog = surroundings(Habits("frog", ("day", "night"), ("water",), ("street",)), np.random.default_rng(0))
    assert {s.words[0] for s in frog} == {"day"}


def test_the_object_stands_in_one_pose_and_its_box_fits_it() -> None:
    made = list(compose(disc(), OX, 0, ()))
    boxes = {box for _, _, box in made}
    assert len(boxes) == 1
    x0, y0, x1, y1 = boxes.pop()
    image = made[0][1]
    assert image.shape == (SIZE, SIZE, 3)
    red = (image[..., 0].astype(int) - image[..., 1] > 60) & (image[..., 0].astype(int) - image[..., 2] > 60)
    rows, cols = (np.flatnonzero(red.any(axis)) for axis in (1, 0))
    assert (x0, y0, x1, y1) == pytest.approx((cols[0], rows[0], cols[-1] + 1, rows[-1] + 1), abs=2)
    assert SIZE / 16 < x0 < x1 < SIZE * 15 / 16, "inside the middle 7/8"
    assert SIZE / 16 < y0 < y1 < SIZE * 15 / 16


def test_night_is_dark_and_weather_hides() -> None:
    shown = {s.rare: p.astype(float) for s, p, _ in compose(disc(), OX, 0, ())}
    day, night, wet = shown[False, False, False], shown[True, False, False], shown[False, True, False]
    assert night.mean() < 0.7 * day.mean()
    assert np.abs(wet - day).mean() > 5
    assert not np.array_equal(shown[False, False, True], day)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_images_and_another_does_not() -> None:
    first, again, other = ([p.tobytes() for _, p, _ in compose(disc(), OX, seed, ())] for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("location", list(DRAWN))
def test_every_location_can_be_drawn(location: str) -> None:
    made = DRAWN[location](96, np.random.default_rng(0))
    assert made.shape == (96, 96, 3)
    assert made.dtype == np.float32
    assert made.min() >= 0
    assert made.max() <= 1
    assert made.std() > 0.02
    assert set(DRAWN) == set(WORDS["location"]) - {"none"}


def test_image_without_a_mask_is_refused() -> None:
    plain = Sample("a", Generated(lambda: np.zeros((8, 8, 3), np.uint8)), 0)
    with pytest.raises(SoritesError, match="a has no mask"):
        next(compose(plain, OX, 0, ()))
    blank = Sample("b", plain.image, 0, alpha=lambda: np.zeros((8, 8), np.uint8))
    with pytest.raises(SoritesError, match="empty mask"):
        next(compose(blank, OX, 0, ()))


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(
        core.SOURCES._objects,
        "discs",
        lambda path, labels: [disc(f"d{i}", (200, 40 + i, 40)) for i in range(3)],
    )
    assert build_context(tmp_path / "out", "discs", drawn=True) == (3, 24)
    return tmp_path / "out"


@pytest.mark.slow
def test_a_folder_of_composites_is_read_with_its_attributes_and_boxes(built: Path) -> None:
    samples = core.source(f"context:{built}").samples
    assert len(samples) == 24
    assert sorted((s.shift, s.setting.severity, s.setting.level) for s in samples if s.id == "d0") == [
        (CLEAN, 0.0, None), *[("context", 1.0, 1)] * 3, *[("context", 2.0, 2)] * 3, ("context", 3.0, 3),
    ]  # fmt: skip
    for sample in samples:
        uncommon = sum(a.common is False for a in sample.attrs)
        assert uncommon == sample.setting.severity
        assert sample.ground_truth is not None
        (box,) = sample.ground_truth
        assert (box.label, box.conf) == (sample.label, None)
        assert Pillow.fromarray(sample.load()).size == (SIZE, SIZE)
    assert samples[0].attrs[0].value == "ox"


@pytest.mark.slow
def test_what_is_not_there_or_in_the_way_is_named(built: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(SoritesError, match="is not empty"):
        build_context(tmp_path / "full", "discs", drawn=True)
    with pytest.raises(SoritesError, match=r"seed differs.*out"):
        build_context(built, "discs", drawn=True, seed=1)
    with pytest.raises(SoritesError, match="context"):
        core.source("context")
    with pytest.raises(SoritesError, match="composites. Make them"):
        core.source(f"context:{tmp_path}")
    (built / "ground_truth.parquet").unlink()
    with pytest.raises(SoritesError, match="truth.parquet cannot be read: it is missing"):
        core.source(f"context:{built}")


@pytest.mark.slow
def test_composites_that_were_stopped_go_on_to_the_same_dataset(built: Path, tmp_path: Path) -> None:
    class Stopped(BaseException):
        pass

    def setting(n: int) -> None:
        raise Stopped

    part = tmp_path / "part"
    with pytest.raises(Stopped):
        build_context(part, "discs", drawn=True, tick=setting)
    kept = {path: path.stat().st_mtime_ns for path in part.rglob("*.png")}
    assert len(kept) == 8
    cut = min(kept)
    cut.write_bytes(cut.read_bytes()[:-20])
    assert build_context(part, "discs", drawn=True) == (3, 24)
    assert {path for path in kept if path.stat().st_mtime_ns != kept[path]} == {cut}
    names = [
        path.relative_to(built)
        for path in built.rglob("*")
        if path.is_file() and path.suffix in (".png", ".parquet")
    ]
    assert len(names) == 26
    assert all((part / name).read_bytes() == (built / name).read_bytes() for name in names)


def test_the_verb_builds_and_says_what_to_type_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(core.SOURCES._objects, "discs", lambda path, labels: [disc()])
    out = tmp_path / "c"
    done = CliRunner().invoke(app, ["context", "--source", "discs", "--drawn", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "wrote 8 images of 1 object " in done.output
    assert f"sorites run context --source context:{out}" in done.output.replace("\n", "")


@pytest.mark.long
@pytest.mark.slow
def test_every_model_does_worse_the_more_is_uncommon(tmp_path: Path) -> None:
    """The embedded photographs through lite0, lite1 and lite2: P0 > P1 > P2."""
    build_context(tmp_path / "made", limit=40)
    table = sorites.run("context", source=f"context:{tmp_path / 'made'}", out=tmp_path / "run")
    found = partition_accuracy(table).filter(pl.col("kinds").is_null())
    for model in ("lite0", "lite1", "lite2"):
        p0, p1, p2, *_ = found.filter(pl.col("model") == model).sort("uncommon")["value"]
        assert p0 > p1 > p2, (model, p0, p1, p2)
