"""Numbers that no option can mean: zero is a number and not "not given"; NaN, negative and endless
ones are refused by name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("kernels match --f-number 0", "f_number: expected a number above 0"),
        ("kernels match --f-number nan", "f_number: expected a number above 0"),
        ("kernels match --out set.csv", "--out: expected FILE.npy"),
        ("kernels match --mode 4 --out set.npy", "a set needs every mode and level"),
        ("kernels match --pixel 0", "pixel: expected a number above 0"),
        ("kernels match --pixel -1", "pixel: expected a number above 0"),
        ("kernels match --wavelengths 0.6,0,0.4", "wavelengths: expected a number above 0"),
        ("kernels match --wavelengths 0.6,x,0.4", "--wavelengths: expected numbers"),
        ("kernels match --wavelengths 0.6,nan,0.4", "--wavelengths: expected numbers"),
        ("run s.toml --limit 0", "limit: expected a number above 0"),
        ("run s.toml --limit -1", "limit: expected a number above 0"),
        ("build s.toml --out made --limit -1", "limit: expected a number above 0"),
        ("context --out made --source folder:x --limit -2", "a whole number above 0"),
        ("run s.toml --refine nan", "refine"),
        ("run s.toml --shift contrast --severity nan", "a severity must be above 0"),
        ("run s.toml --shift contrast --severity 0", "a severity must be above 0"),
        ("run s.toml --seed 99999999999999999999", "seed"),
        ("run s.toml --scorer knn(k=1e9)", "a whole number as k"),
        ("run s.toml --scorer knn(k=nan)", "or a name with parameters"),
        ("run s.toml --scorer knn(" + "(" * 5000, "or a name with parameters"),
        ("run s.toml --shift coma --option kernels=5.5", "text as kernels, got '5.5'"),
        ("run s.toml --shift coma --option padding=" + "[" * 5000, "expected padding zeros or reflect"),
        ("similarity run --lpips-below nan", "a number above 0"),
        ("similarity run --lpips-below 0", "a number above 0"),
        ("decompose train --encoder python:means:nothing --margin nan", ""),
        ("lens photo TessarLens a.png --out made --corner nan", "--corner"),
        ("run " + "x" * 300 + ".toml", "File name too long"),
        ("report " + "x" * 300, "x"),
        ("run s.toml --labels " + "x" * 300, "labels: expected"),
        ("run s.toml --source folder:" + "x" * 300, "does not exist"),
        ("run s.toml --source folder:~nobody_at_all/x", "home directory"),
        ("show contrast a.png --out /dev/full/x.png", "/dev/full"),
    ],
)
def test_it_is_refused_in_words(command: Command, home: Path, words: str, said: str) -> None:
    Image.new("RGB", (30, 30)).save(home / "a.png")
    command("run", "s.toml", "--out", "run")
    code, _, err = command(*words.split(" "))
    assert code == 2
    assert said in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_grouping_twice_by_one_column_is_grouping_once(command: Command, run: Path) -> None:
    once = command("metrics", run, "filtered_accuracy", "--by", "model", "--format", "csv")
    assert once[0] == 0
    assert command("metrics", run, "filtered_accuracy", "--by", "model,model", "--format", "csv") == once
    assert command("metrics", run, "rank", "--by", "model,model")[0] in (0, 2)


@pytest.mark.parametrize(
    ("metric", "column"),
    [("attribute_accuracy", "attrs"), ("calibration_error", "conf"), ("rank_agreement", "model")],
)
def test_a_column_that_the_metric_makes_is_no_column_to_group_by(
    command: Command, run: Path, metric: str, column: str
) -> None:
    code, _, err = command("metrics", run, metric, "--by", column)
    assert code == 2
    assert f"{metric} cannot be grouped by {column}: it computes one of these columns" in err


def test_training_images_that_are_left_out_are_counted(command: Command, home: Path, photos: Path) -> None:
    (home / "pair.py").write_text(
        "import means\ndef both(images):\n    found = means.logits(images)\n    return found, found[:, :9]\n"
    )
    fit = home / "fit"
    for i, image in enumerate(sorted(photos.rglob("*.png"))):
        place = fit / image.relative_to(photos)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"not an image" if i < 3 else image.read_bytes())
    code, out, err = command(
        "run",
        "s.toml",
        "--out",
        "fitted",
        "--scorer",
        "knn(k=3)",
        "--fit",
        f"folder:{fit}",
        "--model",
        "python:pair:both",
    )
    assert code == 0, err
    assert "3 training images were skipped for python:pair:both" in out
