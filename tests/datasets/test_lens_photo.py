from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites import core
from sorites.core.errors import Notice, SoritesError
from sorites.core.rng import rng_for
from sorites.datasets.lens_photo import photograph, through
from sorites.io.decode import decode
from sorites.lenses import store as lenses
from sorites.lenses.store import Entry


@pytest.fixture(scope="module")
def lens() -> Entry:
    return lenses.load(lenses.builtin(), "CookeTriplet")


def make_image(height: int = 90, width: int = 130) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_photograph_is_what_the_shift_makes_of_it(lens: Entry) -> None:
    shift = core.shift("lens_whole")
    image = shift(core.to_float(make_image()), {"lens": "CookeTriplet"}, rng_for(0, "a", "lens_whole"))
    np.testing.assert_array_equal(through(lens, make_image()), core.to_uint8(image))


def test_kernels_between_the_azimuths_count_as_part_of_the_lens(lens: Entry, tmp_path: Path) -> None:
    Pillow.fromarray(make_image()).save(tmp_path / "a.png")
    photograph(lens, [tmp_path / "a.png"], tmp_path / "out")
    first = (tmp_path / "out" / "a.png").read_bytes()
    stated = {key: value for key, value in lens.arrays.items() if key != "between"}
    with pytest.warns(Notice):
        assert photograph(Entry(lens.name, stated, lens.about), [tmp_path / "a.png"], tmp_path / "out") == []
    assert (tmp_path / "out" / "a.png").read_bytes() != first


def test_any_format_comes_out_as_png_under_its_own_name(lens: Entry, tmp_path: Path) -> None:
    kinds = {"a.jpg": "JPEG", "b.png": "PNG", "c.webp": "WEBP", "d.tiff": "TIFF"}
    for name, kind in kinds.items():
        Pillow.fromarray(make_image()).save(tmp_path / name, kind)
    assert photograph(lens, [tmp_path / name for name in kinds], tmp_path / "out") == []
    for name in kinds:
        made = decode(tmp_path / "out" / f"{name[0]}.png")
        np.testing.assert_array_equal(made, through(lens, decode(tmp_path / name)))


def test_a_bad_image_is_named_and_the_rest_goes_on(lens: Entry, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xffnothing")
    (tmp_path / "good.png").write_bytes(b"")
    Pillow.fromarray(make_image()).save(tmp_path / "good.png")
    failed = photograph(
        lens, [tmp_path / "bad.jpg", tmp_path / "none.jpg", tmp_path / "good.png"], tmp_path / "out"
    )
    assert [path.name for path, _ in failed] == ["bad.jpg", "none.jpg"]
    assert "cannot be read as an image" in failed[0][1]
    assert "No such file" in failed[1][1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["good.png"]


def test_no_image_is_written_over(lens: Entry, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    for place in ("a.png", "more/a.png", "b.jpg"):
        Pillow.fromarray(make_image()).save(tmp_path / place)
    before = (tmp_path / "a.png").read_bytes()
    ((_, reason),) = photograph(lens, [tmp_path / "a.png", tmp_path / "b.jpg"], tmp_path)
    assert "it would overwrite" in reason
    assert (tmp_path / "a.png").read_bytes() == before
    ((path, reason),) = photograph(lens, [tmp_path / "a.png", tmp_path / "more/a.png"], tmp_path / "out")
    assert path == tmp_path / "more/a.png"
    assert "is already the result for" in reason


def test_typed_again_only_what_differs_is_made(lens: Entry, tmp_path: Path) -> None:
    Pillow.fromarray(make_image()).save(tmp_path / "a.png")
    made = tmp_path / "out" / "a.png"

    def when(corner: float) -> int:
        assert photograph(lens, [tmp_path / "a.png"], tmp_path / "out", corner) == []
        return made.stat().st_mtime_ns

    first = when(1.0)
    assert when(1.0) == first
    second = when(0.5)
    assert second != first
    Pillow.fromarray(make_image(91)).save(tmp_path / "a.png")
    assert when(0.5) != second
    assert decode(made).shape == (91, 130, 3)


@pytest.mark.parametrize("kind", ["image", "broken", "link"])
def test_a_file_that_was_not_written_here_is_never_replaced(lens: Entry, tmp_path: Path, kind: str) -> None:
    Pillow.fromarray(make_image()).save(tmp_path / "a.jpg")
    Pillow.fromarray(make_image()).save(tmp_path / "b.jpg")
    target = tmp_path / "a.png"
    if kind == "link":
        target.symlink_to(tmp_path / "elsewhere.png")
    elif kind == "broken":
        target.write_bytes(b"broken")
    else:
        Pillow.fromarray(make_image(20, 30)).save(target)
    before = target.is_symlink() or target.read_bytes()
    ((path, reason),) = photograph(lens, [tmp_path / "a.jpg", tmp_path / "b.jpg"], tmp_path)
    assert path == tmp_path / "a.jpg"
    assert reason.startswith(f"{path}: {target} exists")
    assert (target.is_symlink() or target.read_bytes()) == before
    assert (tmp_path / "b.png").is_file()


def test_a_corner_beyond_the_field_is_refused_before_any_work(lens: Entry, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="corner"):
        photograph(lens, [], tmp_path, 1.2)
