"""Damage every kind of file of every kind of folder, and count what ``check`` names and what repair restores.

The slow tests take hundreds of cases, ``python -m proof integrity`` tens of thousands.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from unittest import mock

import polars as pl
from tests.conftest import scene
from tests.faults import kinds, verbs
from tests.faults.kinds import Kind, Mutation

import sorites
from sorites import core
from sorites.apps.generation.files import write_table
from sorites.apps.generation.provenance import encode_image
from sorites.core.errors import Notice, SoritesError
from sorites.io.digests import digest_of, write_sealed
from sorites.io.files import write_bytes
from sorites.io.listed import RUN, write_listed
from sorites.sources.written import GENERATED

# The retried images are not those of this run. Encoded images and neighbours are intermediate: ``distance``
# makes them again only if its results need them (``test_runs`` damages all of them together).
NOT_RECREATED = ("retried images", "encoded images", "neighbours")
RUN_KINDS = tuple(
    replace(kind, recreated=kind.recreated and kind.name not in NOT_RECREATED) for kind in kinds.RUN
)
DATASET = (
    Kind("record", "sorites.json", recreated=False),
    Kind("sidecar", "sorites.parquet"),
    Kind("images", "**/*.png"),
)
TRAINING = (
    Kind("record", "model.json", recreated=False),
    Kind("begun", "train.json", recreated=False),
    Kind("weights", "model.safetensors", recreated=False),
    Kind("history", "history.jsonl", recreated=False),
    Kind("list of images", "data.parquet", recreated=False),
    Kind("labels", "labels.txt", recreated=False),
)
PASSPORT = (
    Kind("document", "passport.json"),
    Kind("list", "files.json"),
    Kind("badge", "badge.svg"),
    Kind("card", "model_card.md"),
    Kind("robustness record", "robustness_record.md"),
    Kind("page", "passport.html"),
    Kind("record of a run", "runs/*/run.json", recreated=False),
    Kind("rows of a run", "runs/*/predictions/*.parquet", recreated=False),
    Kind("manifest of a run", "runs/*/manifest.parquet", recreated=False),
)
CAPTURE = (
    Kind("record", "capture.json", recreated=False),
    Kind("photographs in the log", "shots.jsonl", recreated=False),
    Kind("grid", "es-test/settings.json"),
    Kind("references", "es-test/sampled*/*/*.png"),
    Kind("photographs", "es-test/*/l*/**/*.JPEG"),
    Kind("originals", "originals/**/*.JPEG"),
)
COLLECTION = (
    Kind("journal", "journal.jsonl", recreated=False),
    Kind("images", "*.jpg"),
    Kind("table", "images.parquet"),
    Kind("credits", "ATTRIBUTION.md"),
)
GENERATED_FILES = (
    Kind("record", "generation.json", recreated=False),
    Kind("manifest", "manifest.parquet", recreated=False),
    Kind("classes", "classes.tsv", recreated=False),
    Kind("images", "snow/*/*.png", recreated=False),
)
COMPACTED = (
    Kind("index", "index.json"),
    Kind("merged rows", "predictions/*~*.parquet", recreated=False),
)


@dataclass(frozen=True)
class World:
    """A folder and its kinds of files.

    Attributes:
        name: The kind of folder.
        verb: The verb that wrote it, which recreates its files too.
        kinds: The kinds of its files.
    """

    name: str
    verb: verbs.Verb
    kinds: tuple[Kind, ...]

    @property
    def folder(self) -> Path:
        return self.verb.folder


@dataclass
class Tally:
    """Counts of cases.

    Attributes:
        cases: Damaged and copied files, by kind of folder and of damage.
        silent: Those that ``check`` did not name.
        repaired: Folders that were made again after damage, and equal the original.
        different: Those that do not.
    """

    cases: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)
    repaired: int = 0
    different: list[str] = field(default_factory=list)


def worlds(root: Path, stack: ExitStack) -> Iterator[World]:
    """Yield all kinds of folders, made below ``root``, which is the working directory."""
    folder = root / "generated"
    by_name = {verb.name: verb for verb in verbs.verbs(root)}
    by_name["collect"] = stack.enter_context(verbs.collection(root))
    by_name["capture"] = stack.enter_context(verbs.capture(root))
    by_name |= {
        "full run": _full_run(root),
        "generate": verbs.Verb("generate", lambda: generated(folder), folder),
    }
    folders = {
        "full run": ("run", RUN_KINDS),
        "compact": ("compacted run", COMPACTED),
        "build": ("dataset", DATASET),
        "train": ("training", TRAINING),
        "passport": ("passport", PASSPORT),
        "capture": ("capture", CAPTURE),
        "collect": ("collection", COLLECTION),
        "generate": ("generated images", GENERATED_FILES),
    }
    for name, (kind, files) in folders.items():
        verb = by_name[name]
        verb.prepare()
        verb.run()
        if kind == "run":
            write_sealed({"shards": {"contrast-0000000--one": ["a"]}}, verb.folder / "retried.json")
        yield World(kind, verb, files)


def generated(folder: Path) -> None:
    """Write a folder of generated images as ``sorites generate images`` does, without a diffusion model."""
    record, rows = folder / GENERATED.record, []
    folder.mkdir(exist_ok=True)
    write_sealed({"prompt": "a picture of a {class}"}, record)
    write_listed(record, "classes.tsv", b"0\tdisc\n")
    for scale in (0, 500, 1000):
        name = f"snow/000_disc/seed_0001_scale_{scale:04d}.png"
        write_bytes(encode_image(scene(scale, 24, 32), "png"), folder / name)
        rows.append({"path": name, GENERATED.column: digest_of((folder / name).read_bytes())})
    write_table(folder, GENERATED, pl.DataFrame(rows))


def _full_run(root: Path) -> verbs.Verb:
    """Return a verb that writes a run with every kind of file."""
    from tests.faults.test_runs import SUITE, models, network

    folder, where = root / "full", f"folder:{root / 'photos'}"

    def run() -> None:
        with warnings.catch_warnings(), mock.patch.object(core, "model", network):
            warnings.simplefilter("ignore", Notice)
            sorites.run(SUITE, source=where, fit=where, models=models(), out=folder, keep_features=True)
            judge = "python:judge_of_verbs:Judge"
            sorites.distance(
                str(folder), against=where, encoder=judge, k=2, levels=2, engine="local", workers=1
            )
            sorites.explain(folder, ["one", "other"], limit=1)

    return verbs.Verb("full run", run, folder)


def sweep(world: World, count: int, mutations: Sequence[Mutation], seed: int, tally: Tally) -> None:
    """Damage files of every kind in turn, one at a time, and note which ``check`` does not name.

    A log that was cut off looks like that of a process that was killed earlier: its last lines are lost, and
    ``check`` names their files as files of others. Only other damage of logs is counted.
    """
    random, original = Random(seed), kinds.whole(world.folder)
    for case in range(count):
        kind = world.kinds[case % len(world.kinds)]
        path = random.choice(kind.files(world.folder))
        mutation = random.choice(mutations)
        if path.suffix == ".jsonl" and mutation in (kinds.truncate, kinds.empty):
            mutation = kinds.flip
        _overwrite(path, mutation(original[path], random))
        said = reported(world.folder)
        tally.cases[f"{world.name}: {mutation.__name__}"] += 1
        if f"{path} cannot be read" not in said:
            tally.silent.append(f"{world.name}: {path} {said[:200]}")
        _overwrite(path, original[path])
    if said := reported(world.folder):
        tally.silent.append(f"{world.name}: whole, but {said[:200]}")


def _overwrite(path: Path, data: bytes) -> None:
    """Change the content of a file and keep its time."""
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def reported(folder: Path) -> str:
    """Return the error of ``check``; empty if it finds nothing."""
    try:
        sorites.check(folder)
    except SoritesError as error:
        return str(error)
    return ""


def copies(world: World, seed: int, tally: Tally) -> None:
    """Put copies beside a file of each kind: ``check`` names each, and finds no damage."""
    random = Random(seed)
    for kind in world.kinds:
        path = random.choice(kind.files(world.folder))
        if kind.name == "neighbours" or (world.name == "passport" and "run" in kind.name):
            continue  # in folders of their own, whose files are looked up by name
        for copy in kinds.duplicates(path):
            shutil.copy2(path, copy)
            tally.cases[f"{world.name}: copies"] += 1
            try:
                if str(copy) not in sorites.check(world.folder):
                    tally.silent.append(f"{world.name}: {copy} is not named")
            except SoritesError as error:
                tally.silent.append(f"{world.name}: {copy} {error}")
            copy.unlink()


def repair(world: World, count: int, seed: int, tally: Tally) -> None:
    """Damage files that can be recreated, repeat the commands, and compare all files with the originals."""
    random, original = Random(seed), verbs.state(world.verb)
    recreated = [kind for kind in world.kinds if kind.recreated]
    for _ in range(count if recreated else 0):
        paths = {
            random.choice(kind.files(world.folder))
            for kind in random.sample(recreated, min(3, len(recreated)))
        }
        for path in paths:
            path.write_bytes(random.choice(kinds.MUTATIONS)(path.read_bytes(), random))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)
            if (world.folder / RUN).exists():
                sorites.check(world.folder, repair=True)
            world.verb.run()
        shutil.rmtree(world.folder / "damaged", ignore_errors=True)
        now = verbs.state(world.verb)
        differ = sorted(name for name in {*now, *original} if now.get(name) != original.get(name))
        if differ or reported(world.folder):
            tally.different.append(f"{world.name}: {[p.name for p in paths]} {differ[:5]}")
        else:
            tally.repaired += 1
