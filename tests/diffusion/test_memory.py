"""Memory: counted tensors against sizes known by hand, and settings that save some without changing images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.apps.generation.conftest import FEW, QUICK

from sorites.apps.generation.sliders import trained
from sorites.diffusion import latents
from sorites.diffusion.memory import (
    SHARE,
    MemorySettings,
    drawing_bytes,
    fitting_batch,
    parameter_bytes,
    peak_bytes,
)
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import Request, sample


def test_the_peak_of_tensors_is_counted() -> None:
    """Two vectors of 4 kB live together, a third of 8 kB after the first is freed; views need nothing."""
    import torch

    def task() -> None:
        first = torch.zeros(1000)
        second = first + 1
        del first
        third = torch.cat([second, second])
        third.view(2, -1).add_(1)

    assert peak_bytes(task) == 4000 + 8000
    assert peak_bytes(lambda: torch.zeros(10).add_(1)) == 40


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_in_memory_in_the_asked_number_format(tiny_folder: Path, dtype: str) -> None:
    import torch

    pipe = load(tiny_folder, dtype=dtype, fresh=True)
    weights = [
        w for part in (pipe.network, pipe.parts.text_encoder, pipe.parts.vae) for w in part.parameters()
    ]
    assert {weight.dtype for weight in weights} == {getattr(torch, dtype)}
    assert parameter_bytes(pipe) == sum(w.numel() for w in weights) * (4 if dtype == "float32" else 2)


def test_images_decoded_in_parts_are_those_decoded_together(
    tiny: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [Request("a disc", seed) for seed in range(4)]
    together = np.stack([images[0] for images in sample(tiny, requests, FEW)])
    before = drawing_bytes(tiny, FEW, 4)
    monkeypatch.setattr(latents, "PIXELS_PER_DECODING", 256)
    apart = np.stack([images[0] for images in sample(tiny, requests, FEW)])
    np.testing.assert_allclose(apart, together, atol=1e-5)
    assert drawing_bytes(tiny, FEW, 4) <= before


@pytest.mark.slow
def test_the_batch_that_fits_fills_the_memory(tiny: Pipe) -> None:
    """Peaks grow by the same amount with every image, so two of them tell the largest batch."""
    one, four, five = (drawing_bytes(tiny, FEW, batch) for batch in (1, 4, 5))
    assert four - one == pytest.approx(3 * (five - four), rel=0.02)
    free = int((four + five) / 2 / SHARE)
    assert fitting_batch(tiny, FEW, free) == 4
    assert fitting_batch(tiny, FEW, 0) == 1
    assert fitting_batch(tiny, FEW) == 64, "a small pipeline is limited by the cap alone"


@pytest.mark.slow
def test_training_in_parts_and_with_checkpoints_learns_the_same(tiny: Pipe, tmp_path: Path) -> None:
    recipe = replace(QUICK, steps=2, batch=4)
    settings = {
        "plain": MemorySettings(),
        "parts": MemorySettings(per_pass=1),
        "checkpointed": MemorySettings(checkpointing=True),
    }
    made, peaks = {}, {}
    for name, memory in settings.items():

        def train(name: str = name, memory: MemorySettings = memory) -> None:
            made[name] = trained(tiny, "disc", "snow", recipe, tmp_path / name, memory=memory)

        peaks[name] = peak_bytes(train)
    for name in ("parts", "checkpointed"):
        for layer, pair in made["plain"].lows.items():
            for low, other in zip(pair, made[name].lows[layer], strict=True):
                # AdamW divides by the gradient's size, so that where it is all but 0 rounding may decide its sign
                apart = np.abs(other.numpy() - low.numpy())
                assert np.quantile(apart, 0.99) < 2e-5
        assert peaks[name] < 0.8 * peaks["plain"]
