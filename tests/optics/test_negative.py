"""Development of RAW files against LibRaw's own, and digital exposure against a sensor with other light."""

from __future__ import annotations

import io

import numpy as np
import pytest

from sorites.apps.studio.virtual.dng import encode_dng
from sorites.io.raw_files import read_raw
from sorites.optics.camera import EOS_RP
from sorites.optics.negative import Isp, Negative, negative_of
from sorites.optics.sensor import sampled

rawpy = pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")


def light(height: int = 40, width: int = 60) -> np.ndarray:
    """Smooth light in the colours of the sensor, 0..0.45 of saturation."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    return np.stack([0.05 + 0.15 * x, 0.05 + 0.4 * y, 0.2 - 0.1 * x * y], axis=2)


def dng(share: np.ndarray) -> bytes:
    values = EOS_RP.black_dn + sampled(np.minimum(share, 1)) * (EOS_RP.white_dn - EOS_RP.black_dn)
    return encode_dng(np.rint(values).astype(np.uint16), EOS_RP)


def test_linear_development_is_that_of_libraw() -> None:
    """White balance, colour matrix and levels; LibRaw averages 2 x 2 blocks as we do."""
    data = dng(light())
    with rawpy.imread(io.BytesIO(data)) as opened:
        peer = opened.postprocess(
            half_size=True, gamma=(1, 1), no_auto_bright=True, use_camera_wb=True, output_bps=16, user_flip=0
        )
    found = negative_of(read_raw(data))
    ours = np.minimum(found.light * np.array(found.balance), 1) @ found.matrix.T
    # LibRaw scales so that the largest gain is 1 where it would clip; a common factor is not of interest.
    ratio = (peer / 65535) / ours
    np.testing.assert_allclose(ratio / np.median(ratio), 1, rtol=0.01)


def test_exposing_again_equals_a_sensor_with_that_light() -> None:
    for stops in (-2, -1, 1):
        again = negative_of(read_raw(dng(light()))).exposed(stops)
        taken = negative_of(read_raw(dng(light() * 2.0**stops)))
        np.testing.assert_allclose(again.light, taken.light, atol=2.0**stops / 16000 + 1e-4)


def test_more_light_saturates() -> None:
    negative = negative_of(read_raw(dng(light())))
    assert negative.saturated == 0
    assert negative.exposed(6).saturated > 0.9
    assert negative.exposed(6).light.max() == 1


def grey(value: float) -> Negative:
    return Negative(
        np.full((2, 2, 3), value, np.float32) / np.array((2, 1, 1.5), np.float32), (2.0, 1.0, 1.5), np.eye(3)
    )


def test_neutral_light_is_grey_and_follows_srgb_without_the_tone_curve() -> None:
    display = Isp(tone_share=0).develop(grey(0.214))
    np.testing.assert_allclose(display, 0.5, atol=2e-3)  # sRGB of 21.4 % is 50 %


def test_the_tone_curve_is_that_of_the_simulated_camera() -> None:
    from sorites.optics.develop import tone

    for value in (0.01, 0.2, 0.7):
        assert Isp().develop(grey(value))[0, 0, 1] == pytest.approx(
            float(tone(np.array([value]), EOS_RP)[0]), abs=1e-4
        )


def test_warmth_changes_the_colour_and_not_the_light_of_green() -> None:
    plain, warm = (Isp(warmth=w, tone_share=0).develop(grey(0.2))[0, 0] for w in (0.0, 1.0))
    assert warm[0] > plain[0]
    assert warm[1] == plain[1]
    assert warm[2] < plain[2]
