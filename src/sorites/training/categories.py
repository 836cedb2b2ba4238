"""Categories of several classes, learnt with a head that knows the classes: the loss with which FOCUS was fine-tuned.

A category's probability is the sum of those of its classes, as in the released code. Logits of the categories, with one more for
all other classes, give that by an ordinary cross-entropy: the log of a sum of exponentials stands in for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sorites.errors import UnknownName
from sorites.labels import Labels, imagenet
from sorites.sources.focus import accepted

if TYPE_CHECKING:
    import torch

Groups = Sequence[Sequence[int]]
"""The classes of each category, as places among the logits."""


def focus_groups(categories: Labels) -> Groups:
    """Return the ImageNet classes that each of FOCUS's categories stands for."""
    known = accepted(imagenet())
    for name in categories.ids:
        if name not in known:
            raise UnknownName("category of FOCUS", name, known, f"There are {', '.join(known)}.")
    return [sorted(known[name]) for name in categories.ids]


def collated(logits: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Return logits of the categories, N x (C + 1); the last is that of all classes which are in none."""
    import torch

    taken = {place for group in groups for place in group}
    rest = [place for place in range(logits.shape[1]) if place not in taken]
    parts = [*groups, rest] if rest else list(groups)
    return torch.stack([logits[:, list(part)].logsumexp(1) for part in parts], 1)
