"""The model pass: lite0 as Sorites runs it against the same network in torch eager, on the same images."""

from __future__ import annotations

import statistics
import time

import numpy as np

from bench._timing import in_turns

ROUNDS, BATCH = 7, 8


def run() -> list[tuple[str, float, str]]:
    """(name, ratio, note): how many times faster than torch at its better of one and all threads,
    and how far off the logits.
    """
    import torch

    from sorites import core
    from sorites.core.compute.torch_tools import one_thread
    from sorites.models.lite import load
    from sorites.models.trial import trial_images

    model, network = core.model("lite0"), load(0)
    images = [np.roll(image, 17 * i, axis=1) for i in range(BATCH) for image in trial_images((224, 224))[:1]]
    ready = (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() - 127) / 128

    def eager() -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(network(ready))

    def eager_on_one_thread() -> np.ndarray:
        with one_thread():
            return eager()

    def ours() -> np.ndarray:
        return np.asarray(model(images).logits)

    gap = float(np.abs(ours() - eager()).max())
    *torches, fast = map(
        statistics.median, in_turns(ROUNDS, time.perf_counter, eager, eager_on_one_thread, ours)
    )
    slow = min(torches)
    rates = f"{BATCH / fast:.0f} against {BATCH / slow:.0f} images/s"
    return [
        ("model pass: lite0 against torch eager", slow / fast, f"aim at least 2.5; {rates}"),
        ("model pass: largest difference of a logit", gap, "aim at most 1e-4"),
    ]
