"""Categories of several classes: the loss of FOCUS's released code, from logits of the categories."""

from __future__ import annotations

import pytest

from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.training.data import category_logits, focus_groups

torch = pytest.importorskip("torch")


def test_cross_entropy_of_collated_logits_is_the_log_of_the_summed_probabilities() -> None:
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups, ground_truth = [[3, 4, 5], [0, 19], [7]], torch.tensor([0, 1, 2, 2, 1, 0])
    probabilities = logits.softmax(1)
    summed = torch.stack([probabilities[:, group].sum(1) for group in groups], 1).log()
    wanted = torch.nn.NLLLoss()(summed, ground_truth)
    found = category_logits(logits, groups)
    assert found.shape == (6, 4)
    torch.testing.assert_close(torch.nn.functional.cross_entropy(found, ground_truth), wanted)


def test_groups_that_take_all_classes_leave_no_rest() -> None:
    assert category_logits(torch.zeros(2, 4), [[0, 1], [2, 3]]).shape == (2, 2)


def test_categories_of_focus_are_those_of_its_table() -> None:
    plane, cat, dog = focus_groups(labels(["plane", "cat", "dog"]))
    assert plane == [404, 895]
    assert cat == [281, 282, 283, 284, 285]
    assert dog == [*range(151, 269), 273, 274, 275]
    with pytest.raises(SoritesError, match="'lorry'"):
        focus_groups(labels(["lorry"]))
