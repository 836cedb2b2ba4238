from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow

import sorites
from sorites import core
from sorites.core import Generated, Model, Sample, Setting, Source
from sorites.core.errors import Damaged, SoritesError
from sorites.io.decode import decode
from sorites.sources import sidecar
from sorites.suites.suite import Suite, parse

FRAMED = {"resize": 48, "crop": 40}
SHIFTS = ["gaussian_noise", {"name": "jpeg", "levels": [1, 5]}, {"name": "defocus_disk", "severities": [1.5]}]
SAME = [
    "image_id",
    "sample_id",
    "label",
    "shift",
    "severity",
    "level",
    "family",
    "pred",
    "conf",
    "top5",
    "correct",
    "score",
    "scorer",
]


def suite(photos: Path, frame: dict[str, int] | None = None, **more: Any) -> Suite:
    data = {
        "name": "s",
        "source": f"folder:{photos}",
        "frame": frame,
        "shifts": SHIFTS,
        "scorers": ["msp"],
        "limit": 6,
        "seed": 3,
    }
    return parse({**data, **more}, "test")


def told(frame: pl.LazyFrame) -> pl.DataFrame:
    return frame.select(SAME).sort("image_id", "scorer").collect()


@pytest.mark.slow
@pytest.mark.parametrize("frame", [FRAMED, None], ids=["framed", "whole"])
def test_the_written_dataset_gives_the_table_of_the_fly(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, frame: dict[str, int] | None
) -> None:
    recipe = suite(photos, frame)
    written, errors = sorites.build(recipe, tmp_path / "set")
    assert (written, errors) == (6 * (1 + 5 + 2 + 1), [])
    fly = sorites.run(recipe, models=[tiny()], out=tmp_path / "fly").table
    again = recipe.override(source=f"folder:{tmp_path / 'set'}")
    assert told(sorites.run(again, models=[tiny()], out=tmp_path / "again").table).equals(told(fly))
    unnamed = again.model_copy(update={"shifts": (), "frame": None})
    assert told(sorites.run(unnamed, models=[tiny()], out=tmp_path / "unnamed").table).equals(told(fly))


def test_files_lie_by_shift_stop_and_class(photos: Path, tmp_path: Path) -> None:
    sorites.build(suite(photos), tmp_path / "set")
    held = pl.read_parquet(tmp_path / "set" / "sorites.parquet")
    assert all((tmp_path / "set" / path).is_file() for path in held["path"])
    assert held["path"].n_unique() == held.height == len(list((tmp_path / "set").rglob("*.png")))
    kinds = {tuple(path.split("/")[:-2]) for path in held["path"]}
    noise = {("gaussian_noise", str(n)) for n in range(1, 6)}
    assert kinds == {("clean",), ("jpeg", "1"), ("jpeg", "5"), ("defocus_disk", "1.5"), *noise}
    assert {path.split("/")[-2] for path in held["path"]} <= {
        "n01440764",
        "n01443537",
        "n01484850",
        "n01491361",
    }


def test_clean_files_hold_the_very_pixels(photos: Path, tmp_path: Path) -> None:
    sorites.build(suite(photos, shifts=["jpeg"]), tmp_path / "set")
    held = pl.read_parquet(tmp_path / "set" / "sorites.parquet").filter(pl.col("shift") == "clean")
    for sample, path in held.select("sample_id", "path").iter_rows():
        np.testing.assert_array_equal(decode(tmp_path / "set" / path), decode(photos / sample))


def test_a_build_that_stopped_goes_on(photos: Path, tmp_path: Path) -> None:
    def bar(what: str, steps: int) -> Callable[[int], None]:
        def tick(n: int) -> None:
            raise KeyboardInterrupt

        return tick

    recipe = suite(photos)
    with pytest.raises(KeyboardInterrupt):
        sorites.build(recipe, tmp_path / "set", workers=1, bar=bar)
    some = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*.png")}
    assert len(some) > 0
    (tmp_path / "set" / "clean" / "sorites-0123456789abcdef-99.tmp").write_bytes(b"half")
    sorites.build(recipe, tmp_path / "set")
    assert {path: path.stat().st_mtime_ns for path in some} == some
    assert not list((tmp_path / "set").rglob("*.tmp"))
    sorites.build(recipe, tmp_path / "whole")
    images = {p.relative_to(tmp_path / "whole"): p.read_bytes() for p in (tmp_path / "whole").rglob("*.png")}
    assert {
        p.relative_to(tmp_path / "set"): p.read_bytes() for p in (tmp_path / "set").rglob("*.png")
    } == images
    held, whole = (pl.read_parquet(tmp_path / name / "sorites.parquet") for name in ("set", "whole"))
    assert held.equals(whole)


