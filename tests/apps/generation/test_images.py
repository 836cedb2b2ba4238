"""Images along sliders: the published layout, resuming, and what the folder refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.apps.generation.conftest import FEW

from sorites import core
from sorites.apps.generation import images
from sorites.apps.generation.concepts import CNS_SHIFTS, concepts, shift_folder
from sorites.apps.generation.images import combined, make_combined, make_images
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import along, sample
from sorites.diffusion.shelves import Concept, Shelf, shelf
from sorites.io import files
from sorites.reports.figures.strips import sheet

pytestmark = pytest.mark.slow

SEVERITIES = (0.0, 1.0, 2.5)


def _all(pipe: Pipe, sliders: Shelf, out: Path) -> pl.DataFrame:
    return make_images(pipe, sliders, SEVERITIES, [1, 2], out, FEW, "png")


@pytest.fixture(scope="module")
def drawn(tiny: Pipe, sliders: Shelf, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    out = tmp_path_factory.mktemp("drawn")
    return out, _all(tiny, sliders, out)


@pytest.mark.slow
def test_images_are_in_the_layout_that_the_reader_of_the_benchmark_reads(
    tiny: Pipe, sliders: Shelf, drawn: tuple[Path, pl.DataFrame]
) -> None:
    out, rows = drawn
    assert len(rows) == 2 * 2 * 2 * 3
    source = core.source(f"cns_bench:{out}", labels(str(out / "labels.txt")))
    found = {(s.id, s.shift, s.setting.severity): s for s in source}
    assert len(found) == len(rows)
    one = found["snow/003/seed_0002", "snow", 2.5]
    assert one.label == 1
    slider = sliders.slider(tiny, "snow", Concept(3, "cross"))
    again = sample(tiny, [along("a picture of a cross", 2, slider, SEVERITIES)], FEW)[0][2]
    assert np.abs(one.load() / 255 - again).max() < 1 / 255


def test_a_published_class_file_is_not_needed_for_imagenet(tmp_path: Path) -> None:
    (tmp_path / "heavy_snow" / "022_bald eagle").mkdir(parents=True)
    for scale in (0, 500):
        Image.new("RGB", (9, 9)).save(tmp_path / f"heavy_snow/022_bald eagle/seed_0001_scale_{scale:04d}.jpg")
    assert {s.label for s in core.source(f"cns_bench:{tmp_path}", labels("imagenet"))} == {22}
    (tmp_path / "classes.tsv").write_text("22\teagle\n22\thawk\n")
    with pytest.raises(SoritesError, match="each number once"):
        core.source(f"cns_bench:{tmp_path}", labels("imagenet"))


def test_the_manifest_says_what_every_image_follows_from(drawn: tuple[Path, pl.DataFrame]) -> None:
    out, rows = drawn
    assert rows.equals(pl.read_parquet(out / images.MANIFEST))
    one = rows.row(-1, named=True)
    for word in ("guidance", "steps", "start", "negative", "pipeline_version", "seeding"):
        assert word in one["params"]
    assert "diffusers" in one["libraries"]
    assert rows["hash"].n_unique() > 16
    assert rows["slider_version"].n_unique() == 4


def test_an_interrupted_folder_goes_on(
    tiny: Pipe,
    sliders: Shelf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drawn: tuple[Path, pl.DataFrame],
) -> None:
    write, count = files.write_bytes, [0]

    def stopping(data: bytes, path: Path) -> None:
        count[0] += path.suffix == ".png"
        if count[0] == 8:
            raise KeyboardInterrupt
        write(data, path)

    monkeypatch.setattr(images, "write_bytes", stopping)
    with pytest.raises(KeyboardInterrupt):
        _all(tiny, sliders, tmp_path)
    assert not (tmp_path / images.MANIFEST).exists()
    monkeypatch.setattr(images, "write_bytes", write)
    again = _all(tiny, sliders, tmp_path)
    assert again["hash"].to_list() == drawn[1]["hash"].to_list()


def test_no_room_on_disk_is_said_and_leaves_nothing_half_written(
    tiny: Pipe, sliders: Shelf, tmp_path: Path, drawn: tuple[Path, pl.DataFrame]
) -> None:
    """The system refuses to write a file beyond some bytes, which stops in the middle of it as a
    full disk does.
    """
    import resource

    some = sliders.kept(["snow"], ["disc"])
    largest = max(file.stat().st_size for file in drawn[0].glob("snow/000_disc/*.png"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    make_images(tiny, some, SEVERITIES[:1], [1], tmp_path, FEW, "png")
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, before[1]))
    try:
        with pytest.raises(SoritesError, match="File too large"):
            _all(tiny, some, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [file for file in tmp_path.rglob("*") if files.is_temporary(file)]
    _all(tiny, some, tmp_path)
    assert len(list(core.source(f"cns_bench:{tmp_path}", labels(str(tmp_path / "labels.txt"))))) == 2 * 3


def test_a_folder_of_other_images_is_refused(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    some = sliders.kept(["snow"], ["disc"])
    make_images(tiny, some, (0.0, 1.0), [1], tmp_path, FEW, "png")
    with pytest.raises(SoritesError, match="guidance 2.0, not 3.0"):
        make_images(tiny, some, (0.0, 1.0), [1], tmp_path, replace(FEW, guidance=3.0), "png")
    more = make_images(tiny, some, (0.0, 1.0, 2.0), [1, 2], tmp_path, FEW, "png")
    assert len(more) == 6


def test_a_shift_by_words_alone_shares_the_seeds_noise(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    rows = make_images(
        tiny, sliders.kept(["snow"], ["disc"]), (0.0, 1.0), [1], tmp_path, FEW, "png", by_text=True
    )
    told = rows.filter(pl.col("shift") == "snow_by_text")
    assert told["text"].to_list() == ["a picture of a disc", "a picture of a disc in snow"]
    zero = rows.filter(pl.col("severity") == 0)["hash"].to_list()
    assert zero[0] == zero[1]


def test_two_sliders_are_drawn_as_a_sheet_of_two_ways(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    disc, tops = Concept(0, "disc"), [("snow", 1.5), ("night", 1.0)]
    rows = combined(tiny, sliders, tops, disc, 1, FEW)
    single = sample(
        tiny, [along("a picture of a disc", 1, sliders.slider(tiny, "snow", disc), (0.0, 0.75, 1.5))], FEW
    )[0]
    np.testing.assert_allclose([row[0] for row in rows], single, atol=1e-4)
    pages = make_combined(tiny, sliders.kept((), ["disc"]), tops, [1], tmp_path, FEW, sheet, "png")
    with Image.open(pages[0]) as page:
        assert min(page.size) > 3 * 96
    with pytest.raises(SoritesError, match="two different sliders"):
        combined(tiny, sliders, tops[:1], disc, 1, FEW)


def test_severities_seeds_and_names_that_cannot_be_are_refused(
    tiny: Pipe, sliders: Shelf, tmp_path: Path
) -> None:
    for severities, seeds, kind, said in (
        ((0.0, 1e-5), [1], "png", "in thousandths"),
        ((1.0,), [], "png", "one or more seeds"),
        ((1.0,), [1], "gif", "jpg or png"),
    ):
        with pytest.raises(SoritesError, match=said):
            make_images(tiny, sliders, severities, seeds, tmp_path, FEW, kind)
    with pytest.raises(SoritesError, match="Did you mean snow"):
        sliders.kept(["snwo"], [])
    with pytest.raises(SoritesError, match="Did you mean disc"):
        sliders.kept([], ["disk"])
    with pytest.raises(SoritesError, match="no finished slider"):
        shelf(tmp_path)


def test_the_hundred_classes_and_fourteen_shifts_are_there_by_name(tmp_path: Path) -> None:
    assert len(concepts("cns")) == 100
    assert len(CNS_SHIFTS) == 14
    assert shift_folder("the style of a tattoo") == "the_style_of_a_tattoo"
    assert concepts("cns", ["bald eagle"]) == [Concept(22, "bald eagle")]
    with pytest.raises(SoritesError, match="Did you mean bald eagle"):
        concepts("cns", ["bald eagel"])
    (tmp_path / "mine.txt").write_text("cup\n7\tred fox\n")
    assert concepts(str(tmp_path / "mine.txt")) == [Concept(0, "cup"), Concept(7, "red fox")]
    (tmp_path / "mine.txt").write_text("../up\n")
    with pytest.raises(SoritesError, match="one class per line"):
        concepts(str(tmp_path / "mine.txt"))
    with pytest.raises(SoritesError, match="a few plain words"):
        shift_folder("../up")
