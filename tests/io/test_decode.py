"""Every kind of file an image may come in, against numbers worked out by hand."""

from __future__ import annotations

import io
import os
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sorites.core.errors import BadImage
from sorites.io.decode import GROUND, decode, decode_rgba, on_ground


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG written from the specification, for the depths that Pillow does not write."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)), *extra]
    chunks += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = (struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def scanlines(values: np.ndarray) -> bytes:
    return b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM", "WEBP"])
def test_lossless_rgb_comes_back_as_it_was(kind: str) -> None:
    values = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    options = {"lossless": True} if kind == "WEBP" else {}
    image = decode(encoded(Image.fromarray(values), kind, **options))
    assert image.dtype == np.uint8
    assert image.flags.writeable
    assert np.array_equal(image, values)


def test_grey_is_three_equal_channels() -> None:
    image = decode(encoded(Image.fromarray(np.array([[0, 77, 255]], np.uint8)), "PNG"))
    assert image.tolist() == [[[0] * 3, [77] * 3, [255] * 3]]


def test_one_bit_is_black_and_white() -> None:
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert decode(encoded(image, "PNG")).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_grey_of_16_bits_is_scaled_not_clipped() -> None:
    values = np.array([[0, 255, 256, 0x8000, 0xFFFF]], np.uint16)
    image = Image.fromarray(values)
    for data in (encoded(image, "PNG"), encoded(image, "TIFF"), png(5, 1, 16, 0, scanlines(values))):
        assert decode(data)[0, :, 0].tolist() == [0, 0, 1, 128, 255]


def test_grey_of_16_bits_in_a_pgm() -> None:
    assert decode(b"P5 2 1 65535\n" + bytes([0x80, 0, 0xFF, 0xFF]))[0, :, 0].tolist() == [128, 255]


def test_grey_of_16_bits_with_a_transparent_value() -> None:
    data = png(2, 1, 16, 0, scanlines(np.array([[0x1234, 0xFFFF]])), (b"tRNS", b"\x12\x34"))
    assert decode_rgba(data).tolist() == [[[0x12, 0x12, 0x12, 0], [255, 255, 255, 255]]]


def test_colour_of_16_bits() -> None:
    data = png(2, 1, 16, 2, scanlines(np.array([[0, 0x8000, 0xFFFF, 0x0100, 0x7FFF, 0xFE00]])))
    assert decode(data).tolist() == [[[0, 128, 255], [1, 127, 254]]]


def test_colour_and_alpha_of_16_bits() -> None:
    data = png(2, 1, 16, 6, scanlines(np.array([[0xFF00, 0, 0x8000, 0xFFFF, 0xFF00, 0, 0, 0]])))
    assert decode(data).tolist() == [[[255, 0, 128], [GROUND] * 3]]


def test_floats_are_refused_with_advice() -> None:
    with pytest.raises(BadImage, match="save it with 8 or 16 bits"):
        decode(encoded(Image.new("F", (2, 2), 0.5), "TIFF"))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_alpha_is_mixed_with_the_ground(kind: str) -> None:
    image = Image.new("RGBA", (1, 1), (200, 100, 0, 51))  # one fifth
    want = [round(v / 5 + GROUND * 4 / 5) for v in (200, 100, 0)]
    assert decode(encoded(image, kind, **({"lossless": True} if kind == "WEBP" else {}))).tolist() == [[want]]


def test_on_ground_rounds_to_nearest_for_every_value_and_alpha() -> None:
    value, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    exact = (value.astype(float) * alpha + GROUND * (255.0 - alpha)) / 255
    assert np.abs(on_ground(np.dstack([value, value, value, alpha]))[..., 0] - exact).max() <= 0.5


def test_grey_with_alpha() -> None:
    image = Image.merge("LA", [Image.new("L", (1, 1), 40), Image.new("L", (1, 1), 0)])
    assert decode(encoded(image, "PNG")).tolist() == [[[GROUND] * 3]]


def test_palette_with_and_without_transparency() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    assert decode(encoded(image, "PNG")).tolist() == [[[10, 20, 30], [200, 100, 50]]]
    assert decode(encoded(image, "PNG", transparency=0)).tolist() == [[[GROUND] * 3, [200, 100, 50]]]
    assert decode(encoded(image, "GIF", transparency=0)).tolist() == [[[GROUND] * 3, [200, 100, 50]]]


def test_colour_key_transparency() -> None:
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    assert decode(encoded(image, "PNG", transparency=(1, 2, 3))).tolist() == [[[GROUND] * 3, [4, 5, 6]]]


def without_adobe(data: bytes) -> bytes:
    """The same JPEG without its APP14 segment."""
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4]) :]