def test_image_that_changed_is_written_again_and_no_other(photos: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(photos, tmp_path / "mine"))
    options: dict[str, Any] = {"limit": 2, "shifts": [{"name": "jpeg", "levels": [1]}]}
    sorites.build(suite(mine, **options), tmp_path / "set")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*.png")}
    first = pl.read_parquet(tmp_path / "set" / sidecar.NAME)["sample_id"][0]
    Pillow.fromarray(np.full((50, 60, 3), 90, np.uint8)).save(mine / first)
    sorites.build(suite(mine, **options), tmp_path / "set")
    again = {path for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert len(before) == 4
    assert {path.stem for path in again} == {Path(first).stem}
    assert len(again) == 2


def test_jpeg_on_request(photos: Path, tmp_path: Path) -> None:
    sorites.build(suite(photos, shifts=["jpeg"]), tmp_path / "fine", quality=95)
    sorites.build(suite(photos, shifts=["jpeg"]), tmp_path / "coarse", quality=10)
    paths = [sorted((tmp_path / name / "clean").rglob("*.jpg")) for name in ("fine", "coarse")]
    assert [len(found) for found in paths] == [6, 6]
    for fine, coarse in zip(*paths, strict=True):
        with Pillow.open(fine) as image:
            assert image.format == "JPEG"
        assert fine.stat().st_size > 2 * coarse.stat().st_size
    for wrong in (0, 101):
        with pytest.raises(SoritesError, match=f"quality.* got {wrong}"):
            sorites.build(suite(photos), tmp_path / "none", quality=wrong)
    assert not (tmp_path / "none").exists()


def test_a_suite_may_be_named(photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'source = "folder:{photos}"\nshifts = ["jpeg"]\nlimit = 2\n')
    assert sorites.build(path, tmp_path / "set") == (12, [])
    assert sorites.build(str(path), tmp_path / "set") == (12, [])


def test_a_folder_of_something_else_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(SoritesError, match="is not empty"):
        sorites.build(suite(photos), tmp_path)
    assert [p.name for p in tmp_path.iterdir() if p.name != ".sorites.lock"] == ["mine.txt"]
    sorites.build(suite(photos), tmp_path / "set")
    for other in ({"seed": 9}, {"shifts": ["jpeg"]}, {"frame": FRAMED}):
        with pytest.raises(SoritesError, match="another suite"):
            sorites.build(suite(photos, **other), tmp_path / "set")
    with pytest.raises(SoritesError, match="another suite"):
        sorites.build(suite(photos), tmp_path / "set", quality=80)


def test_places_that_cannot_be_written_are_clear_errors(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match="cannot create the dataset"):
        sorites.build(suite(photos), tmp_path / "file")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "sorites.json").write_text("{")
    with pytest.raises(Damaged, match="sorites.json"):
        sorites.build(suite(photos), tmp_path / "set")
    with (
        filelock.FileLock(tmp_path / "set" / ".sorites.lock"),
        pytest.raises(SoritesError, match="another process is writing"),
    ):
        sorites.build(suite(photos), tmp_path / "set")


def built(
    monkeypatch: pytest.MonkeyPatch, samples: list[Sample], out: Path, **more: Any
) -> tuple[int, list[str]]:
    """Build from samples in memory."""
    monkeypatch.setattr(core, "source", lambda spec, labels: Source("mine", samples))
    return sorites.build(parse({"name": "s", **more}, "test"), out)


def flat(value: int) -> Callable[[], np.ndarray]:
    return lambda: np.full((8, 8, 3), value, np.uint8)


