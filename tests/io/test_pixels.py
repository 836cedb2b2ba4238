"""How large an image may be, and that a large one is not in memory many times over."""

from __future__ import annotations

import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sorites.core.errors import BadImage, SoritesError
from sorites.evaluation.engines.local import processes
from sorites.io import decode as _decode
from sorites.io.decode import MAX_PIXELS, decode, decode_rgba, max_pixels, pixel_limit

HEADER = b"P5 %d %d 255\n"


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_a_bomb_is_refused_before_it_is_decoded_and_says_what_to_type() -> None:
    side = int(MAX_PIXELS**0.5)
    with pytest.raises(
        BadImage,
        match="x 10001 pixels.*100010000",
    ):
        decode(HEADER % (side, side + 1))
    # at the limit: no warning, only what is wrong with the data
    with pytest.raises(BadImage, match="cannot be read"):
        decode(HEADER % (side, side))


def test_a_format_that_takes_twice_the_memory_counts_twice() -> None:
    data = encoded(Image.new("RGB", (20, 10)), "WEBP")
    with pixel_limit(399), pytest.raises(BadImage, match="counted twice"):
        decode(data)
    with pixel_limit(400):
        assert decode(data).shape == (10, 20, 3)


def test_the_limit_holds_only_meanwhile_in_all_threads_and_none_changes_nothing() -> None:
    with pixel_limit(77):
        with pixel_limit(None):
            assert max_pixels() == 77
        with pixel_limit(5), ThreadPoolExecutor(1) as pool:
            assert pool.submit(max_pixels).result() == 5
        assert max_pixels() == 77
    assert max_pixels() == MAX_PIXELS


def test_worker_processes_take_the_limit_over() -> None:
    with pixel_limit(77):
        assert list(processes(["a"], _limit_in_worker, 1)) == [("a", 77)]


def _limit_in_worker(task: str) -> int:
    return max_pixels()


@pytest.mark.parametrize("most", [-1, 0])
def test_a_limit_below_one_is_refused_and_changes_nothing(most: int) -> None:
    with pytest.raises(SoritesError), pixel_limit(most):
        pass
    assert max_pixels() == MAX_PIXELS


def kinds() -> dict[str, bytes]:
    """An image of 23 x 17 px in every mode whose bytes become RGB by another way."""
    rng = np.random.default_rng(0)
    rgba = Image.fromarray(rng.integers(0, 256, (17, 23, 4), dtype=np.uint8), "RGBA")
    turned = Image.Exif()
    turned[0x0112] = 6
    palette = rgba.convert("RGB").quantize(20)
    return {
        "RGB": encoded(rgba.convert("RGB"), "PNG"),
        "RGBA": encoded(rgba, "PNG"),
        "LA": encoded(rgba.convert("LA"), "PNG"),
        "P": encoded(palette, "PNG"),
        "P with a clear colour": encoded(palette, "PNG", transparency=3),
        "P with alphas": encoded(palette, "PNG", transparency=bytes(range(0, 200, 10))),
        "RGB with a clear colour": encoded(rgba.convert("RGB"), "PNG", transparency=(1, 2, 3)),
        "16 bits": encoded(Image.fromarray(rng.integers(0, 65536, (17, 23), dtype=np.uint16)), "PNG"),
        "1 bit": encoded(rgba.convert("1"), "PNG"),
        "turned": encoded(rgba.convert("RGB"), "JPEG", exif=turned),
        "CMYK": encoded(rgba.convert("CMYK"), "JPEG"),
        "WebP": encoded(rgba, "WEBP", lossless=True),
        "GIF": encoded(palette, "GIF", transparency=2),
        "TIFF": encoded(rgba, "TIFF"),
    }


@pytest.mark.parametrize(("name", "data"), kinds().items(), ids=kinds())
@pytest.mark.parametrize("strip", [1, 23 * 5, 23 * 16])
def test_strips_give_the_same_image_as_the_whole(
    name: str, data: bytes, strip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut_out = decode(data), decode_rgba(data)
    monkeypatch.setattr(_decode, "STRIP", strip)
    assert np.array_equal(decode(data), whole)
    assert np.array_equal(decode_rgba(data), cut_out)
    assert decode(data).flags.writeable
    assert decode(data).flags.c_contiguous


PEAK = """
import resource, sys
from sorites.io.decode import decode
decode(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decode(sys.argv[2])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_a_large_cut_out_is_in_memory_twice_and_not_seven_times(tmp_path: Path) -> None:
    side = 3000
    for name, size in (("small", 8), ("large", side)):
        (tmp_path / f"{name}.png").write_bytes(encoded(Image.new("RGBA", (size, size), (9, 9, 9, 99)), "PNG"))
    command = [sys.executable, "-c", PEAK, str(tmp_path / "small.png"), str(tmp_path / "large.png")]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak / side**2 < 14, "bytes per pixel; 4 that Pillow decodes, 3 of the result, and a strip"
