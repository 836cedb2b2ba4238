"""Damage to files and kills: nothing is silent, nothing aborts, and what can be recreated is.

Every kind of file of a run, a compacted run, a dataset, a training, a passport, a capture, a collection and
generated images is damaged at random, one file at a time: 10,000 flipped bits, then 10,000 flips, lost ends, empty files, and
foreign content of the same length; copies are put beside files. ``sorites check`` must name each file. Files
that can be recreated are damaged together, the commands are repeated, and all files are compared with the
originals. Every verb that writes a folder is killed at 20 moments, evenly spread over all its changes of
files, and repeated. A process that aborted would end the proof. Last, 1,100 connections with half a request
are open to each server while a valid client asks it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.apps.test_serving import half_open, open_targets
from tests.faults import kinds, sweeps
from tests.faults.kills import killed, killed_verbs

from proof._lines import Line

FLIPS, OTHERS, REPAIRS, KILLS = 10_000, 10_000, 20, 20


def run() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["SORITES_CACHE"] = str(Path(folder, "cache"))
        yield from _damage(Path(folder, "damage"))
        yield from _kills(Path(folder, "kills"))
        yield from _servers(Path(folder))


def _damage(root: Path) -> Iterator[Line]:
    root.mkdir()
    flips, others, repairs = sweeps.Tally(), sweeps.Tally(), sweeps.Tally()
    with contextlib.chdir(root), contextlib.ExitStack() as stack:
        worlds = list(sweeps.worlds(root, stack))
        for number, world in enumerate(worlds):
            sweeps.sweep(world, -(-FLIPS // len(worlds)), (kinds.flip,), number, flips)
            sweeps.sweep(world, -(-OTHERS // len(worlds)), kinds.MUTATIONS, 100 + number, others)
            sweeps.copies(world, number, others)
            sweeps.repair(world, REPAIRS, number, repairs)
    for name, tally in (("flipped bits", flips), ("flips, lost ends, empty, foreign, copies", others)):
        note = "; ".join(tally.silent[:3])
        yield Line(f"{name}: cases", sum(tally.cases.values()), least=FLIPS)
        yield Line(f"{name}: not named by check", len(tally.silent), note, most=0)
    yield Line("folders that were repaired and equal the originals", repairs.repaired)
    yield Line(
        "folders that were repaired and differ",
        len(repairs.different),
        "; ".join(repairs.different[:3]),
        most=0,
    )


def _servers(root: Path) -> Iterator[Line]:
    with open_targets(root) as targets:
        for name, target in targets.items():
            with half_open(target, b"GET / HTTP/1.1\r\nHost: 127"):
                begun = time.monotonic()
                answered = target.status(seconds=60) == 200
                seconds = time.monotonic() - begun
            yield Line(f"{name}: seconds to an answer beside 1,100 half requests", seconds, most=5)
            yield Line(f"{name}: answered", answered, least=1)


def _kills(root: Path) -> Iterator[Line]:
    root.mkdir()
    with contextlib.chdir(root), contextlib.ExitStack() as stack:
        for verb in killed_verbs(root, stack):
            found = killed(verb, root / "moments", KILLS)
            note = f"{found.moments} changes of files, {found.unfinished} unfinished for check"
            yield Line(f"{verb.name}: killed and repeated", found.kills, note)
            yield Line(
                f"{verb.name}: different, or called damaged",
                len(found.wrong),
                "; ".join(found.wrong[:2]),
                most=0,
            )
