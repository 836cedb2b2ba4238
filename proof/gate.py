"""A model made worse on purpose fails the gate, and only on dials on which it is worse on a larger set.

lite0 is the base. One variant has noise in its weights, another a wrong resize: every second pixel,
doubled. The gate sees 61 photo cut-outs and is checked on all 122.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import sorites
from proof._lines import Line
from sorites.analysis.comparison.compare import Comparison, compare
from sorites.analysis.comparison.gate import Gate, judge

NOISE = 0.15
"""The noise in every weight of a convolution, in standard deviations of its layer."""
DIALS, LEVELS = ("gaussian_noise", "jpeg", "defocus_disk"), (2, 4)
SMALL, LARGE = 61, 122


def run() -> Iterator[Line]:
    variants = {
        "noise in the weights": _noisy(),
        "a wrong resize": _resized(),
        "the same weights": sorites.model("lite0"),
    }
    with tempfile.TemporaryDirectory() as folder:
        base = _runs(Path(folder) / "base", sorites.model("lite0"))
        for name, model in variants.items():
            new = _runs(Path(folder) / model.name, replace(model, name=f"{model.name}-new"))
            small, large = (compare(one, two) for one, two in zip(base, new, strict=True))
            yield from _lines(name, small, large)


def _lines(name: str, small: Comparison, large: Comparison) -> Iterator[Line]:
    verdicts = judge(small, Gate(fail_if=("drop > 0",)))
    broken = [verdict.dial for verdict in verdicts if verdict.broken]
    worse = {row["dial"] for row in large.dials.to_dicts() if row["low"] > 0}
    note = (
        f"{', '.join(broken) or 'none'}; worse on all {LARGE}: {', '.join(sorted(worse - {'all'})) or 'none'}"
    )
    same = name == "the same weights"
    yield Line(
        f"{name}: dials that fail at n = {SMALL}",
        len(broken),
        note,
        least=None if same else 1,
        most=0 if same else None,
    )
    yield Line(f"{name}: of these, not worse on the larger set", len(set(broken) - worse), most=0)
    least = min(
        (100 * verdict.detectable for verdict in verdicts if verdict.detectable is not None), default=0.0
    )
    yield Line(f"{name}: least drop noticed with 80 % power, points", least)


def _runs(folder: Path, model: Any) -> list[Path]:
    places = [folder / str(limit) for limit in (SMALL, LARGE)]
    for place, limit in zip(places, (SMALL, LARGE), strict=True):
        sorites.run("demo", models=[model], shifts=DIALS, levels=LEVELS, limit=limit, out=place)
    return places


def _noisy() -> Any:
    """Return lite0 with normal noise in the weights of its convolutions."""
    import torch

    from sorites.core.labels import imagenet
    from sorites.models.lite import input_of, load, one_pass
    from sorites.models.torch_module import linear_head, torch_model

    network, draw = load(0), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight += NOISE * layer.weight.std() * torch.randn(layer.weight.shape, generator=draw)
    return torch_model("noisy", one_pass(network), input_of(0), imagenet().ids, linear_head(network._fc))


def _resized() -> Any:
    """Return lite0 behind a resize that takes every second pixel."""
    whole = sorites.model("lite0")

    def prepare(image: Any, framed: bool = False) -> Any:
        return whole.prepare(image[::2, ::2].repeat(2, axis=0).repeat(2, axis=1), framed)

    return replace(whole, name="resized", prepare=prepare, version=f"{whole.version}-resized")
