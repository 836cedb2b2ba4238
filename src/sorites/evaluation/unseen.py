"""Leave out images that a model was trained on: a trained model lists the content of its training images.

Images are compared by a hash of their data, so copies under other names are found too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sorites.core import split_spec
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.packed import PackedSamples
from sorites.evaluation.storage.contents import contents
from sorites.models.trained import training_contents

TRAINED = "trained"


def unseen(samples: PackedSamples, models: Sequence[str]) -> PackedSamples:
    """Return the samples whose images none of some trained models was trained on.

    Args:
        samples: The samples.
        models: Specs of trained models: ``trained:DIR``.

    Raises:
        SoritesError: A model is not a trained one, or no sample is left.
    """
    seen = frozenset[str]().union(*(contents_of(spec) for spec in models))
    if not seen or not len(samples):
        return samples
    kept = [i for i, content in enumerate(contents(samples)["content"]) if content not in seen]
    if not kept:
        raise SoritesError(f"all {len(samples)} images are training images of {', '.join(models)}")
    return samples.take(np.array(kept))


def contents_of(spec: str) -> frozenset[str]:
    """Return the hashes of the images that a model of the spec ``trained:DIR`` was trained on."""
    name, argument = split_spec(spec)
    if name != TRAINED or not argument:
        raise SoritesError(
            f"{option('unseen_by', None)}: expected a model that lists its training images, {TRAINED}:DIR,"
            f" got {spec!r}"
        )
    return training_contents(argument)
