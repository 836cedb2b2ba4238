"""Every source over a small valid dataset of which one file is spoilt, over hostile trees, and over
hostile paths.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tests.fuzz import bounds, hostile, worlds

from sorites import core
from sorites.core.errors import BadImage
from sorites.core.labels import imagenet
from sorites.evaluation import samples

PATHS = [word for word in hostile.WORDS if "\x00" not in word and word.encode("utf-8", "ignore")]


def read(spec: str) -> None:
    """Read a source as a run does: its samples in order, none of them twice, and their images."""
    found = core.source(spec, imagenet())
    samples.check_unique(samples.hashed_samples(found))
    for sample in found.samples[:5]:
        assert sample.id.encode()
        with suppress(BadImage):
            sample.load()


def write(root: Path, files: worlds.Files) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


WORLDS = worlds.worlds()
OF = {name: name.split()[0] for name in WORLDS}


@pytest.mark.long
@bounds.shares
@pytest.mark.parametrize("kind", sorted(set(OF.values())))
def test_a_file_of_the_dataset_is_spoilt(kind: str, share: float, here: Path) -> None:
    names = [name for name in WORLDS if OF[name] == kind]
    for name in names:
        write(here / name, WORLDS[name][1])

    def run(case: tuple[str, int]) -> None:
        name, seed = case
        spec, files = WORLDS[name]
        tables = [file for file in files if not file.endswith(".png")] or list(files)
        file = random.Random(seed).choice(tables)
        os.chdir(here / name)
        (here / name / file).write_bytes(worlds.spoil(file, files[file], seed))
        try:
            read(spec)
        finally:
            (here / name / file).write_bytes(files[file])
            os.chdir(here)

    bounds.fuzz(kind, share, st.tuples(st.sampled_from(names), hostile.seeds), run)


@bounds.shares
def test_a_database_is_spoilt(share: float, here: Path) -> None:
    whole = worlds.database([worlds.MAKE, worlds.INSERT])
    write(here, {"1.png": worlds.png()})

    def run(seed: int) -> None:
        rng = random.Random(seed)
        data = (
            hostile.spoilt(whole, seed) if seed % 2 else worlds.database(rng.choices(worlds.STATEMENTS, k=4))
        )
        (here / "annotations.db").write_bytes(data)
        read("focus:.")

    bounds.fuzz("databases", share, hostile.seeds, run)


def tree(root: Path, rng: random.Random) -> None:
    """Make a tree of folders, images, links, pipes and files with hostile names."""
    names = [
        "n02123045",
        "281_cat",
        "a.png",
        "b.jpg",
        ".png",
        "clean",
        "\udcff.png",
        "x" * 250,
        "x" * 251 + ".png",
        "[1].png",
        "\n.png",
        *PATHS[:70],
    ]
    folders = [root]
    for _ in range(rng.randrange(1, 9)):
        where = rng.choice(folders) / rng.choice(names).replace("/", "_")
        with suppress(OSError, ValueError):
            kind = rng.choice(
                ("folder", "folder", "image", "image", "link", "loop", "out", "pipe", "empty", "deep")
            )
            if kind == "folder":
                where.mkdir()
                folders.append(where)
            elif kind == "image":
                where.with_suffix(".png").write_bytes(worlds.png())
            elif kind == "link":
                where.symlink_to(rng.choice(folders), target_is_directory=True)
            elif kind == "loop":
                where.symlink_to(where.name)
            elif kind == "out":
                where.symlink_to("/etc")
            elif kind == "pipe":
                os.mkfifo(where.with_suffix(".png"))
            elif kind == "empty":
                where.with_suffix(".jpg").touch()
            else:
                (where / "d/d/d/d").mkdir(parents=True)


SPECS: tuple[Callable[[str], str], ...] = (
    lambda path: f"folder:{path}", lambda path: f"cns_bench:{path}", lambda path: f"cns_bench:{path}?trajectories=all",
    lambda path: f"imagenet_es:{path}", lambda path: f"focus:{path}", lambda path: f"is_ood:{path},present",
    lambda path: f"webdataset:{path}",
    lambda path: f"context:{path}",
)  # fmt: skip


@bounds.shares
def test_a_tree_is_hostile(share: float, here: Path) -> None:
    def run(seed: int) -> None:
        rng = random.Random(seed)
        shutil.rmtree(here / "t", ignore_errors=True)
        (here / "t").mkdir()
        tree(here / "t", rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(rng.choice(SPECS)("t") if rng.random() < 0.5 else "folder:t")

    bounds.fuzz("folder", share, hostile.seeds, run)
