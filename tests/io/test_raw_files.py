"""RAW files: a DNG of ours as LibRaw reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sorites.apps.studio.virtual.dng import encode_dng
from sorites.core.errors import BadImage, MissingExtra
from sorites.io.decode import pixel_limit
from sorites.io.raw_files import read_raw
from sorites.optics.camera import EOS_RP, Exposure

pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")


def mosaic(height: int = 62, width: int = 80) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1 << 14, (height, width), dtype=np.uint16)


def test_values_and_levels_survive_to_the_bit(tmp_path: Path) -> None:
    values = mosaic()
    (tmp_path / "a.dng").write_bytes(encode_dng(values, EOS_RP, Exposure(400, 1 / 60, 5.6)))
    for source in (tmp_path / "a.dng", (tmp_path / "a.dng").read_bytes()):
        found = read_raw(source)
        np.testing.assert_array_equal(found.values, values)
        assert found.channels.tolist() == [[0, 1], [1, 2]]
        assert (found.black, found.white) == ((512, 512, 512), 16383)
        assert found.balance == pytest.approx(EOS_RP.balance, rel=1e-5)
        assert (found.iso, found.shutter, found.aperture) == pytest.approx((400, 1 / 60, 5.6))
        np.testing.assert_allclose(found.matrix, np.eye(3), atol=2e-3)


def test_planes_are_the_places_of_the_mosaic() -> None:
    values = mosaic(30, 40)
    planes = read_raw(encode_dng(values, EOS_RP)).sites()
    np.testing.assert_array_equal(planes[2], values[1::2, ::2])
    assert read_raw(encode_dng(values, EOS_RP)).iso is None


@pytest.mark.parametrize(
    "damage", [b"", b"II*\0", encode_dng(mosaic(), EOS_RP)[:300], b"\xff\xd8\xff\xe0" * 99]
)
def test_other_files_are_bad_images(damage: bytes) -> None:
    with pytest.raises(BadImage) as caught:
        read_raw(damage, "x.dng")
    assert "b'" not in str(caught.value)


def test_too_many_pixels_are_refused_before_they_are_unpacked() -> None:
    with pixel_limit(1000), pytest.raises(BadImage, match="1,000"):
        read_raw(encode_dng(mosaic(), EOS_RP))


def test_without_rawpy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rawpy", None)
    with pytest.raises(MissingExtra, match=r"sorites\[raw\]"):
        read_raw(b"")
