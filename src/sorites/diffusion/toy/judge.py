"""Classifiers of the toy world, trained on its real pictures: they know nothing of the pipeline that draws like them.

``all`` saw shapes in every style and tells the style as well: it judges generated pictures. ``plain`` saw plain pictures only: it
is the model whose failure under snow and night is measured.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.diffusion.toy.pictures import SHAPES, STYLES, draw
from sorites.errors import SoritesError, UnknownName
from sorites.torch_tools import one_thread
from sorites.types import Image

KINDS = ("all", "plain")
FILE = Path(__file__).with_name("judges.safetensors")


def network() -> Any:
    """Return an untrained classifier: three convolutions, and a head for shapes and styles together."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(48 * 16, 48), nn.ReLU(), nn.Linear(48, len(SHAPES) + len(STYLES)),
    )  # fmt: skip


@functools.cache
def judge(kind: str = "all") -> Any:
    """Return a trained classifier, from the weights that come with the package."""
    from safetensors.torch import load_file

    if kind not in KINDS:
        raise UnknownName("classifier of the toy world", kind, KINDS)
    if not FILE.is_file():
        raise SoritesError(f"{FILE} is missing: install Sorites again")
    start = f"{kind}."
    weights = {name.removeprefix(start): part.float() for name, part in load_file(FILE).items() if name.startswith(start)}
    made = network()
    made.load_state_dict(weights)
    return made.eval().requires_grad_(False)


def opinions(images: Sequence[Image], kind: str = "all") -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return P(shape) N x 4 and P(style) N x 3 of pictures, H x W x 3 in 0..1."""
    import torch

    with one_thread(), torch.no_grad():
        out = judge(kind)(torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() - 0.5)
        shape, style = (part.softmax(1).numpy() for part in (out[:, : len(SHAPES)], out[:, len(SHAPES) :]))
    return shape, style


def train(kind: str, seed: int = 0, steps: int = 700, batch: int = 64) -> Any:
    """Train a classifier on real pictures that are drawn afresh for every step, a little disturbed; about 15 s."""
    import torch
    from torch.nn import functional as F

    rng, styles = np.random.default_rng(seed), STYLES if kind == "all" else STYLES[:1]
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = network()
        optimizer = torch.optim.AdamW(made.parameters(), lr=2e-3, weight_decay=0.01)
        slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            shape, style = rng.integers(len(SHAPES), size=batch), rng.integers(len(styles), size=batch)
            images = np.stack([draw(SHAPES[a], styles[b], rng) for a, b in zip(shape, style, strict=True)])
            images += rng.normal(0, 0.04, images.shape) + rng.normal(0, 0.03, (batch, 1, 1, 3))
            out = made(torch.from_numpy(images.astype(np.float32)).permute(0, 3, 1, 2) - 0.5)
            loss = F.cross_entropy(out[:, : len(SHAPES)], torch.from_numpy(shape))
            if len(styles) > 1:
                loss = loss + F.cross_entropy(out[:, len(SHAPES) :], torch.from_numpy(style))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            slower.step()
    return made.eval().requires_grad_(False)


def real(count: int, style: str, seed: int = 1) -> tuple[list[Image], NDArray[np.int64]]:
    """Return real pictures of one style and their shapes."""
    rng = np.random.default_rng(seed)
    shape = np.arange(count) % len(SHAPES)
    return [draw(SHAPES[a], style, rng) for a in shape], shape
