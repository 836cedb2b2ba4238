from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from sorites.cli import app
from sorites.core.errors import SoritesError
from sorites.shifts.aberration import LEVELS, WAVES, default, load
from sorites.shifts.kernel_table import camera, kernel_set_bytes


@pytest.mark.slow
def test_the_sheet_is_drawn_and_the_numbers_are_printed(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["kernels", "--out", str(tmp_path / "k.png"), "--format", "json"], catch_exceptions=False
    )
    assert done.exit_code == 0
    rows = json.loads(done.stdout)
    assert len(rows) == 8 * 5 * 3
    with Pillow.open(tmp_path / "k.png") as image:
        assert image.width > 800


@pytest.mark.slow
def test_matching_says_how_well_by_every_criterion() -> None:
    done = CliRunner().invoke(
        app, ["kernels", "match", "--mode", "4", "--level", "1", "--format", "json"], catch_exceptions=False
    )
    (row,) = json.loads(done.stdout)
    assert abs(row["mtf50"]) < 0.05
    assert {"area", "ssim_edge", "psnr_coins", "waves"} <= row.keys()
    assert "mtf, area: relative difference" in " ".join(done.stderr.split())


def test_a_matched_set_is_read_back(tmp_path: Path) -> None:
    held = {(mode, level): default().taps(mode, level) for mode in WAVES for level in LEVELS}
    (tmp_path / "set.npy").write_bytes(kernel_set_bytes(held))
    again = load(tmp_path / "set.npy")
    np.testing.assert_allclose(again.taps(7, 3), default().taps(7, 3), atol=1e-7)
    del held[7, 3]
    with pytest.raises(SoritesError, match="every mode and level"):
        kernel_set_bytes(held)


def test_a_camera_of_ones_own() -> None:
    assert camera(2.8, None, None).f_number == 2.8
    assert camera(None, 1.4, [0.6, 0.5, 0.4]).wavelengths_um == (0.6, 0.5, 0.4)
    with pytest.raises(SoritesError, match="red, green and blue"):
        camera(None, None, [0.5])


def test_where_the_set_goes_is_checked_before_matching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*_: object) -> None:
        raise AssertionError("matched before the check")

    monkeypatch.setattr("sorites.shifts.kernel_table.match_table", computed)
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "set.npy"):
        done = CliRunner().invoke(app, ["kernels", "match", "--out", str(out)])
        assert isinstance(done.exception, SoritesError), done.exception