def test_bad_images_are_told_and_the_rest_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> np.ndarray:
        raise SoritesError("truncated")

    samples = [Sample("good", Generated(flat(9)), 1), Sample("bad", Generated(broken), 1)]
    written, errors = built(monkeypatch, samples, tmp_path / "set", shifts=[{"name": "jpeg", "levels": [1]}])
    assert written == 2
    assert len(errors) == 2
    assert all("bad" in error and "truncated" in error for error in errors)


def test_settings_and_names_that_look_alike_get_their_own_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples = [
        Sample("a b", Generated(flat(1)), 1, shift="odd", setting=Setting(1.0000001)),
        Sample("a b", Generated(flat(2)), 1, shift="odd", setting=Setting(1.0000002)),
        Sample("a_b", Generated(flat(3)), 1, shift="odd", setting=Setting(1.0000002)),
        Sample("a b", Generated(flat(4)), 1, shift="grid", setting=Setting(None, {"lamp": "x y"})),
        Sample("a b", Generated(flat(5)), 1, shift="grid", setting=Setting(None, {"lamp": "x_y"})),
        Sample("a b", Generated(flat(6)), 1, shift="both", setting=Setting(1.0, {"lamp": "on"}, 1)),
        Sample("a b", Generated(flat(7)), 1, shift="both", setting=Setting(1.0, {"lamp": "off"}, 1)),
        Sample("a b", Generated(flat(8)), 1, shift="b/oth", setting=Setting(1.0, level=1)),
        Sample("a b", Generated(flat(9)), 1, shift="b_oth", setting=Setting(1.0, level=1)),
    ]
    assert built(monkeypatch, samples, tmp_path / "set") == (9, [])
    monkeypatch.undo()
    again = core.source(f"folder:{tmp_path / 'set'}")
    seen = {(s.id, s.shift, s.setting.canonical): int(s.load()[0, 0, 0]) for s in again}
    assert seen == {(s.id, s.shift, s.setting.canonical): int(s.load()[0, 0, 0]) for s in samples}


@pytest.mark.parametrize("name", ["../../out", "/out", "..", "a/../../b"])
def test_whatever_a_source_calls_its_shift_files_stay_inside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    samples = [Sample("../../../x", Generated(flat(1)), None, shift=name, setting=Setting(1.0, level=1))]
    home = tmp_path / "home"
    assert built(monkeypatch, samples, home / "set") == (1, [])
    assert len(list((home / "set").rglob("*.png"))) == 1
    assert [p.name for p in home.iterdir()] == ["set"]


def test_what_was_built_is_told_beside_it(photos: Path, tmp_path: Path) -> None:
    sorites.build(suite(photos), tmp_path / "set", quality=90)
    info = json.loads((tmp_path / "set" / "sorites.json").read_text())
    assert (info["quality"], info["suite"]["seed"]) == (90, 3)
    assert info["settings"]["defocus_disk"] == [1.5]


def test_names_as_long_as_the_system_allows_are_written(tmp_path: Path, photos: Path) -> None:
    (tmp_path / "in" / "n01440764").mkdir(parents=True)
    data = next(photos.rglob("*.png")).read_bytes()
    names = ["a" * 251, "a" * 250 + "b", "c" * 240]
    for name in names:
        (tmp_path / "in" / "n01440764" / f"{name}.png").write_bytes(data)
    written, errors = sorites.build(suite(tmp_path / "in", limit=None, shifts=["jpeg"]), tmp_path / "set")
    assert (written, errors) == (18, [])
    held = sorted(path.stem for path in (tmp_path / "set" / "clean").rglob("*.png"))
    assert len(set(held)) == 3
    assert "c" * 240 in held


@pytest.mark.parametrize("quality", [None, 80])
def test_images_that_are_empty_or_cut_short_are_written_again(
    tmp_path: Path, photos: Path, quality: int | None
) -> None:
    recipe, out = suite(photos), tmp_path / "set"
    sorites.build(recipe, out, quality=quality)
    paths = sorted(path for path in out.rglob("*") if path.suffix in (".png", ".jpg"))
    whole = [path.read_bytes() for path in paths]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(whole[1][:-5])
    sorites.build(recipe, out, quality=quality)
    assert [path.read_bytes() for path in paths] == whole
