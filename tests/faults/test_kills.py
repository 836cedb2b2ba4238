"""Every verb that writes a folder, killed while it writes: no damage, and the repeated verb ends with the same files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults import killing, sweeps, verbs
from tests.faults.kills import killed, killed_verbs
from tests.faults.kinds import MUTATIONS, flip

import sorites

pytest.importorskip("torch")
pytest.importorskip("httpx", reason="needs: pip install 'sorites[studio]'")
pytest.importorskip("cv2", reason="needs: pip install 'sorites[studio]'")

KILLS = 6
QUICK = ("build", "similarity", "compact", "import")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.slow
def test_quick_verbs_survive_kills(home: Path) -> None:
    found = {verb.name: killed(verb, home / "moments", 3) for verb in verbs.verbs(home) if verb.name in QUICK}
    assert [name for name in QUICK if found[name].kills == 0] == []
    assert [wrong for result in found.values() for wrong in result.wrong] == []


@pytest.mark.slow
def test_every_verb_survives_kills(home: Path) -> None:
    with ExitStack() as stack:
        found = {verb.name: killed(verb, home / "moments", KILLS) for verb in killed_verbs(home, stack)}
    assert [f"{name}: {wrong}" for name, result in found.items() for wrong in result.wrong] == []
    assert {"run", "build", "passport", "similarity", "distance", "filter", "score"} <= found.keys()
    assert {"compact", "import", "compare", "train", "collect", "capture"} <= found.keys()
    print(f"{sum(result.kills for result in found.values())} kills of {len(found)} verbs, all continued")


@pytest.mark.long
@pytest.mark.slow
def test_two_thousand_faults_are_named_and_repaired(home: Path) -> None:
    tally = sweeps.Tally()
    with ExitStack() as stack:
        worlds = list(sweeps.worlds(home, stack))
        for number, world in enumerate(worlds):
            sweeps.sweep(world, -(-1000 // len(worlds)), (flip,), number, tally)
            sweeps.sweep(world, -(-1000 // len(worlds)), MUTATIONS, 100 + number, tally)
            sweeps.copies(world, number, tally)
            sweeps.repair(world, 2, number, tally)
    assert tally.silent == []
    assert tally.different == []
    assert sum(tally.cases.values()) >= 2000
    assert tally.repaired >= 8
    print(
        f"{sum(tally.cases.values())} cases, all named; {tally.repaired} folders repaired: {dict(tally.cases)}"
    )


CHILD = """
import sys
from pathlib import Path
from tests.faults import killing, verbs
verb = next(verb for verb in verbs.verbs(Path.cwd()) if verb.name == "build")
killing.kill_at(int(sys.argv[1]), verb.run)
"""


def without_process(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave the number of the process out of the names of temporary files."""
    return {re.sub(r"-\d+-\d+\.tmp$", ".tmp", name): data for name, data in files.items()}


@pytest.mark.slow
def test_copies_are_what_real_kills_leave(home: Path) -> None:
    verb = next(verb for verb in verbs.verbs(home) if verb.name == "build")
    states = [
        without_process(killing.files(copy)) for copy in killing.moments(verb.run, verb.folder, home / "m")
    ]
    here = Path(__file__).parents[2]
    paths = os.pathsep.join([str(Path(sorites.__file__).parents[1]), str(here)])
    killing.put_back(home / "m" / "0000", verb.folder)
    child = [sys.executable, "-c", CHILD, "9"]
    done = subprocess.run(child, env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert done.returncode == -signal.SIGKILL
    left = without_process(killing.files(verb.folder))
    assert left in states
    assert left not in (states[0], states[-1])
