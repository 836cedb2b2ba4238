"""Fetch files from packages of Debian (apt), npm and PyPI into the cache; nothing is installed on the
machine.

Archives are read as streams, and nothing is extracted to a path that an archive names.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import console
from sorites.io.files import download_lock, sweep_temporaries, write_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

# Maximum size in bytes of an extracted file; larger files are skipped.
MAX_FILE_BYTES = 64 << 20

_MAGIC = b"!<arch>\n"
_MODES = {"data.tar": "", "data.tar.xz": "xz", "data.tar.gz": "gz", "data.tar.bz2": "bz2"}


def read(
    deb: Path, paths: Collection[str], tick: Callable[[int], None] = lambda at: None
) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of regular files of a Debian package, in package order.

    Args:
        deb: The package: an ar archive with a compressed tar.
        paths: Paths to extract. They are only compared, never followed.
        tick: Called with the number of bytes read so far.

    Raises:
        SoritesError: The package is damaged.
    """
    remaining = set(paths)
    try:
        with deb.open("rb") as file, _tar(deb, file) as tar:
            for member in tar:
                tick(file.tell())
                name = member.name.removeprefix("./")
                if (
                    name in remaining
                    and member.isreg()
                    and member.size <= MAX_FILE_BYTES
                    and (contents := tar.extractfile(member))
                ):
                    yield name, contents.read()
                    remaining.remove(name)
                if not remaining:
                    return
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise SoritesError(f"{deb} cannot be unpacked: {error}. Remove it and try again.") from error


class _Slice:
    """The next ``size`` bytes of a file as a stream."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left = file, size

    def read(self, size: int) -> bytes:
        data = self.file.read(min(size, self.left))
        self.left -= len(data)
        return data


def _find(file: IO[bytes]) -> tuple[str, int]:
    """Return name and size of the archive member ``data.tar*`` and position the file at its first byte."""
    if file.read(8) != _MAGIC:
        raise tarfile.ReadError("it is not a Debian package")
    while len(header := file.read(60)) == 60:
        name, size = header[:16].decode("ascii", "replace").strip().rstrip("/"), header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            break
        if name.startswith("data.tar"):
            return name, int(size)
        file.seek(int(size) + int(size) % 2, 1)
    raise tarfile.ReadError("it contains no data.tar")


@contextlib.contextmanager
def _tar(deb: Path, file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    name, size = _find(file)
    if name in _MODES:
        with tarfile.open(fileobj=_Slice(file, size), mode=f"r|{_MODES[name]}") as tar:  # type: ignore[call-overload]
            yield tar
        return
    # Ubuntu compresses with zstd, which Python reads only from 3.14 on; machines with apt-get also have
    # dpkg-deb.
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield tar
        finally:
            process.terminate()


# Debian packages, fetched with apt-get, which checks the signatures.


# Maximum seconds per command of apt-get.
APT_TIMEOUT_SECONDS = {"update": 300.0, "download": 3600.0}

OWN_IMAGES_HINT = f"Use your own images: {option('source', 'folder:PATH')}"
NO_APT_HINT = (
    f"{OWN_IMAGES_HINT}, or 17 photographs of ImageNet classes from PyPI: {option('source', 'foolbox')}"
)


def offline_hint(folder: Path) -> str:
    """Say how images get into their folder on a machine without a network."""
    return f"Without a network: copy {folder} from a machine that has fetched the images."


def fetch(package: str, inside: str, hashes: Mapping[str, str], into: Path, note: str) -> None:
    """Extract files of a Debian package into a folder unless they exist.

    Every file is checked and written atomically, so an interrupted download can be resumed. If two processes
    fetch at once, one waits for the other.

    Args:
        package: Name of the package.
        inside: Folder inside the package.
        hashes: Paths below ``inside`` with their SHA-256.
        into: Target folder.
        note: Tells the user what is downloaded and under which licence.
    """
    if not missing(hashes, into):
        return
    with download_lock(into, sum(APT_TIMEOUT_SECONDS.values())):
        if missing(hashes, into):
            _fetch(package, inside, hashes, into, note)


def missing(hashes: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the part of ``hashes`` that is missing from ``folder`` or has another SHA-256."""
    return {name: sha for name, sha in hashes.items() if not _has_hash(folder / name, sha)}


