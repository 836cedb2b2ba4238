"""A small battery: the accuracy of a network in training on a fixed subset of images under shifts."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites.core import CLEAN, METRICS, ImageU8, Model, Outputs, Source
from sorites.core.compute.torch_tools import with_torchvision
from sorites.core.errors import MissingExtra, SoritesError
from sorites.evaluation.run import run
from sorites.suites.suite import parse

if TYPE_CHECKING:
    import torch

PREFIX = "sorites"


@dataclass(frozen=True, kw_only=True)
class SmallBattery:
    """What is evaluated during a training. The images are those of ``sorites run`` with the same arguments.

    Attributes:
        source: The images, which should not be training images: ``folder:PATH``, or a ``Source``.
        shifts: Names of shifts with severities.
        levels: Published levels of each shift.
        labels: Class names in the order of the network's logits, or a file of them.
        limit: The number of samples: the first of a fixed random order.
        seed: Seed of the shifts' random draws.
    """

    source: str | Source
    shifts: Sequence[str]
    levels: Sequence[int] = (1, 3, 5)
    labels: str | Path | Sequence[str] | None = None
    limit: int = 64
    seed: int = 0

    def measure(self, logits: Callable[[list[Any]], NDArray[Any]], prepare: Callable[[Any], Any]) -> Numbers:
        """Return accuracies by name: ``sorites/clean``, ``sorites/SHIFT/SEVERITY``, ``sorites/shifted``.

        The last is the mean over shifts of the mean over their severities.

        Args:
            logits: Returns the logits of a list of prepared images.
            prepare: Turns a Pillow image into what ``logits`` takes.

        Raises:
            SoritesError: Images have errors.
        """

        def forward(images: list[NDArray[Any]]) -> Outputs:
            return Outputs(np.asarray(logits(images), np.float32))

        def prepared(image: ImageU8, framed: bool) -> NDArray[Any]:
            return np.asarray(prepare(Pillow.fromarray(image)))

        model = Model("training", forward, prepared, version="0", one_caller=True, scale="logits")
        suite = parse({"name": "battery", "shifts": list(self.shifts)}, "the battery")
        with tempfile.TemporaryDirectory() as folder:
            done = run(
                suite,
                source=self.source,
                models=[model],
                levels=self.levels,
                labels=self.labels,
                limit=self.limit,
                seed=self.seed,
                engine="local",
                workers=1,
                max_errors=0.0,
                out=Path(folder) / "run",
            )
            found = METRICS.get("accuracy")(done.table, by=["shift", "severity"])
        return _numbers(found)


Numbers = dict[str, float]


def _numbers(found: pl.DataFrame) -> Numbers:
    shifted = found.filter(pl.col("shift") != CLEAN)
    if found["value"].null_count() or not shifted.height:
        raise SoritesError("the battery has no accuracies: its images have no labels of the network")
    rows = shifted.sort("shift", "severity").iter_rows(named=True)
    numbers = {f"{PREFIX}/{row['shift']}/{row['severity']:g}": float(row["value"]) for row in rows}
    clean = found.filter(pl.col("shift") == CLEAN)["value"]
    if len(clean):
        numbers[f"{PREFIX}/clean"] = float(clean[0])
    means = shifted.group_by("shift").agg(pl.col("value").mean())["value"].to_list()
    numbers[f"{PREFIX}/shifted"] = float(sum(means) / len(means))
    return numbers


def network_logits(
    network: torch.nn.Module, call: Callable[[torch.Tensor], Any]
) -> Callable[[list[Any]], NDArray[Any]]:
    """Return a function of images that evaluates a network without gradients, in ``eval`` mode.

    Args:
        network: The network, whose mode is restored after each call.
        call: Returns the logits of a batch.
    """
    import torch

    device = next((weights.device for weights in network.parameters()), torch.device("cpu"))

    def logits(images: list[Any]) -> NDArray[Any]:
        modes = [(part, part.training) for part in network.modules()]
        network.eval()
        try:
            with torch.no_grad():
                batch = torch.from_numpy(np.stack(images)).to(device)
                answered: torch.Tensor = call(batch)
                return np.asarray(answered.float().cpu().numpy())
        finally:
            for part, mode in modes:
                part.training = mode

    return logits


class Normalised:
    """Applies an augmentation to images that are already normalised by a mean and a standard deviation.

    Args:
        augment: The augmentation, such as ``OpticsAugment()``.
        mean: The mean of each channel that was subtracted; with ``std`` 1 and mean 0, images are in 0..1.
        std: The standard deviation of each channel that they were divided by.
    """

    def __init__(self, augment: Any, mean: Sequence[float], std: Sequence[float]) -> None:
        self.augment, self.mean, self.std = augment, tuple(mean), tuple(std)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        shape = (1, -1, 1, 1)
        mean, std = (images.new_tensor(values).reshape(shape) for values in (self.mean, self.std))
        moved: torch.Tensor = self.augment((images * std + mean).clamp(0, 1))
        return (moved - mean) / std


def library(name: str, wanted_by: str, extra: str) -> Any:
    """Import the library of a training loop.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return with_torchvision(lambda: importlib.import_module(name))
    except ModuleNotFoundError as error:
        raise MissingExtra(wanted_by, extra, name.partition(".")[0] if extra == "peers" else "") from error
