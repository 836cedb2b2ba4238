from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sorites.cli import app
from sorites.core.errors import SoritesError
from sorites.lenses import tolerances

runner = CliRunner()


def test_stops_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    done = runner.invoke(
        app,
        ["lens", "tolerance", "CookeTriplet", "--of", "tilt", "--stops", "1,many", "--out", str(tmp_path)],
    )
    assert isinstance(done.exception, SoritesError)
    assert "--stops: expected numbers separated by commas, such as 1,5,10, got '1,many'" in str(
        done.exception
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = ["lens", "tolerance", str(tmp_path / "none.zmx"), "--of", "tilt", "--out", str(tmp_path)]
    done = runner.invoke(app, given)
    assert isinstance(done.exception, SoritesError)
    assert "none.zmx'." in str(done.exception)
    given[2] = "CookTriplet"
    assert "Did you mean CookeTriplet" in str(runner.invoke(app, given).exception)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("tracer")
def test_a_lens_is_traced_and_run_with(tmp_path: Path) -> None:
    words = [
        "CookeTriplet",
        "--of",
        "decentre",
        "--stops",
        "5,40",
        "--field",
        "0.5",
        "--out",
        str(tmp_path),
        "--format",
        "csv",
    ]
    done = runner.invoke(app, ["lens", "tolerance", *words])
    assert done.exit_code == 0, done.output
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["decentre_um", "0.0", "5.0", "40.0"]
    assert "element 2 of 3, which degrades" in done.stderr
    held = tolerances.load(tmp_path / "CookeTriplet.decentre.safetensors")
    assert held.about.field == 0.5
    assert held.steps == (0.0, 5.0, 40.0)
    when = (tmp_path / "CookeTriplet.decentre.safetensors").stat().st_mtime_ns
    again = runner.invoke(app, ["lens", "tolerance", *words])
    assert again.stdout == done.stdout
    assert (tmp_path / "CookeTriplet.decentre.safetensors").stat().st_mtime_ns == when
