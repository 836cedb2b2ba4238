from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.cli.conftest import Command

import sorites


def test_show_draws_a_strip(command: Command, home: Path, photos: Path) -> None:
    image = next(photos.rglob("*.png"))
    code, out, _ = command("show", "jpeg", image)
    assert (code, out) == (0, f"wrote {image.stem}-jpeg.png\nnext: sorites run demo --shift jpeg\n")
    with Pillow.open(home / f"{image.stem}-jpeg.png") as strip:
        assert strip.width > 6 * 224
    assert command("show", "jpeg", image, "--severity", "40", "--out", "s.jpg")[0] == 0
    with Pillow.open(home / "s.jpg") as strip:
        assert strip.format == "JPEG"


@pytest.mark.slow
def test_show_takes_options_of_the_shift(command: Command, home: Path, photos: Path) -> None:
    image = next(photos.rglob("*.png"))
    command("lens", "select", "--n", "2", "--out", home / "few")
    code, out, _ = command("show", "lens", image, "--option", f"lenses={home / 'few'}", "--out", "few.png")
    assert (code, out.splitlines()[1]) == (
        0,
        f"next: sorites run demo --shift lens --option lenses={home / 'few'}",
    )
    assert command("show", "lens", image, "--out", "all.png")[0] == 0
    with Pillow.open(home / "few.png") as few, Pillow.open(home / "all.png") as every:
        assert few.width == every.width
        assert 2 * few.height < 1.5 * every.height
    assert (
        "no option named 'lensse'. Did you mean lenses"
        in command("show", "lens", image, "--option", "lensse=x")[2]
    )


def test_build_writes_a_dataset_and_says_how_to_run_it(command: Command, home: Path) -> None:
    code, out, err = command(
        "build", "s.toml", "--out", "set", "--shift", "contrast", "--level", "2", "--quality", "90"
    )
    assert code == 0, err
    assert out.splitlines() == [
        "wrote 6 images to set",
        "next: sorites run s.toml --source folder:set --shift contrast",
    ]
    code, _, err = command(*out.splitlines()[1].removeprefix("next: sorites ").split(), "--out", "r")
    assert code == 0, err
    assert sorites.read("r").collect().group_by("shift", "level").len().sort("shift").rows() == [
        ("clean", None, 3),
        ("contrast", 2, 3),
    ]


def test_build_tells_of_images_it_could_not_make(command: Command, home: Path, photos: Path) -> None:
    bad = home / "bad" / "n01440764"
    bad.mkdir(parents=True)
    Pillow.fromarray(np.zeros((9, 9, 3), np.uint8)).save(bad / "good.png")
    (bad / "bad.png").write_text("not an image")
    code, out, err = command(
        "build", "s.toml", "--source", f"folder:{home / 'bad'}", "--level", "1", "--out", "set"
    )
    assert code == 0
    assert "wrote 2 images to set; 2 failed" in out
    assert err.count("not written: n01440764/bad.png") == 2
