"""Options of ``sorites collect``.

This module is imported for ``sorites --help`` and therefore imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites.core.options import Options, declare

# Default minimum of an image's shorter side.
MIN_SIDE = 224
# Images whose hashes differ in at most this many of 64 bits are near duplicates.
NEAR_BITS = 4


@dataclass(frozen=True, kw_only=True)
class Search(Options):
    """Options of ``collect``: the search, the services, and the folder for the images."""

    queries: Sequence[str] = declare(
        (), 'Search query: "ship on grass".', metavar="WORDS...", argument=True, repeat=True
    )
    out: Path | None = declare(None, "The folder for the images.", metavar="DIR", kind=Path)
    plan: str | None = declare(None, "A TOML file of queries: objects with attributes.", metavar="focus|FILE")
    services: str = declare(
        "openverse",
        "Services to search, in this order: openverse, commons, flickr.",
        metavar="NAME,...",
        flag="from",
    )
    contact: str | None = declare(
        None,
        "Contact address sent to the services; default: the variable SORITES_CONTACT.",
        metavar="EMAIL",
    )
    bases: Sequence[str] = declare((), "Use another address for a service.", metavar="NAME=URL", repeat=True)
    dry_run: bool = declare(False, "Print the queries without searching.", kind=bool)


@dataclass(frozen=True, kw_only=True)
class Criteria(Options):
    """Requirements of the images, and the pace of requests."""

    licence: str = declare(
        "by,by-sa,cc0,pdm", "Accepted licences: by, by-sa, cc0, pdm, by-nc, pd ...", metavar="CODE,..."
    )
    limit: int = declare(200, "Keep at most N images per query.", metavar="N", kind=int, low=1)
    smallest: int = declare(
        MIN_SIDE, "Skip images whose shorter side is below this.", metavar="PX", kind=int, low=1
    )
    width: int = declare(
        960,
        "Requested width, where a service offers scaled copies; Wikimedia has 500, 960, 1280 and 1920.",
        metavar="PX",
        kind=int,
        low=64,
        high=8000,
    )
    near: int = declare(
        NEAR_BITS,
        "Treat images whose hashes differ by at most this many bits as duplicates.",
        metavar="BITS",
        kind=int,
        low=0,
        high=20,
    )
    max_bytes: int = declare(40_000_000, "Skip images larger than this.", metavar="N", kind=int, low=1)
    gap: float = declare(
        1.0, "Minimum time between two requests to a host.", metavar="SECONDS", kind=float, low=0, high=600
    )


@dataclass(frozen=True, kw_only=True)
class CollectOptions(Criteria, Search):
    """Options of ``collect``."""
