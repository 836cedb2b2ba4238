"""Digests of the files that Sorites writes, so that damage is found before a parser sees it.

There are three ways in which a file is certified:

- A *shard* (a file that a worker writes) has a digest at the end of its name. It covers the name and the
  content, so that a copy under another name is damaged.
- A *sealed* JSON file (the record of a folder) ends with the digest of its own bytes.
- Any other file is listed, with its digest, in the sealed record of its folder.

Hashing a large table takes longer than reading a few of its columns. ``Verifier`` therefore remembers the
size and modification time of the files that it has verified. A change that keeps both is found only with
``remember=False``, which ``sorites check`` uses.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sorites.core.errors import Damaged, SoritesError
from sorites.io.files import cache, forget_copy, local_copies, read_json, write_bytes
from sorites.io.stores import StorePath

# Bytes of a digest; 16 bytes are 32 hexadecimal digits in file names.
DIGEST_BYTES = 16
# Threads that hash files; hashing releases the interpreter lock.
HASH_THREADS = 4
MISMATCH = "its content does not match its digest"

_NAMED = re.compile(rf"(?P<stem>.+)\.(?P<digest>[0-9a-f]{{{2 * DIGEST_BYTES}}})(?P<suffix>\.[a-z]+)")
_SEAL = re.compile(rb',\n "digest": "(?P<digest>[0-9a-f]{%d})"\n}' % (2 * DIGEST_BYTES))
_SEAL_LENGTH = len(b',\n "digest": ""\n}') + 2 * DIGEST_BYTES


def digest_of(data: bytes) -> str:
    """Return the digest of some bytes as hexadecimal digits.

    Example:
        >>> digest_of(b"sorites")
        '8f5ab2bd381bee485ddf56204f0643af'
    """
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digest_of_file(path: Path, salt: bytes = b"") -> str:
    """Return the digest of a file's content, after some other bytes.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(salt, digest_size=DIGEST_BYTES)).hexdigest()


def matches(content: bytes | Path, digest: str, salt: bytes = b"") -> bool:
    """Return whether some bytes, or a file, have a digest; SHA-256, with twice as many digits, is known too.

    Raises:
        OSError: The file cannot be read.

    Example:
        >>> matches(b"sorites", digest_of(b"sorites"))
        True
    """
    if len(digest) == 2 * hashlib.sha256().digest_size:
        data = content if isinstance(content, bytes) else content.read_bytes()
        return hashlib.sha256(data).hexdigest() == digest
    if isinstance(content, bytes):
        return digest_of(salt + content) == digest
    return digest_of_file(content, salt) == digest


# Shards.


def digest_of_shard(stem: str, data: bytes) -> str:
    """Return the digest of a shard: of its stem, a zero byte, and its content."""
    hasher = hashlib.blake2b(_salt(stem), digest_size=DIGEST_BYTES)
    hasher.update(data)
    return hasher.hexdigest()


def _salt(stem: str) -> bytes:
    return os.fsencode(stem) + b"\0"


def shard_name(stem: str, data: bytes, suffix: str) -> str:
    """Return the file name of a shard with this content."""
    return f"{stem}.{digest_of_shard(stem, data)}{suffix}"


