"""A head that keeps the rows of known classes, so that training begins with what the model knows."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.models.trained import start

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite_pytorch")

SOME = ("n02123045", "n01443537", "n02129165")


def test_rows_of_known_classes_are_kept_in_the_order_of_the_classes() -> None:
    whole, kept = start("lite0", imagenet().ids), start("lite0", SOME, keep_head=True)
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    rows = [imagenet().ids.index(name) for name in SOME]
    with torch.inference_mode():
        wanted, found = (network.module.eval()(images)[0].numpy() for network in (whole, kept))
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found, wanted[:, rows], atol=1e-5)


def test_without_it_the_head_is_random_and_follows_from_the_seed() -> None:
    weights = [
        start("lite0", SOME, seed=seed).module.get_submodule("network._fc").weight for seed in (0, 0, 1)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_class_that_the_model_does_not_know_is_reported() -> None:
    with pytest.raises(
        SoritesError,
        match="1000 classes, and 1",
    ):
        start("lite0", (SOME[0], "unicorn"), keep_head=True)
