from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from sorites.cli import app
from sorites.core.errors import SoritesError
from sorites.lenses import store as lenses

runner = CliRunner()


def test_the_ranking_is_printed() -> None:
    done = runner.invoke(app, ["lens", "list", "--format", "csv"])
    lines = done.stdout.splitlines()
    assert lines[0].startswith("name,efl_mm,f_number,fov_deg,pitch_um,pixels,mtf50_00")
    assert len(lines) == 16


def test_a_subset_is_chosen_and_copied(tmp_path: Path) -> None:
    done = runner.invoke(app, ["lens", "select", "--n", "4", "--out", str(tmp_path / "few")])
    assert done.exit_code == 0
    assert len(list((tmp_path / "few").glob("*.safetensors"))) == 4
    listed = runner.invoke(app, ["lens", "list", "--lenses", str(tmp_path / "few"), "--format", "csv"])
    assert len(listed.stdout.splitlines()) == 5


def test_lenses_are_not_copied_onto_themselves(tmp_path: Path) -> None:
    few = tmp_path / "few"
    runner.invoke(app, ["lens", "select", "--n", "4", "--out", str(few)])
    (tmp_path / "link").symlink_to(few)
    before = {path.name: path.read_bytes() for path in few.iterdir()}
    for out in (few, tmp_path / "link", tmp_path / "few" / ".." / "few"):
        done = runner.invoke(app, ["lens", "select", "--n", "2", "--lenses", str(few), "--out", str(out)])
        assert isinstance(done.exception, SoritesError)
        assert "cannot copy lenses onto themselves" in str(done.exception)
        assert {path.name: path.read_bytes() for path in few.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = runner.invoke(app, ["lens", "select", "--n", "2", "--out", str(tmp_path / "file")])
    assert isinstance(done.exception, SoritesError)
    assert f"cannot copy the lenses into {tmp_path / 'file'}: File exists" in str(done.exception)


def test_a_lens_is_drawn(tmp_path: Path) -> None:
    done = runner.invoke(app, ["lens", "show", "CookeTriplet", "--out", str(tmp_path / "cooke.png")])
    assert done.exit_code == 0
    with Pillow.open(tmp_path / "cooke.png") as drawn:
        assert drawn.size == (920, 1000)


def test_importing_a_refused_file_says_why(tmp_path: Path) -> None:
    bad = tmp_path / "zoom.zmx"
    bad.write_text("MODE NSC\n")
    done = runner.invoke(app, ["lens", "import", str(bad), "--out", str(tmp_path / "out"), "--format", "csv"])
    assert "not sequential" in done.stdout
    assert "0 of 1 lenses" in done.stderr


def test_asking_for_more_lenses_than_there_are_gives_all() -> None:
    done = runner.invoke(app, ["lens", "select", "--n", "100"])
    assert len(done.stdout.splitlines()) == 15
    assert "only 15 lenses exist" in done.stderr


def test_a_choice_is_not_mixed_with_an_older_one(tmp_path: Path) -> None:
    words = ["lens", "select", "--out", str(tmp_path / "few"), "--n"]
    assert runner.invoke(app, [*words, "3"]).exit_code == 0
    assert runner.invoke(app, [*words, "3"]).exit_code == 0
    assert "contains other lenses" in str(runner.invoke(app, [*words, "1"]).exception)


def test_a_chosen_set_comes_by_rising_quality() -> None:
    chosen = runner.invoke(app, ["lens", "select", "--n", "15"]).stdout.split()
    assert [lenses.load(lenses.builtin(), name).quality for name in chosen] == sorted(
        lenses.load(lenses.builtin(), name).quality for name in chosen
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--pitch-um", "3"], "add --as psf or --as edge"),
        (["--as", "psf", "--pitch-um", "3", "--focus", "file"], "are for prescriptions"),
        (["--as", "edge", "--pitch-um", "3", "--glass", "SK16=1.62,60.3"], "are for prescriptions"),
    ],
)
def test_an_option_that_an_import_would_not_use_is_refused(
    options: list[str], says: str, tmp_path: Path
) -> None:
    done = runner.invoke(app, ["lens", "import", "a.npy", "--out", str(tmp_path / "out"), *options])
    assert isinstance(done.exception, SoritesError)
    assert says in str(done.exception)
