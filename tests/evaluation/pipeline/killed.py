"""A run that ends itself with SIGKILL after a number of files: ``python -m ... SOURCE OUT FILES OPTIONS``."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

import sorites
from sorites.suites.suite import parse

CLASSES = ("n01440764", "n01443537", "n01484850", "n01491361")
SUITE = {"name": "killed", "labels": list(CLASSES), "frame": {"resize": 64, "crop": 56}, "scorers": ["msp", "knn(k=3)"],
         "shifts": [{"name": "contrast", "levels": [1, 3, 5]}, {"name": "brightness", "levels": [2, 4]}]}  # fmt: skip


def blocks(images: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A model: the means of some blocks are features, and a fixed matrix makes logits of them."""
    features = np.stack([i[:56, :56].reshape(7, 8, 7, 8, 3).mean((1, 3)).ravel()[:48] / 255 for i in images])
    weights = np.random.default_rng(0).normal(size=(48, 4))
    return (features @ weights).astype(np.float32), features.astype(np.float32)


blocks.sorites = {"version": "1"}  # type: ignore[attr-defined]


def network() -> Any:
    """A network of torch, whose rows depend on the batch size."""
    import torch

    class Network(torch.nn.Module):
        sorites: ClassVar = {"size": (56, 56), "crop_pct": 1.0, "labels": CLASSES}

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            first, last = torch.nn.Conv2d(3, 16, 5, 4), torch.nn.Conv2d(16, 32, 3, 2)
            self.body = torch.nn.Sequential(first, torch.nn.ReLU(), last)
            self.fc = torch.nn.Linear(32, len(CLASSES))

        def forward(self, x: Any) -> Any:
            features = self.body(x).mean((2, 3))
            return self.fc(features), features

    return Network().eval()


def run(source: str, out: Path, model: str = "blocks", **options: Any) -> pl.DataFrame:
    """Fit, evaluate and refine; return the table."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "20 of 20 training images are also in the test set")
        found = sorites.run(
            parse(SUITE, "test"), source=source, fit=source, models=[f"near=python:{__name__}:{model}"],
            refine=0.1, keep_features=True, out=out, **options,
        )  # fmt: skip
    return found.collect().sort("image_id", "output", "scorer", nulls_last=True)


def files(out: Path) -> set[str]:
    """The files whose names contain a digest of their content."""
    return {
        f"{folder}/{path.name}"
        for folder in ("predictions", "fits", "features")
        for path in (out / folder).glob("*")
        if path.suffix != ".json"
    }


def main() -> None:
    source, out, count, options = sys.argv[1:]
    replace, left = os.replace, [int(count)]

    def counted(*args: Any, **kwargs: Any) -> None:
        replace(*args, **kwargs)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = counted
    os.rename = counted
    run(source, Path(out), **json.loads(options))


if __name__ == "__main__":
    from tests.evaluation.pipeline import killed

    killed.main()
