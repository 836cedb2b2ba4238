"""Fetch a package from the npm registry by ``npm pack`` into the user's cache; nothing of it is run or installed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from sorites.errors import SoritesError
from sorites.files import fetching
from sorites.progress import console

SECONDS = 1800.0
"""The most seconds that ``npm`` may take."""


def pack(package: str, sha256: str, into: Path, note: str, instead: str) -> Path:
    """Fetch the archive of ``package`` (``name@version``) into ``into`` unless it is there, check its SHA-256, return its path.

    Of two processes that fetch at once, one waits for the other. ``note`` tells the user what is fetched and under which
    licence; ``instead`` says what to type where npm does not work.
    """
    wanted = into / f"{package.replace('@', '-').replace('/', '-')}.tgz"
    if wanted.is_file():
        return checked(wanted, sha256, f"Delete it, or: {instead}")
    with fetching(into, SECONDS):
        if not wanted.is_file():
            checked(_packed(package, into, note, instead), sha256, instead).replace(wanted)
    return wanted


def checked(path: Path, sha256: str, instead: str) -> Path:
    """Return the same path if its contents have this SHA-256; raise an error otherwise."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise SoritesError(
            f"{path} is not the file that Sorites knows: SHA-256 {found[:12]}..., wanted {sha256[:12]}.... {instead}"
        )
    return path


def _packed(package: str, into: Path, note: str, instead: str) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SoritesError(f"{package} is fetched with npm, which this machine does not have. {instead}")
    work = into / ".npm"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    console().print(f"{note} It stays in {into}", soft_wrap=True)
    command = [npm, "pack", package, "--ignore-scripts", "--silent"]
    try:
        done = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise SoritesError(f"npm took more than {SECONDS:.0f} seconds. Is the network up? {instead}") from None
    found = list(work.glob("*.tgz"))
    if done.returncode or not found:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise SoritesError(f"npm could not fetch {package}. It said:\n{last}\n{instead}")
    return found[0]
