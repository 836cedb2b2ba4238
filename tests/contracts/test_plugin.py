"""The example package, installed as a more OOD's would be: its names appear, run, and are held to
the contracts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "plugin"
NAMES = ("sepia", "thumbnail", "stripes", "top5_accuracy", "mean_difference")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example installed by pip into a folder of its own, from a copy, so that nothing is left
    in the repository.
    """
    assert importlib.util.find_spec("setuptools"), "make test installs it"
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("copy") / "plugin")
    target = tmp_path_factory.mktemp("site")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(target), str(copy)], check=True, timeout=120)
    return target


def python(site: Path, *words: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *words], env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_contracts_cover_it(site: Path) -> None:
    files = [
        f"tests/contracts/test_{room}.py" for room in ("shifts", "models", "sources", "metrics", "measures")
    ]
    done = python(site, "-m", "pytest", "-p", "no:cacheprovider", "-k", " or ".join(NAMES), *files)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.strip().splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= 9 + 7 + 6 + 1 + 6
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_it_runs_from_the_command_line(site: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'source = "stripes"\nmodels = ["thumbnail"]\nshifts = ["sepia"]\nsimilarity = ["mean_difference"]\n'
    )
    cli = ("-c", "from sorites.cli import main; main()")
    assert all(name in python(site, *cli, "list", cwd=tmp_path).stdout for name in NAMES)
    assert python(site, *cli, "run", "s.toml", "--out", "r", cwd=tmp_path).returncode == 0
    asked = python(
        site, *cli, "metrics", "r", "top5_accuracy", "--by", "shift", "--format", "csv", cwd=tmp_path
    )
    assert [line.split(",")[0] for line in asked.stdout.splitlines()] == ["shift", "clean", "sepia"]
    assert [line.split(",")[2] for line in asked.stdout.splitlines()] == ["n", "12", "60"]
    words = (
        "metrics",
        "r",
        "mean_degree",
        "--by",
        "shift",
        "--option",
        "measure=mean_difference",
        "--format",
        "csv",
    )
    shift, value, *_ = python(site, *cli, *words, cwd=tmp_path).stdout.splitlines()[1].split(",")
    assert shift == "sepia"
    assert float(value) > 1


@pytest.mark.long
def test_hello(site: Path, tmp_path: Path) -> None:
    """The first program a user types, on the real images and a real model."""
    done = python(site, str(REPOSITORY / "examples" / "hello.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "defocus_disk" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 100_000
