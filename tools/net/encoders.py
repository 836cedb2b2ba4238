"""Image-text models of all three kinds: a split learnt from texts, what its halves know, and
degrees of images by it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

from tools.net import images
from tools.net.hashes import Entry, of_file, of_plain
from tools.net.home import Task, typed

OWN = """
import numpy as np

class Own:
    version = "7"
    turn = np.random.default_rng(0).normal(size=(192, 16))

    def images(self, images):
        small = [p[:: max(1, p.shape[0] // 8), :: max(1, p.shape[1] // 8)][:8, :8] for p in images]
        return np.stack([s.reshape(-1) / 255 - 0.5 for s in small]) @ self.turn

    def texts(self, sentences):
        return np.stack([sum(np.sin(np.arange(1, 17) * (k + 1) * ord(c) / 7) for k, c in enumerate(s)) for s in sentences])
"""
"""An encoder as a user writes it."""
CLIP = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
LOOKS = "a photo of a {}\n\na sketch of a {}\na pencil drawing of a {}\n\na {} at night\n"
SMALL = ("--triplets", "300", "--epochs", "3", "--seed", "5")
NAMED = ("--labels", "photos.txt", "--templates", "looks.txt", "--check", "folder:photos")
"""What an encoder without texts of its own has to be told."""


def tasks() -> list[Task]:
    return [
        Task((f"encoders/{name}", f"words/encoders/{name}"), functools.partial(digests, name, make, more))
        for name, (make, more) in ENCODERS.items()
    ]


def cifar() -> str:
    """The embedded one, taught here on as few images as it can be."""
    return "cifar:1000"


def own() -> str:
    Path("own_encoder.py").write_text(OWN, encoding="utf-8")
    return "python:own_encoder:Own"


def open_clip() -> str:
    """A very small CLIP with weights by chance.

    Asking for one that does not exist makes the library ready to be imported.
    """
    with contextlib.suppress(RuntimeError):
        typed("distance", "folder:photos", "--against", "folder:photos", "--encoder", "open_clip:none@none")
    import torch
    from safetensors.torch import save_file

    library = importlib.import_module("open_clip")
    Path("tiny-clip.json").write_text(json.dumps(CLIP), encoding="utf-8")
    library.add_model_config(Path("tiny-clip.json"))
    torch.manual_seed(0)
    weights = library.create_model("tiny-clip").eval().state_dict()
    save_file({name: values.contiguous() for name, values in weights.items()}, "weights.safetensors")
    return "open_clip:tiny-clip.json@weights.safetensors"


ENCODERS: Mapping[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "cifar": (cifar, ("--limit", "80")),
    "python": (own, NAMED),
    "open_clip": (open_clip, NAMED),
}


def digests(name: str, make: Callable[[], str], more: tuple[str, ...]) -> Iterator[Entry]:
    images.fruit("photos")
    images.fruit("training", first=20)
    Path("looks.txt").write_text(LOOKS, encoding="utf-8")
    spec = make()
    with mock.patch.object(sys, "path", [str(Path.cwd()), *sys.path]):
        said = typed("decompose", "train", "--encoder", spec, *SMALL, *more, "--out", "split.safetensors")
        judged = (
            "--encoder",
            spec,
            "--decomposition",
            "split.safetensors",
            "--k",
            "2",
            "--limit",
            "5",
            "--levels",
            "3",
        )
        typed("distance", "folder:photos", "--against", "folder:training", *judged, "--out", "found.parquet")
        edges = ("--sem-edges", "0.1,0.3", "--cov-edges", "0.2,0.4")
        typed(
            "distance",
            "folder:photos",
            "--against",
            "folder:training",
            *judged,
            *edges,
            "--out",
            "edged.parquet",
        )
    yield f"words/encoders/{name}", of_plain(re.sub(r"orthogonal to \S+", "", said))
    yield f"encoders/{name}/halves", of_plain(re.findall(r"\d+\.\d+|\b\d+\b", said.partition("wrote")[0]))
    for file in ("split.safetensors", "found.parquet", "edged.parquet"):
        yield from (
            (f"encoders/{name}/{Path(file).stem}/{part}", digest) for part, digest in of_file(Path(file))
        )
