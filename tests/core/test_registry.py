from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sorites.core import METRICS, SHIFTS
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.registry import Registry


@pytest.fixture
def dials() -> Registry[int]:
    made: Registry[int] = Registry("dial", "sorites.core.errors")
    made.add("coma", 1)
    made.add("jpeg", 2)
    return made


def test_names_and_objects(dials: Registry[int]) -> None:
    assert dials.names() == ["coma", "jpeg"]
    assert dials.get("jpeg") == 2


def test_a_taken_name_is_an_error_and_the_owner_keeps_it(dials: Registry[int]) -> None:
    with pytest.raises(SoritesError, match="the dial name 'coma' is"):
        dials.add("coma", 3)
    assert dials.get("coma") == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("comma", "no dial named 'comma'. Did you mean coma? See \"sorites list dials\"."),
        ("COMA", "no dial named 'COMA'. See \"sorites list dials\"."),
        ("", "no dial named ''. See \"sorites list dials\"."),
    ],
)
def test_an_unknown_name_says_what_is_near(dials: Registry[int], asked: str, said: str) -> None:
    with pytest.raises(UnknownName) as caught:
        dials.get(asked)
    assert str(caught.value) == said


def test_the_first_question_fills_the_registries() -> None:
    assert {"jpeg", "contrast", "defocus_disk"} <= set(SHIFTS.names())
    assert {"accuracy", "failure_severity"} <= set(METRICS.names())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that Python takes for installed packages."""

    def install(name: str, code: str) -> None:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sorites.plugins]\n{name} = {name}\n")
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))

    install("a_broken", "raise RuntimeError('half baked')")
    install(
        "b_thief",
        """
        from sorites.core import add_shift
        @add_shift(family="test", unit="1", levels=(1,))
        def b_first(image, severity, rng):
            return image
        @add_shift(family="test", unit="1", levels=(1,))
        def jpeg(image, severity, rng):
            return image
        """,
    )
    install("c_missing", "import no_such_library")
    return tmp_path


def _asked(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", ["SHIFTS", "METRICS"])
def test_a_plug_in_that_fails_only_warns_whichever_room_is_asked_first(site: Path, first: str) -> None:
    """A thief of a built-in name is refused even when its module is read before that room is."""
    done = _asked(
        site,
        f"""
        from sorites import core
        core.{first}.names()
        shift = core.shift("jpeg")
        print(shift.apply.__module__, shift.family, "b_first" in core.SHIFTS.names())
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["sorites.shifts.digital", "digital", "True"]
    assert "plug-in a_broken (a_broken) did not load: half baked" in done.stderr
    assert "plug-in b_thief (b_thief) did not load: the shift name 'jpeg' is" in done.stderr
    assert "plug-in c_missing (c_missing) did not load: No module named 'no_such_library'" in done.stderr
    assert "Traceback" not in done.stderr


def test_plug_ins_are_read_once_from_many_threads(site: Path) -> None:
    (site / "b_thief.py").write_text(
        "from sorites.core import add_metric\n@add_metric\ndef mine(table, by=()):\n    return"
        " table\nprint('read')\n"
    )
    done = _asked(
        site,
        """
        import warnings; warnings.simplefilter("ignore")
        from concurrent.futures import ThreadPoolExecutor
        from sorites import core
        rooms = [core.SHIFTS, core.METRICS, core.SOURCES, core.MODELS] * 4
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda room: room.names(), rooms))
        print("mine" in core.METRICS.names())
        """,
    )
    assert done.stdout.split() == ["read", "True"], done.stderr
