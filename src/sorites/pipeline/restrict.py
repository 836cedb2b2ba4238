"""A model that is asked about fewer classes than it has: its logits, head and torch module are cut down to those, so that
right and wrong, confidence and every scorer are about the same classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs
from sorites.errors import SoritesError


def restricted(model: Model, places: NDArray[np.int64]) -> Model:
    """Return the model with only some columns of its logits, in the order of ``places``."""
    labels = model.labels or ()

    def forward(pictures: list[NDArray[Any]]) -> Outputs:
        outputs = model.forward(pictures)
        if outputs.logits is None:
            return outputs
        if outputs.logits.shape[1] != len(labels):
            wide = outputs.logits.shape[1]
            raise SoritesError(f"{model.name} gives {wide} logits for {len(labels)} labels; name its classes with --labels FILE")
        return replace(outputs, logits=np.take(outputs.logits, places, axis=1))

    head = None if model.head is None else (model.head[0][places], model.head[1][places])
    module = None if model.module is None else _module(model.module, places)
    return replace(model, forward=forward, head=head, labels=tuple(labels[i] for i in places), module=module)


def _module(module: Any, places: NDArray[np.int64]) -> Any:
    import torch
    from torch import nn

    class Restricted(nn.Module):
        places: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.register_buffer("places", torch.from_numpy(np.array(places)))

        def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = self.module(pictures)
            logits, *rest = given if isinstance(given, tuple | list) else (given,)
            return (logits[:, self.places], *rest)

    return Restricted().eval()
