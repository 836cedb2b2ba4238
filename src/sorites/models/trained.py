"""Models that ``sorites train run`` made, by their folder: ``trained:DIR``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sorites.core import Model, add_model
from sorites.errors import SoritesError
from sorites.models._networks import blank, fill
from sorites.models._torch import linear_head, torch_model
from sorites.models._trained_folder import MAKE, read


@add_model
def trained(argument: str | None) -> Model:
    """Run a model that was trained here (trained:DIR), with the classes of its training.

    Its version holds the weights, the recipe, the hash of the training pictures and the model it was started from.
    """
    if argument is None:
        raise SoritesError(f"model trained: wanted the folder of a trained model. {MAKE}")
    record, arrays = read(argument)
    try:
        import torch
    except ImportError as error:
        from sorites.errors import MissingExtra

        raise MissingExtra("model trained", "train") from error
    network = blank(record.network, len(record.classes), record.input)
    fill(network.module, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, argument)
    head = linear_head(network.module.get_submodule(network.head[0])) if len(network.head) == 1 else None
    made = torch_model(f"trained:{argument}", network.module, record.input, record.classes, head)
    return replace(made, version=record.version(made.version), cache_version=None)