def test_cmyk_with_and_without_the_mark_of_adobe() -> None:
    ink = (51, 102, 0, 51)  # .2 cyan, .4 magenta, .2 black
    want = np.array([255 * 0.8 * 0.8, 255 * 0.6 * 0.8, 255 * 0.8])
    adobe = encoded(Image.new("CMYK", (16, 16), ink), "JPEG", quality=100)
    plain = without_adobe(
        encoded(Image.new("CMYK", (16, 16), tuple(255 - v for v in ink)), "JPEG", quality=100)
    )
    for data in (adobe, plain, encoded(Image.new("CMYK", (16, 16), ink), "TIFF")):
        assert np.abs(decode(data).reshape(-1, 3) - want).max() <= 1.5


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
def test_exif_orientation(kind: str, orientation: int) -> None:
    """The tag says where the stored row 0 and column 0 belong (TIFF 6.0, p. 36): undone by hand,
    one case each.
    """
    upright = np.zeros((16, 24), np.uint8)
    upright[:8, :8] = 255
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: upright.T[::-1],
        7: upright.T[::-1, ::-1],
        8: upright.T[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = decode(encoded(Image.fromarray(np.ascontiguousarray(stored)), kind, exif=exif))
    assert image.shape == (16, 24, 3)
    assert np.abs(image[..., 0].astype(int) - upright).max() <= 1


def test_broken_exif_does_not_spoil_the_image() -> None:
    data = encoded(Image.new("L", (4, 4), 9), "PNG", exif=b"Exif\0\0not a tiff header")
    assert decode(data).shape == (4, 4, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_single_pixel(kind: str) -> None:
    assert decode(encoded(Image.new("RGB", (1, 1), (9, 9, 9)), kind)).shape == (1, 1, 3)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_gives_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (4, 4), (0, 0, 0)), Image.new("RGB", (4, 4), (255, 255, 255))]
    assert decode(encoded(frames[0], kind, save_all=True, append_images=frames[1:])).max() <= 2


def test_files_and_bytes_agree(tmp_path: Path) -> None:
    data = encoded(Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)), "PNG")
    (tmp_path / "a.jpg").write_bytes(data)  # the first bytes decide, not the name
    assert np.array_equal(decode(tmp_path / "a.jpg"), decode(data))
    assert np.array_equal(decode(str(tmp_path / "a.jpg")), decode_rgba(data)[..., :3])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_truncated_file_is_reported(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BadImage, match="cannot be read as an image"):
        decode(path)


def test_an_empty_file_a_text_and_a_riff_that_is_no_webp(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="object: the file is empty"):
        decode(b"", "object")
    (tmp_path / "a.png").write_text("hello, I am an image")
    with pytest.raises(BadImage, match="image: expected JPEG"):
        decode(tmp_path / "a.png")
    with pytest.raises(BadImage, match="not an image"):
        decode(b"RIFF\x10\0\0\0WAVEfmt ")


def test_other_parsers_are_not_reachable() -> None:
    for data in (encoded(Image.new("RGB", (4, 4)), kind) for kind in ("ICO", "PCX", "TGA", "EPS", "SGI")):
        with pytest.raises(BadImage, match="not an image"):
            decode(data)


def test_folders_missing_files_and_pipes(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="got a folder"):
        decode(tmp_path)
    with pytest.raises(BadImage, match="image: No such file"):
        decode(tmp_path / "none.png")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadImage, match="special file"):
        decode(tmp_path / "pipe.png")


def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to("loop.png")
    with pytest.raises(BadImage, match="Too many levels"):
        decode(tmp_path / "loop.png")
    path = tmp_path / "locked.png"
    path.write_bytes(encoded(Image.new("L", (2, 2)), "PNG"))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    with pytest.raises(BadImage, match=r"locked\.png: cannot be read as an image: Permission denied"):
        decode(path)


def test_damaged_bytes_never_raise_anything_else() -> None:
    rng = np.random.default_rng(1)
    clean = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        data = np.frombuffer(encoded(Image.fromarray(clean), kind), np.uint8)
        for _ in range(60):
            hurt = data.copy()
            hurt[rng.integers(0, len(data), 3)] = rng.integers(0, 256, 3)
            try:
                assert decode(hurt.tobytes()).ndim == 3
            except BadImage as error:
                assert str(error).startswith("bytes: ")  # noqa: PT017


def test_threads_decode_the_same() -> None:
    files = [encoded(Image.fromarray(np.full((32, 32, 3), i, np.uint8)), "PNG") for i in range(40)]
    start = threading.Barrier(4)

    def work(data: bytes) -> int:
        if data in files[:4]:
            start.wait(10)
        return int(decode(data)[0, 0, 0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, files)) == list(range(40))
