from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from typer.testing import CliRunner

from sorites.cli import app
from sorites.io.decode import MAX_PIXELS

runner = CliRunner()


def test_photographs_are_taken_through_a_lens(tmp_path: Path) -> None:
    Pillow.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(tmp_path / "a.jpg")
    words = ["lens", "photo", "CookeTriplet", str(tmp_path / "a.jpg"), "--out", str(tmp_path / "out")]
    done = runner.invoke(app, words)
    assert done.exit_code == 0
    assert "wrote 1 of 1 images" in done.stdout
    with Pillow.open(tmp_path / "out" / "a.png") as made:
        assert (made.format, made.size) == ("PNG", (50, 40))


def test_a_bad_image_is_an_error_line_and_an_exit_code(tmp_path: Path) -> None:
    Pillow.fromarray(np.zeros((20, 20, 3), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "bad.png").write_bytes(b"nothing")
    images = [str(tmp_path / name) for name in ("bad.png", "a.png")]
    done = runner.invoke(app, ["lens", "photo", "TessarLens", *images, "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "not written: " in done.stderr
    assert "bad.png: not an image" in done.stderr
    assert (tmp_path / "out" / "a.png").is_file()


def test_a_image_beyond_the_limit_is_an_error_line_with_both_sizes(tmp_path: Path) -> None:
    (tmp_path / "vast.ppm").write_bytes(b"P6 20000 20000 255\n")
    done = runner.invoke(
        app, ["lens", "photo", "TessarLens", str(tmp_path / "vast.ppm"), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    assert "vast.ppm: 20000 x 20000 pixels exceed the limit of 100,000,000" in done.stderr
    assert f"{MAX_PIXELS:,}" == "100,000,000"
    assert "wrote 0 of 1 images" in done.stdout


def test_a_set_is_drawn_with_its_selection(tmp_path: Path) -> None:
    done = runner.invoke(app, ["lens", "space", "--n", "5", "--out", str(tmp_path / "space.png")])
    assert done.exit_code == 0
    with Pillow.open(tmp_path / "space.png") as drawn:
        assert drawn.width > 1000


def test_asking_to_mark_more_lenses_than_there_are_marks_all(tmp_path: Path) -> None:
    drawn = []
    for n in ("100", "15"):
        done = runner.invoke(app, ["lens", "space", "--n", n, "--out", str(tmp_path / f"{n}.png")])
        assert done.exit_code == 0
        assert ("only 15 lenses exist" in done.stderr) == (n == "100")
        drawn.append((tmp_path / f"{n}.png").read_bytes())
    assert drawn[0] == drawn[1]
