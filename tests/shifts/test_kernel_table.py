import numpy as np
import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.mtf import sharpness
from sorites.shifts.aberration import WAVES
from sorites.shifts.blur import disk
from sorites.shifts.kernel_table import kernel_table, match_table


def test_the_table_has_a_row_a_kernel_and_says_how_far_it_is_from_the_disk():
    table = kernel_table()
    assert table.height == 8 * 5 * 3
    assert np.abs(table["centre_x"].to_numpy()).max() < 0.01
    coma = table.filter(zernike=7).group_by("level").agg(pl.col("mtf50_over_disk").mean())
    assert coma["mtf50_over_disk"].is_between(0.7, 1.05).all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", WAVES)
def test_matching_the_disk_by_mtf50_at_levels_one_to_three(mode):
    table, made = match_table(modes=(mode,), levels=(1, 2, 3))
    assert table["mtf50"].abs().max() <= 0.05
    assert made[mode, 1].shape == (3, 25, 25)
    assert table["waves"].is_sorted()
    assert {
        "waves",
        "caught",
        "area",
        "mtf50_colour0",
        "mtf50_45deg",
        "ssim_edge",
        "psnr_coins",
        "acutance",
    } <= set(table.columns)


def test_modes_and_levels_that_do_not_exist():
    with pytest.raises(SoritesError, match="got 12"):
        match_table(modes=(12,))
    with pytest.raises(SoritesError, match="got 6"):
        match_table(modes=(4,), levels=(6,))


def test_the_disk_itself_has_the_published_sharpness():
    published = (0.1153, 0.0873, 0.0582, 0.0439, 0.0346)
    for radius, mtf50 in zip((3, 4, 6, 8, 10), published, strict=True):
        assert sharpness(disk(radius)).mtf50 == pytest.approx(mtf50, rel=0.01)
