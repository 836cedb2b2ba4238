"""The three embedded models: they see a cat, they equal torch, and no batch shows in their numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sorites.core import ImageU8, Model
from sorites.core.errors import MissingExtra, SoritesError
from sorites.io.resizing import fit
from sorites.models import lite as room

CATS = {"n02123045", "n02123159", "n02124075"}
ESPRESSO = {"n07920052"}


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1, 2])
def test_names_the_cat_and_the_coffee(
    which: int, lite: Callable[[int], Model], photographs: dict[str, ImageU8]
) -> None:
    model = lite(which)
    outputs = model([photographs["chelsea"], photographs["coffee"]])
    assert model.labels is not None
    assert outputs.logits is not None
    said = [model.labels[i] for i in outputs.logits.argmax(axis=1)]
    assert said[0] in CATS
    assert said[1] in ESPRESSO


@pytest.mark.parametrize(
    "which", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_equals_the_packages_own_network(
    which: int, lite: Callable[[int], Model], photographs: dict[str, ImageU8]
) -> None:
    import torch

    size = room.SIZES[which]
    images = [fit(image, False, (size, size)) for image in photographs.values()]
    x = (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        expected = room.load(which)(x).numpy()
    logits = lite(which)(list(photographs.values())).logits
    assert logits is not None
    assert np.abs(logits - expected).max() <= 1e-4


def test_features_and_head_make_the_logits(lite: Callable[[int], Model], noise: list[ImageU8]) -> None:
    model = lite(0)
    outputs = model(noise)
    assert model.head is not None
    assert outputs.features is not None
    weight, bias = model.head
    assert weight.shape == (1000, 1280)
    np.testing.assert_allclose(outputs.features @ weight.T + bias, outputs.logits, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8])
def test_bit_equal_whatever_the_batch(batch: int, lite: Callable[[int], Model], noise: list[ImageU8]) -> None:
    whole = lite(0)(noise)
    parts = [lite(0)(noise[i : i + batch]) for i in range(0, len(noise), batch)]
    for name in ("logits", "features"):
        assert np.array_equal(getattr(whole, name), np.concatenate([getattr(part, name) for part in parts]))


@pytest.mark.slow
def test_many_threads_may_ask_at_once(lite: Callable[[int], Model], noise: list[ImageU8]) -> None:
    model, whole = lite(0), lite(0)(noise).logits
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: model(noise).logits, range(8)))
    assert all(np.array_equal(answer, whole) for answer in answers)


@pytest.mark.slow
def test_loading_prints_nothing_and_keeps_the_version(
    lite: Callable[[int], Model], capfd: pytest.CaptureFixture[str]
) -> None:
    assert room.lite0().version == lite(0).version != lite(1).version
    assert capfd.readouterr().out == ""


def test_no_images_no_rows(lite: Callable[[int], Model]) -> None:
    assert len(lite(0)([])) == 0


def test_the_install_command_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtra, match=r"sorites\[lite\]"):
        room.lite1()


def test_an_argument_is_refused() -> None:
    with pytest.raises(SoritesError, match="takes no argument, got 'x'"):
        room.lite0("x")