def _has_hash(path: Path, sha: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha


def _fetch(package: str, inside: str, hashes: Mapping[str, str], into: Path, note: str) -> None:
    if shutil.which("apt-get") is None:
        raise SoritesError(
            f"{package} is fetched with apt-get, which this machine does not have. {NO_APT_HINT}"
        )
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console()
    screen.print(f"{note} The images stay in {into}", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen) as progress:
        package_file = _download(package, into / ".apt", progress)
        unpack(package_file, inside, missing(hashes, into), into, progress)
    left = missing(hashes, into)
    if left:
        first = f"{min(left)} and {len(left) - 1} more" if len(left) > 1 else min(left)
        raise SoritesError(
            f"{package_file.name} does not contain the expected files: {first} missing or changed."
            f" {OWN_IMAGES_HINT}"
        )
    shutil.rmtree(into / ".apt", ignore_errors=True)
    sweep_temporaries(into)


def unpack(
    package_file: Path, inside: str, hashes: Mapping[str, str], into: Path, progress: Progress
) -> None:
    """Write the files of ``hashes`` whose content has the expected SHA-256."""
    task = progress.add_task("unpacking", total=package_file.stat().st_size)
    paths = {f"{inside}/{name}": name for name in hashes}
    for path, data in read(package_file, paths, lambda at: progress.update(task, completed=at)):
        name = paths[path]
        if hashlib.sha256(data).hexdigest() == hashes[name]:
            write_bytes(data, into / name)
    progress.update(task, completed=progress.tasks[task].total)


def _download(package: str, work: Path, progress: Progress) -> Path:
    """Download a package into ``work`` and return its file; apt-get resumes partial downloads."""
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True, exist_ok=True)
    task = progress.add_task(f"fetching {package}", total=None)
    _, _, update_errors = _apt(work, "update")  # one repository may fail and another still have the package
    _, listed, _ = _apt(work, "download", "--print-uris", package)
    _, name, size, *_ = [*listed.split(), "", "", "0"]
    progress.update(task, total=int(size) if size.isdigit() and int(size) else None)

    def tick() -> None:
        if name and (work / name).is_file():
            progress.update(task, completed=(work / name).stat().st_size)

    code, _, download_errors = _apt(work, "download", package, tick=tick)
    packages = sorted(work.glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime)
    if code or not packages:
        last = "\n".join(f"{update_errors}\n{download_errors}".strip().splitlines()[-4:])
        raise SoritesError(
            f"apt-get could not fetch {package}. Its output:\n{last}\n{NO_APT_HINT}."
            f" {offline_hint(work.parent)}"
        )
    progress.update(task, completed=packages[-1].stat().st_size, total=packages[-1].stat().st_size)
    return packages[-1]


