"""Images along sliders: the published layout, resuming, and what the folder refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.apps.generation.conftest import FEW
from tests.datasets.test_croissant import validated

from sorites import core
from sorites.apps.generation import images
from sorites.apps.generation.cards import Description
from sorites.apps.generation.concepts import CNS_SHIFTS, concepts, shift_folder
from sorites.apps.generation.files import check_generated
from sorites.apps.generation.images import make_images
from sorites.apps.generation.pairs import axes_of, make_pairs
from sorites.core import ImageU8
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
    axes = axes_of([("snow", [1.0]), ("night", [1.0])])
    with pytest.raises(SoritesError, match="images along single sliders"):
        make_pairs(tiny, sliders, axes, [1], tmp_path, FEW, kind="png")


def test_a_call_that_drew_nothing_does_not_hold_the_folder(
    tiny: Pipe, sliders: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SoritesError("out of memory")

    some, write = sliders.kept(["snow"], ["disc"]), images.write_bytes
    monkeypatch.setattr(images, "write_bytes", full)
    with pytest.raises(SoritesError, match="out of memory"):
        make_images(tiny, some, (0.0,), [1], tmp_path, replace(FEW, guidance=3.0), "png")
    assert (tmp_path / images.RECORD).is_file()
    monkeypatch.setattr(images, "write_bytes", write)
    assert len(make_images(tiny, some, (0.0,), [1], tmp_path, FEW, "png")) == 1
    assert "1 images" in check_generated(tmp_path)
    with pytest.raises(SoritesError, match="guidance 2.0, not 3.0"):
        make_images(tiny, some, (0.0,), [1], tmp_path, replace(FEW, guidance=3.0), "png")


def test_a_shift_by_words_alone_shares_the_seeds_noise(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    rows = make_images(
        tiny, sliders.kept(["snow"], ["disc"]), (0.0, 1.0), [1], tmp_path, FEW, "png", by_text=True
    )
    told = rows.filter(pl.col("shift") == "snow_by_text")
    assert told["text"].to_list() == ["a picture of a disc", "a picture of a disc in snow"]
    zero = rows.filter(pl.col("severity") == 0)["hash"].to_list()
    assert zero[0] == zero[1]


def test_two_sliders_make_a_grid_that_the_reader_of_the_benchmark_reads(
    tiny: Pipe, sliders: Shelf, tmp_path: Path
) -> None:
    """Where one slider is at 0, images are those of the other alone; severities are kept in full precision."""
    disc, third = Concept(0, "disc"), 1 / 3
    axes = axes_of([("snow", [1.5]), ("night", [1.0, third])])
    some = sliders.kept((), ["disc"])
    rows = make_pairs(tiny, some, axes, [1, 2], tmp_path, FEW, sheet, "png")
    assert rows.height == 2 * 9
    source = core.source(f"cns_bench:{tmp_path}", labels(str(tmp_path / "labels.txt")))
    found = {(s.id, s.setting.canonical): s for s in source}
    assert len(found) == 18
    for severity in (0.75, 1.5):
        one = next(
            s for s in source
            if s.id.endswith("seed_0002") and s.setting.params == {"snow": severity, "night": 0.0}
        )  # fmt: skip
        request = along("a picture of a disc", 2, sliders.slider(tiny, "snow", disc), (severity,))
        assert np.abs(one.load() / 255 - sample(tiny, [request], FEW)[0][0]).max() < 1.5 / 255
    assert {s.setting.params["night"] for s in source if s.shift != "clean"} == {0.0, third, 1.0}
    with Image.open(next((tmp_path / "sheets").glob("*.png"))) as page:
        assert min(page.size) > 3 * 96
    assert make_pairs(tiny, some, axes, [1, 2], tmp_path, FEW, sheet, "png").equals(rows)
    assert "18 images" in check_generated(tmp_path)
    with pytest.raises(SoritesError, match="images along two sliders at once"):
        make_images(tiny, some, (0.0, 1.0), [1], tmp_path, FEW, "png")
    for wrong in ([("snow", [1.0])], [("snow", [1.0]), ("snow", [2.0])], [("snow", [0.0]), ("night", [1.0])]):
        with pytest.raises(SoritesError):
            axes_of(wrong)


def test_a_folder_describes_itself(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    """Card, Croissant metadata, annotations as released, and provenance in every file."""
    seen: list[int] = []

    def unsafe(images: Sequence[ImageU8]) -> list[bool]:
        seen.append(len(images))
        return [number == 0 for number in range(len(images))]

    severities, some = (0.0, 1 / 3, 1.0), sliders.kept(["snow"], ["disc"])
    about = Description("shapes", "cc-by-4.0", "python:mine:unsafe")
    rows = make_images(
        tiny, some, severities, [1, 2, 3, 7], tmp_path, FEW, "jpg", by_text=True, about=about, safety=unsafe
    )
    stored = pl.read_parquet(tmp_path / images.MANIFEST)
    assert stored["flagged"].sum() == len(seen)
    assert sum(seen) == rows.height
    card = (tmp_path / "README.md").read_text()
    for words in (
        "license: \"cc-by-4.0\"", "| seeds | 1 to 3, 7 |", "a picture of a disc in snow", tiny.version,
        f"{len(seen)} of {rows.height} images checked by `python:mine:unsafe`",
    ):  # fmt: skip
        assert words in card
    released = json.loads((tmp_path / "annotations_cns.json").read_text())["images"]
    assert released[1] == {
        "image": rows["path"][1], "seed": 1, "scale": 1 / 3, "shift": "snow", "class": 0,
    }  # fmt: skip
    source = core.source(f"cns_bench:{tmp_path}", labels(str(tmp_path / "labels.txt")))
    assert {s.setting.severity for s in source} == set(severities)
    assert len(source.samples) == len(released) == 4 * 3
    meta = json.loads((tmp_path / "croissant.json").read_text())
    assert meta["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    digest = hashlib.sha256((tmp_path / images.MANIFEST).read_bytes()).hexdigest()
    assert meta["distribution"][0]["sha256"] == digest
    assert {f["name"] for f in meta["recordSet"][0]["field"]} == set(stored.columns)
    matched = {p.relative_to(tmp_path).as_posix() for p in tmp_path.glob(meta["distribution"][1]["includes"])}
    assert matched == set(stored["path"])
    with Image.open(tmp_path / rows["path"][1]) as file:
        told = file.info["xmp"].decode()
    assert "trainedAlgorithmicMedia" in told
    text = ElementTree.fromstring(told.partition("?>")[2].rpartition("<?")[0]).find(".//{*}li").text
    facts = json.loads(str(text))
    assert (facts["seed"], facts["prompt"], facts["pipeline_version"]) == (
        1,
        "a picture of a disc",
        tiny.version,
    )
    assert facts["sliders"]["snow"]["severity"] == 1 / 3
    assert "18 images" not in check_generated(tmp_path)
    make_images(tiny, some, severities, [1, 8], tmp_path, FEW, "jpg")
    again = pl.read_parquet(tmp_path / images.MANIFEST)
    assert again["flagged"].sum() == len(seen), "what a checker said is kept"
    assert again["flagged"].null_count() == len(severities)
    card = (tmp_path / "README.md").read_text()
    assert f"{len(seen)} of {rows.height} images checked by a safety checker were flagged" in card
    assert "The other 3 were not checked." in card
    (tmp_path / "README.md").write_text(card + "mine")
    make_images(tiny, some, severities, [1], tmp_path, FEW, "jpg")
    assert (tmp_path / "README.md").read_text() == card + "mine", "a card that was edited is kept"
    with pytest.raises(SoritesError, match="licence"):
        Description(licence="see below\n")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlcroissant_reads_the_folder(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    about = Description("shapes", "cc-by-4.0")
    table = make_images(
        tiny, sliders.kept(["snow"], ["disc"]), (0.0, 1.0), [1], tmp_path, FEW, "png", about=about
    )
    dataset = validated(tmp_path)
    assert dataset.metadata.name == "shapes"
    assert [row["rows/path"].decode() for row in dataset.records("rows")] == table["path"].to_list()


def test_severities_seeds_and_names_that_cannot_be_are_refused(
    tiny: Pipe, sliders: Shelf, tmp_path: Path
) -> None:
    for severities, seeds, kind, said in (
        ((0.0, 101.0), [1], "png", "from -100 to 100"),
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
