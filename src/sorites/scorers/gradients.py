"""Strangeness from gradients: of the last layer's weights in closed form, of the picture by a pass back through the model."""

from __future__ import annotations

import numpy as np

from sorites.core import Outputs, add_scorer
from sorites.scorers._rows import Score, Wide, above, features_of, logits_of, logsumexp, scored


@add_scorer
def gradnorm(outputs: Outputs, temperature: float = 1.0) -> Score:
    """Minus the L1 norm of the last weights' gradient of the cross-entropy to uniform (Huang, Geng and Li 2021).

    The gradient is an outer product, so that its norm is that of the features times that of softmax - uniform, over T.
    """
    above(temperature, 0, "gradnorm", "temperature")

    def rule(rows: Wide, logits: Wide) -> Wide:
        likely = np.exp(logits / temperature - logsumexp(logits / temperature)[:, None])
        uneven = np.abs(likely - 1 / logits.shape[1]).sum(axis=1)
        return np.asarray(-np.abs(rows).sum(axis=1) * uneven / temperature)

    return scored(rule, features_of(outputs, "gradnorm"), logits_of(outputs, "gradnorm"))
