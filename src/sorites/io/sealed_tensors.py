"""Safetensors files that contain the digest of their own bytes, in the metadata of the header.

A record beside a file can be lost when the file is copied; lenses and attribute heads are passed on as single
files.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from sorites.core.errors import Damaged
from sorites.io.digests import DIGEST_BYTES, MISMATCH, digest_of

# The metadata to write before the digest is known.
NO_DIGEST = {"digest": "0" * 2 * DIGEST_BYTES}
_DIGEST = re.compile(rb'"digest":"(?P<digest>[0-9a-f]{%d})"' % (2 * DIGEST_BYTES))


def seal_tensors(data: bytes) -> bytes:
    """Return a safetensors file with its digest in place of ``NO_DIGEST``.

    Args:
        data: The file, whose metadata contains ``NO_DIGEST``.
    """
    data = sorted_header(data)
    start, end, _ = _found(data)
    return data[:start] + digest_of(data).encode() + data[end:]


def require_tensors(path: Path, remedy: str) -> None:
    """Compare a safetensors file with the digest that it contains.

    Raises:
        Damaged: It cannot be read, contains no digest, or does not match it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(path, error.strerror or str(error), remedy) from error
    if not data:
        raise Damaged(path, "it is empty", remedy)
    start, end, digest = _found(data)
    if not digest:
        reason = "it contains no digest; it was changed, or written by an earlier version"
        raise Damaged(path, reason, remedy)
    if digest_of(data[:start] + NO_DIGEST["digest"].encode() + data[end:]) != digest:
        raise Damaged(path, MISMATCH, remedy)


def _found(data: bytes) -> tuple[int, int, str]:
    """Return where the digest of a file is, and the digest; empty if it has none."""
    length = int.from_bytes(data[:8], "little")
    match = _DIGEST.search(data, 8, min(8 + length, len(data)))
    return (match.start("digest"), match.end("digest"), match["digest"].decode()) if match else (0, 0, "")


def sorted_header(data: bytes) -> bytes:
    """Return a safetensors file with sorted metadata, which the library writes in random order."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    encoded = json.dumps(header, separators=(",", ":")).encode()
    padded = encoded + b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(padded)) + padded + data[8 + length :]
