"""Images that the toy diffusion model draws: sliders and words of two steps, trajectories, checks
and styles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.net import images
from tools.net.hashes import Entry, of_csv, of_folder, of_plain
from tools.net.home import Task, below, typed

TOY = ("disc", "square", "triangle", "cross")
ONE = ("--class", "disc", "--shift", "snow")
FEW = ("--noise-steps", "6")


def tasks() -> list[Task]:
    return [
        Task(("generated/sliders", "generated/drawn", "generated/check", "words/generated"), drawn),
        Task(("generated/words",), words),
        Task(("generated/styles",), styles),
    ]


def drawn() -> Iterator[Entry]:
    """Sliders, trajectories along own and embedded ones, two together, and the check of what was drawn."""
    typed("generate", "sliders", *ONE, "--steps", "2", "--out", "sliders", *FEW)
    yield from below("generated/sliders", of_folder(Path("sliders"), "sorites.json"))
    shared = ("--seeds", "2", "--severity", "0,1,2", *FEW)
    typed("generate", "images", "--sliders", "sliders", *ONE, "--out", "own", *shared)
    typed(
        "generate",
        "images",
        "--sliders",
        "toy",
        "--class",
        "disc",
        "--class",
        "cross",
        "--by-text",
        "--out",
        "toy",
        *shared,
    )
    pair = ("--slider", "snow=1", "--slider", "night=1", "--class", "disc", "--seeds", "1")
    typed("generate", "images", *pair, "--out", "pair", *FEW)
    for folder in ("own", "toy", "pair"):
        yield from below(f"generated/drawn/{folder}", of_folder(Path(folder), "sorites.json"))
    said = typed("generate", "check", "toy", "--format", "csv", "--real", "own")
    yield "generated/check/numbers", of_plain([line for line in said.splitlines() if "," in line])
    yield from below(
        "generated/check/nearest", of_folder(Path("toy"), *(path.name for path in Path("own").rglob("*.png")))
    )
    said = typed(
        "generate",
        "check",
        "toy",
        "--model",
        "toy:all",
        "--features",
        "toy:all",
        "--real",
        "own",
        "--format",
        "csv",
    )
    yield from of_csv(said, "generated/check/realism")


def shapes(root: str) -> None:
    """Images in folders named by the toy's classes."""
    for i, name in enumerate(TOY * 2):
        images.save(Path(root, name, f"{i}.png"), images.scene(i, 64, 64))


def words() -> Iterator[Entry]:
    """Words of two classes, and images drawn by them."""
    shapes("real")
    Path("toy.txt").write_text("\n".join(TOY) + "\n", encoding="utf-8")
    only = ("--class", "disc", "--class", "cross")
    typed(
        "generate",
        "words",
        "--source",
        "folder:real",
        *only,
        "--steps",
        "2",
        "--batch",
        "2",
        "--out",
        "learnt",
    )
    yield from below("generated/words", of_folder(Path("learnt"), "sorites.json"))
    asked = ("--words", "learnt", *ONE, "--seeds", "1", "--severity", "0,1", *FEW)
    typed("generate", "images", *asked, "--out", "drawn")
    yield from below("generated/words/drawn", of_folder(Path("drawn"), "sorites.json"))


def styles() -> Iterator[Entry]:
    """Labels in styles, by cells of distance."""
    shapes("real")
    Path("objects.txt").write_text("disc\nsquare\ncross\n", encoding="utf-8")
    small = ("--k", "2", "--levels", "2", "--per-cell", "2", "--prompts", "12", "--id-images", "4", *FEW)
    typed(
        "generate", "styles", "--labels", "objects.txt", "--against", "folder:real", "--out", "styled", *small
    )
    yield from below("generated/styles", of_folder(Path("styled"), "sorites.json"))