def write_shard(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a shard atomically, and return its path.

    Raises:
        SoritesError: It cannot be written.
    """
    path = folder / shard_name(stem, data, suffix)
    write_bytes(data, path)
    return path


def read_shard(path: Path, remedy: str) -> bytes:
    """Read a shard and verify it; a damaged copy in the cache of a file on a store is copied again.

    Args:
        path: The shard.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It cannot be read, or its name or content has changed.
    """
    while True:
        try:
            local = local_copies([path])[0]
            _require_file(local)
            data = local.read_bytes()
        except OSError as error:
            raise Damaged(path, _os_problem(error), remedy) from error
        if digest_in(path.name) == digest_of_shard(stem_of(path.name) or "", data):
            return data
        if not forget_copy(path):
            raise Damaged(path, MISMATCH if data else "it is empty", remedy)


def read_bytes(path: Path, remedy: str) -> bytes:
    """Read a file.

    Raises:
        Damaged: It is missing or cannot be read.
    """
    try:
        _require_file(path)
        return path.read_bytes()
    except OSError as error:
        raise Damaged(path, _os_problem(error), remedy) from error


def _require_file(path: Path) -> None:
    """Raise an error if a path is a pipe or a device, which may never end; a missing file is none."""
    if not isinstance(path, StorePath) and path.exists() and not path.is_file():
        raise OSError("it is not a file")


def _os_problem(error: OSError) -> str:
    return "it is missing" if isinstance(error, FileNotFoundError) else error.strerror or str(error)


def shards_in(folder: Path, suffix: str) -> dict[str, Path]:
    """Return the shards of a folder by stem, in order; other files are left out.

    Two workers that did the same task may have left two shards with the same stem. Both are valid, and the
    first by name counts.
    """
    return {stem: paths[0] for stem, paths in all_shards_in(folder, suffix).items()}


def all_shards_in(folder: Path, suffix: str) -> dict[str, list[Path]]:
    """Return all shards of a folder by stem, in order."""
    shards: dict[str, list[Path]] = {}
    for name in sorted(_names(folder)):
        match = _NAMED.fullmatch(name)
        if match and match["suffix"] == suffix:
            shards.setdefault(match["stem"], []).append(folder / name)
    return shards


def _names(folder: Path) -> list[str]:
    try:
        is_stored = isinstance(folder, StorePath)
        return [path.name for path in folder.iterdir()] if is_stored else os.listdir(folder)
    except FileNotFoundError:
        return []


def digest_in(name: str) -> str | None:
    """Return the digest that a file name ends with, or None if it has none."""
    match = _NAMED.fullmatch(name)
    return match["digest"] if match else None


def stem_of(name: str) -> str | None:
    """Return the name of a shard without digest and suffix, or None if it is not named like a shard."""
    match = _NAMED.fullmatch(name)
    return match["stem"] if match else None


# Sealed JSON files.


def seal(content: Mapping[str, Any]) -> bytes:
    """Return plain data as JSON that ends with the digest of its own bytes.

    Args:
        content: At least one key, and none called ``digest``.
    """
    body = json.dumps(content, indent=1).encode().removesuffix(b"\n}")
    return b'%s,\n "digest": "%s"\n}' % (body, digest_of(body).encode())


def unseal(data: bytes) -> dict[str, Any]:
    """Return the content of a sealed JSON file, without the digest.

    Raises:
        SoritesError: There is no digest at the end, or it is not that of the other bytes.
    """
    body, end = data[:-_SEAL_LENGTH], data[-_SEAL_LENGTH:]
    match = _SEAL.fullmatch(end)
    if match is None:
        raise SoritesError(
            "it does not end with a digest; it was changed, or written by an earlier version"
            if data
            else "it is empty"
        )
    if match["digest"].decode() != digest_of(body):
        raise SoritesError(MISMATCH)
    try:
        content: dict[str, Any] = json.loads(body + b"\n}")
    except (ValueError, RecursionError) as error:  # somebody computed the digest of something else
        raise SoritesError(f"it is not JSON: {error}") from error
    return content


def write_sealed(content: Mapping[str, Any], path: Path) -> None:
    """Write plain data as a sealed JSON file, atomically.

    Raises:
        SoritesError: It cannot be written.
    """
    write_bytes(seal(content), path)


def read_sealed(path: Path, remedy: str) -> dict[str, Any]:
    """Read a sealed JSON file.

    Args:
        path: The file.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It cannot be read, or it has changed.
    """
    try:
        return unseal(read_bytes(path, remedy))
    except Damaged:
        raise
    except SoritesError as error:
        raise Damaged(path, error, remedy) from error


# Verification with memory.

# Size and modification time in nanoseconds of a file when it was verified, and its digest.
Seen = tuple[int, int, str]


class Verifier:
    """Verifies files of one folder against their digests.

    Args:
        folder: The folder; what was verified is remembered per folder, in the cache.
        remember: Whether to trust files whose size and modification time are those of an earlier
            verification.
    """

    def __init__(self, folder: Path, remember: bool = True) -> None:
        self._memory = cache("verified", f"{digest_of(os.fsencode(str(folder.resolve())))}.json")
        self._seen = _read_memory(self._memory) if remember else {}
        self._remember = remember

    def problems(self, expected: Mapping[Path, str]) -> dict[Path, str]:
        """Return the files that differ from their digests or cannot be read, each with the reason.

        Args:
            expected: Digests by file.
        """
        local = dict(zip(expected, _copies(list(expected)), strict=True))
        new = [path for path, digest in expected.items() if not self._is_known(path, local[path], digest)]
        if not new:
            return {}
        with ThreadPoolExecutor(HASH_THREADS) as pool:
            fresh = not self._remember
            verdicts = list(pool.map(lambda path: _verify(path, local[path], expected[path], fresh), new))
        found = {path: why for path, why in zip(new, verdicts, strict=True) if isinstance(why, str)}
        whole = {str(p): seen for p, seen in zip(new, verdicts, strict=True) if not isinstance(seen, str)}
        if whole:
            self._seen |= whole
            _write_memory(self._memory, self._seen)
        return found

    def require(self, expected: Mapping[Path, str], remedy: str) -> None:
        """Raise an error that names the first file that is damaged.

        Args:
            expected: Digests by file.
            remedy: What to do, for the error.

        Raises:
            Damaged: A file differs from its digest or cannot be read.
        """
        for path, reason in self.problems(expected).items():
            raise Damaged(path, reason, remedy)

    def _is_known(self, path: Path, local: Path, expected: str) -> bool:
        """Return whether a file has the size and time of its last verification."""
        seen = self._seen.get(str(path))
        if seen is None or seen[2] != expected:
            return False
        try:
            stat = os.stat(local)
        except OSError:
            return False
        return (stat.st_size, stat.st_mtime_ns) == seen[:2]


def _copies(paths: list[Path]) -> list[Path]:
    """Return local copies of files; a file on a store that cannot be copied stays where it is."""
    try:
        return local_copies(paths)
    except OSError:
        return [path if len(paths) == 1 else _copies([path])[0] for path in paths]


def _verify(path: Path, local: Path, expected: str, fresh: bool) -> Seen | str:
    """Return what to remember of a file, or the reason why it is damaged.

    A damaged copy in the cache of a file on a store is copied again; with ``fresh``, any that differs from
    the file, because the tags of some stores do not change with the content.
    """
    stem = stem_of(path.name) if digest_in(path.name) == expected else None
    try:
        if fresh and forget_copy(path):
            local = local_copies([path])[0]
        while True:
            _require_file(local)
            stat = local.stat()
            if matches(local, expected, b"" if stem is None else _salt(stem)):
                return stat.st_size, stat.st_mtime_ns, expected
            if not forget_copy(path):
                return MISMATCH if stat.st_size else "it is empty"
            local = local_copies([path])[0]
    except OSError as error:
        return _os_problem(error)


def named_digests(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the digests that the names of shards end with; other files are left out."""
    return {path: digest for path in paths if (digest := digest_in(path.name))}


def _read_memory(path: Path) -> dict[str, Seen]:
    """Read what was verified; a memory that cannot be read is empty, which costs only time."""
    try:
        return {
            name: (int(size), int(time), str(digest))
            for name, (size, time, digest) in read_json(path).items()
        }
    except (SoritesError, AttributeError, TypeError, ValueError):
        return {}


def _write_memory(path: Path, seen: Mapping[str, Seen]) -> None:
    try:
        write_bytes(json.dumps(seen).encode(), path)
    except SoritesError:  # a cache that cannot be written costs only time
        return
