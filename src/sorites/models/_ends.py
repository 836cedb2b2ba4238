"""Read the two ends of an ONNX classifier: its input, and which of its outputs are logits and features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.models._preprocess import Channels

TYPES: dict[str, type[np.generic]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
FEATURES = re.compile(r"feat|embed|pre_?logit|penult|pool", re.IGNORECASE)
LOGITS = re.compile(r"logit|prob|class|score|pred", re.IGNORECASE)


class Normalised(Protocol):
    """Anything with what normalising needs: mean and std of pixels in 0..1."""

    @property
    def mean(self) -> Channels: ...

    @property
    def std(self) -> Channels: ...


@dataclass(frozen=True)
class GraphInput:
    """The one input of a graph: its layout and type, and its size and batch if the graph fixes them."""

    layout: str
    dtype: type[np.generic]
    size: tuple[int, int] | None
    batch: int | None

    def shaped(self, pictures: NDArray[np.uint8], wants: Normalised) -> NDArray[Any]:
        """Return pictures (8 bits, N x H x W x 3) as the graph wants them; an 8-bit input is not normalised."""
        batch: NDArray[Any] = pictures
        if self.dtype is not np.uint8:
            mean, std = (np.float32(np.multiply(part, 255.0)) for part in (wants.mean, wants.std))
            batch = ((pictures - mean) / std).astype(self.dtype)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2)) if self.layout == "NCHW" else batch


@dataclass(frozen=True)
class GraphOutputs:
    """The names of the outputs that are read as logits and features."""

    logits: str
    features: str | None = None


def read_input(session: Any, layout: str, path: Path) -> GraphInput:
    """Return the input of a session; ``layout`` counts only if the graph leaves it open."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise SoritesError(f"{path}: wanted one input (pictures), got {len(inputs)}: {', '.join(i.name for i in inputs)}")
    return read_pictures(inputs[0].shape, inputs[0].type, layout, path)


def read_pictures(shape: list[Any], kind: str, layout: str, path: Path) -> GraphInput:
    """Return an input of this shape and type, which must be one for pictures."""
    if kind not in TYPES:
        raise SoritesError(f"{path}: wanted an input of {', '.join(TYPES)}, got {kind}")
    places = _layout(shape, layout)
    if places is None:
        raise SoritesError(f"{path}: wanted an input of N x 3 x H x W or N x H x W x 3, got {shape}")
    fixed = [side if isinstance(side, int) else None for side in shape]
    height, width = (fixed[places.index(axis)] for axis in "HW")
    return GraphInput(places, TYPES[kind], None if height is None or width is None else (height, width), fixed[0])


def _layout(shape: list[Any], hint: str) -> str | None:
    if len(shape) != 4:
        return None
    open_ones = [name for name in ("NCHW", "NHWC") if not isinstance(shape[name.index("C")], int)]
    sure = [name for name in ("NCHW", "NHWC") if shape[name.index("C")] == 3]
    if len(sure) == 1:
        return sure[0]
    either = sure or open_ones
    return hint if hint in either else next(iter(either), None)


def read_outputs(session: Any, path: Path) -> GraphOutputs:
    """Return the outputs of a session: logits are the 2-D output named so, else the first that is not named like features."""
    outputs = session.get_outputs()
    flat = [o.name for o in outputs if len(o.shape or (0, 0)) == 2 and "float" in o.type]
    if not flat:
        came = ", ".join(f"{o.name} {o.shape}" for o in outputs)
        raise SoritesError(f"{path}: wanted a 2-D output (pictures x classes), got {came}")
    plain = [name for name in flat if not FEATURES.search(name)] or flat[:1]
    logits = next((name for name in plain if LOGITS.search(name)), plain[0])
    return GraphOutputs(logits, next((name for name in flat if FEATURES.search(name) and name != logits), None))
