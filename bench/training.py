"""Training images per second: the loop of a recipe against a bare torch loop with the same
network, data and optimiser.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench._timing import in_turns
from sorites.core.compute.torch_tools import one_thread
from sorites.models.trained import start
from sorites.training.loop import named_changes
from sorites.training.recipe import load
from sorites.training.session import Training

IMAGES, STEPS, ROUNDS = 4096, 20, 7


class Bare:
    """Train in plain torch: arrays in memory, random batches, flips, one-cycle SGD; no history,
    no checkpoints, no bar.
    """

    def __init__(
        self, module: nn.Module, images: np.ndarray, labels: np.ndarray, mean: object, std: object
    ) -> None:
        self.module = module.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)
        self.mean, self.std = (torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))
        self.optimiser = torch.optim.SGD(
            module.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimiser, 0.1, 10_000, cycle_momentum=False)

    def steps(self) -> None:
        for _ in range(STEPS):
            some = torch.randint(len(self.images), (64,))
            x = self.images[some].permute(0, 3, 1, 2).float().div_(255)
            mirrored = torch.rand(64) < 0.5
            x[mirrored] = x[mirrored].flip(3)
            x = x.sub(self.mean).div_(self.std).contiguous(memory_format=torch.channels_last)
            self.optimiser.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(self.module(x)[0], self.labels[some], label_smoothing=0.1)
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            float(loss.detach())


def run() -> list[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as out, one_thread():
        changes = {"limit": IMAGES, "steps": 10_000, "validate_every": 1000.0}
        recipe = load("cifar_optics").override(named_changes(changes))
        training = Training(recipe, Path(out), "cpu", 1, lambda text: None)
        prepared = training.steps.batches.prepared
        images = prepared.several(np.arange(len(prepared)), 0, 0)
        other = start("small", training.data.labels.ids, images=lambda wants, count: list(images[:count]))
        bare = Bare(other.module, images, prepared.labels, other.wants.mean, other.wants.std)

        def ours() -> None:
            first = training.step
            training.take_all(
                training.steps.batches.between(first, first + STEPS), lambda count, words: None, 1e9
            )

        both = in_turns(ROUNDS, time.process_time, ours, bare.steps)
        on_clock = in_turns(3, time.perf_counter, ours, bare.steps)
    ratio = median(theirs / mine for mine, theirs in zip(*both, strict=True))
    clock = median(theirs / mine for mine, theirs in zip(*on_clock, strict=True))
    speed = 64 * STEPS / median(both[0])
    note = f"aim >= 0.95; {speed:.0f} images per second of one core; on the clock {clock:.2f}"
    return [("images per second of a recipe / of a bare torch loop, 32 px", ratio, note)]