def _apt(work: Path, verb: str, *words: str, tick: Callable[[], None] = lambda: None) -> tuple[int, str, str]:
    """Run apt-get and return its exit code, output and errors.

    It is stopped when it takes too long or this process is interrupted.
    """
    options = {
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work,
        "Dir::Cache::archives": work / "archives",
        "Acquire::Languages": "none",
        # apt's sandbox user may not write here when root runs apt; other users have no sandbox
        "APT::Sandbox::User": "root",
    }
    command = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items()), verb, *words]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        env = {**os.environ, "LC_ALL": "C"}
        process = subprocess.Popen(
            command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        try:
            _wait(process, verb, tick)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        return process.returncode, out.read(), err.read()


def _wait(process: subprocess.Popen[bytes], verb: str, tick: Callable[[], None]) -> None:
    end = time.monotonic() + APT_TIMEOUT_SECONDS[verb]
    while process.poll() is None:
        if time.monotonic() > end:
            raise SoritesError(
                f"apt-get {verb} took more than {APT_TIMEOUT_SECONDS[verb]:.0f} seconds. Is the network up?"
                f" {OWN_IMAGES_HINT}"
            )
        tick()
        time.sleep(0.1)


# npm packages, fetched with ``npm pack``; none of their code is run.


# Maximum seconds for npm.
NPM_TIMEOUT_SECONDS = 1800.0


def pack(package: str, sha256: str, into: Path, note: str, instead: str) -> Path:
    """Download the archive of an npm package unless it exists, check it, and return its path.

    If two processes download at once, one waits for the other.

    Args:
        package: ``name@version``.
        sha256: Expected hash of the archive.
        into: Target folder.
        note: Tells the user what is downloaded and under which licence.
        instead: Sentence that says what to do if npm does not work.
    """
    archive = into / f"{package.replace('@', '-').replace('/', '-')}.tgz"
    if archive.is_file():
        return check_hash(archive, sha256, f"Delete it, or: {instead}")
    with download_lock(into, NPM_TIMEOUT_SECONDS):
        if not archive.is_file():
            check_hash(_npm_pack(package, into, note, instead), sha256, instead).replace(archive)
    return archive


def check_hash(path: Path, sha256: str, instead: str) -> Path:
    """Return ``path`` if its content has this SHA-256.

    Raises:
        SoritesError: It has another one.
    """
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise SoritesError(
            f"{path} is not the expected file: SHA-256 {actual[:12]}..., expected {sha256[:12]}.... {instead}"
        )
    return path


def _npm_pack(package: str, into: Path, note: str, instead: str) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SoritesError(f"{package} is fetched with npm, which this machine does not have. {instead}")
    work = into / ".npm"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    console().print(f"{note} It stays in {into}", soft_wrap=True)
    command = [npm, "pack", package, "--ignore-scripts", "--silent"]
    try:
        done = subprocess.run(
            command,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NPM_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise SoritesError(
            f"npm took more than {NPM_TIMEOUT_SECONDS:.0f} seconds. Is the network up? {instead}"
        ) from None
    archives = list(work.glob("*.tgz"))
    if done.returncode or not archives:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise SoritesError(f"npm could not fetch {package}. Its output:\n{last}\n{instead}")
    return archives[0]


# Wheels, fetched with pip in a temporary environment.


# Maximum seconds per call of pip.
PIP_TIMEOUT_SECONDS = 1800.0


@contextlib.contextmanager
def environment(folder: Path, python: str = sys.executable) -> Iterator[Path]:
    """Create a virtual environment in ``folder``, yield its Python, and delete it afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run(
            [python, "-m", "venv", str(folder)], "making an environment", "Is Python's venv module installed?"
        )
        yield folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Options of pip that make it take only wheels of the packages named, and nothing that they depend on.
PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:")


def install(python: Path, wheels: Mapping[str, Sequence[str]], instead: str) -> None:
    """Install wheels into an environment; pip refuses those with another hash.

    Args:
        python: The interpreter of the environment.
        wheels: Requirements (``name==version``), with the SHA-256 of each wheel that is accepted.
        instead: Sentence that says what to do if it fails.
    """
    lines = [f"{name} {' '.join(f'--hash=sha256:{sha}' for sha in shas)}" for name, shas in wheels.items()]
    requirements = python.parent / "requirements.txt"
    requirements.write_text("\n".join(lines))
    words = ["install", *PIP_OPTIONS, "--require-hashes", "--requirement", str(requirements)]
    run([str(python), "-m", "pip", *words], f"pip install {' '.join(wheels)}", instead)


def wheel(python: Path | str, requirement: str, sha256: str, into: Path, instead: str) -> Path:
    """Download the wheel of ``requirement`` (``name==version``), check its SHA-256, and return its path."""
    into.mkdir(parents=True, exist_ok=True)
    words = ["download", *PIP_OPTIONS, "--dest", str(into), requirement]
    run([str(python), "-m", "pip", *words], f"pip download {requirement}", instead)
    prefix = requirement.partition("==")[0].replace("-", "_").lower()
    wheels = [path for path in into.glob("*.whl") if path.name.lower().startswith(f"{prefix}-")]
    if not wheels:
        raise SoritesError(f"pip download {requirement} left no wheel in {into}. {instead}")
    return check_hash(wheels[0], sha256, instead)


def unpack_members(archive: Path, members: Sequence[str], into: Path) -> list[Path]:
    """Write members of a wheel into a folder under their base names, and return their paths."""
    into.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as opened:
        for member in members:
            (into / Path(member).name).write_bytes(opened.read(member))
    return [into / Path(member).name for member in members]


def fetch_from_wheel(
    python: Path | str,
    requirement: str,
    sha256: str,
    inside: str,
    hashes: Mapping[str, str],
    into: Path,
    note: str,
) -> None:
    """Extract files of a wheel into a folder unless they exist; two processes do not fetch at once.

    Args:
        python: The interpreter whose pip downloads the wheel.
        requirement: ``name==version``.
        sha256: Expected hash of the wheel.
        inside: Folder inside the wheel.
        hashes: Paths below ``inside`` with their SHA-256.
        into: Target folder.
        note: Tells the user what is downloaded and under which licence.
    """
    if not missing(hashes, into):
        return
    with download_lock(into, PIP_TIMEOUT_SECONDS):
        left = missing(hashes, into)
        if not left:
            return
        console().print(f"{note} The images stay in {into}", soft_wrap=True)
        work = into / ".pip"
        try:
            archive = wheel(python, requirement, sha256, work, f"{OWN_IMAGES_HINT}. {offline_hint(into)}")
            with zipfile.ZipFile(archive) as opened:
                for name in left:
                    write_bytes(opened.read(f"{inside}/{name}"), into / name)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if left := missing(hashes, into):
            raise SoritesError(
                f"{requirement} contains other images than expected: {min(left)}. {OWN_IMAGES_HINT}"
            )


def run(command: Sequence[str], what: str, instead: str) -> None:
    """Run a program; if it fails, raise an error with its last lines of output."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PIP_TIMEOUT_SECONDS,
            env=env,
        )
    except subprocess.TimeoutExpired:
        raise SoritesError(
            f"{what} took more than {PIP_TIMEOUT_SECONDS:.0f} seconds. Is the network up? {instead}"
        ) from None
    except OSError as error:
        raise SoritesError(f"{what} did not start: {error}. {instead}") from error
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise SoritesError(f"{what} failed. Its output:\n{last}\n{instead}")
