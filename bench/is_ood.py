"""Measure the cost of a line of IS-OOD's lists.

They list 11.6 million images, and each line becomes a sample before anything is read. The folder
is made as the published one is, with empty files: four cells of ImageNet-21K-P by class folders,
one of Syn-IS.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CLASSES, EACH, ROUNDS = 40, 100, 5


def made(root: Path) -> int:
    """Write the lists and the files that they name, and return how many lines there are."""
    cells = [("imagenet21k", "imagenet21k/train", cell) for cell in range(4)] + [("SynIS", "SynIS", 0)]
    for images, part, cell in cells:
        names = [*_names(images, cell)]
        for name in names:
            file = root / images / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        listed = root / "imglist" / part / f"cov_{cell}_sem_{cell}.txt"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("".join(f"./{name}\n" for name in names))
    in_distribution = root / "imglist" / "imagenet1k" / "test_imagenet.txt"
    in_distribution.parent.mkdir(parents=True)
    in_distribution.write_text("")
    return len(cells) * CLASSES * EACH


def _names(images: str, cell: int) -> Iterator[str]:
    for kind in range(CLASSES):
        wnid = f"n{kind + CLASSES * cell:08d}"
        for i in range(EACH):
            yield (
                f"{i}_{kind}_{i % 51}.png"
                if images == "SynIS"
                else f"imagenet21k_train/{wnid}/{wnid}_{i}.JPEG"
            )


def run() -> list[tuple[str, float, str]]:
    from sorites import core
    from sorites.core.labels import imagenet

    with tempfile.TemporaryDirectory() as folder:
        count, taken = made(Path(folder)), []
        for _ in range(ROUNDS):
            start = time.process_time()
            core.source(f"is_ood:{folder}", imagenet())
            taken.append(time.process_time() - start)
    return [("a line of IS-OOD's lists: us of one core", min(taken) / count * 1e6, "aim <= 15")]
