"""Images in every format, spoilt: each is decoded, or is a ``BadImage`` that becomes a row of
the table.
"""

from __future__ import annotations

import io

import numpy as np
from hypothesis import strategies as st
from PIL import Image
from tests.fuzz import bounds, hostile

from sorites.core.errors import BadImage
from sorites.io.decode import decode, decode_rgba


def images() -> list[bytes]:
    """Small images of all formats and modes that are read."""
    noise = np.random.default_rng(0).integers(0, 256, (9, 14, 4), dtype=np.uint8)
    rgba = Image.fromarray(noise, "RGBA")
    grey16 = Image.fromarray(noise[..., 0].astype(np.uint16) * 200)
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: list[tuple[Image.Image, str, dict[str, object]]] = [
        (rgba, "PNG", {}), (rgba.convert("RGB"), "PNG", {}), (rgba.convert("P"), "PNG", {"transparency": 3}), (grey16, "PNG", {}),
        (rgba.convert("LA"), "PNG", {}), (rgba.convert("1"), "PNG", {}), (rgba.convert("RGB"), "JPEG", {"exif": exif}),
        (rgba.convert("RGB"), "JPEG", {"progressive": True}), (rgba.convert("CMYK"), "JPEG", {}), (rgba, "WEBP", {}),
        (rgba.convert("RGB"), "WEBP", {"lossless": True}), (rgba.convert("P"), "GIF", {}), (rgba.convert("RGB"), "BMP", {}),
        (rgba, "TIFF", {}), (grey16, "TIFF", {}), (rgba.convert("RGB"), "TIFF", {"compression": "tiff_lzw"}),
        (rgba.convert("RGB"), "TIFF", {"compression": "jpeg"}), (rgba.convert("RGB"), "PPM", {}), (grey16, "PPM", {}),
    ]  # fmt: skip
    made = []
    for image, kind, options in kinds:
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        made.append(buffer.getvalue())
    return [
        *made,
        b"P3 2 1 255 1 2 3 4 5 6",
        b"P1 2 1 0 1",
        b"P6 2 1 100\n123456",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBP",
    ]


@bounds.shares
def test_images(share: float) -> None:
    spoilt = st.builds(hostile.spoilt, st.sampled_from(images()), hostile.seeds)

    def run(data: bytes) -> None:
        for read, channels in ((decode, 3), (decode_rgba, 4)):
            try:
                image = read(data, "image")
            except BadImage as error:
                assert str(error).startswith("image: ")  # noqa: PT017
                continue
            assert image.dtype == np.uint8
            assert image.shape[2] == channels

    bounds.fuzz("images", share, st.one_of(spoilt, spoilt, spoilt, st.binary(max_size=64)), run)
