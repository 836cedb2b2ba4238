"""timm's networks from a weights file, against timm's own transform and forward pass."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pil
from safetensors.torch import save_file

from sorites import core
from sorites.core import ImageU8
from sorites.core.compute.torch_tools import import_torchvision
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.models.timm import timm as make


def network(name: str, **options: Any) -> Any:
    import_torchvision()
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, **options).eval()


def saved(net: Any, path: Path) -> str:
    save_file(net.state_dict(), path)
    return str(path)


def as_timm_does(net: Any, images: list[ImageU8]) -> np.ndarray:
    from timm.data import create_transform, resolve_model_data_config

    transform = create_transform(**resolve_model_data_config(net), is_training=False)
    with torch.inference_mode():
        return net(torch.stack([transform(Pil.fromarray(p)) for p in images])).numpy()


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext"])
def test_equals_timm_from_image_to_logits(name: str, tmp_path: Path, photographs: dict[str, ImageU8]) -> None:
    net = network(name)
    images = list(photographs.values())
    model = core.model(f"timm:{name}@{saved(net, tmp_path / 'w.safetensors')}")
    outputs = model(images)
    assert outputs.logits is not None
    assert outputs.features is not None
    assert model.head is not None
    assert model.labels == imagenet().ids
    np.testing.assert_allclose(outputs.logits, as_timm_does(net, images), atol=1e-3)
    np.testing.assert_allclose(outputs.features @ model.head[0].T + model.head[1], outputs.logits, atol=1e-5)


@pytest.mark.slow
def test_a_network_of_two_heads_gives_logits_only(tmp_path: Path, photographs: dict[str, ImageU8]) -> None:
    net = network("levit_128s")
    model = make(f"levit_128s@{saved(net, tmp_path / 'w.safetensors')}")
    outputs = model([photographs["coffee"]])
    assert outputs.features is None
    assert model.head is None
    np.testing.assert_allclose(outputs.logits, as_timm_does(net, [photographs["coffee"]]), atol=1e-3)


def test_the_files_own_number_of_classes_is_used(tmp_path: Path, noise: list[ImageU8]) -> None:
    model = make(f"test_resnet@{saved(network('test_resnet', num_classes=7), tmp_path / 'w.safetensors')}")
    logits = model(noise[:2]).logits
    assert logits is not None
    assert logits.shape == (2, 7)
    assert model.labels is None


def test_a_torch_zip_of_tensors_gives_the_same_model(tmp_path: Path) -> None:
    net = network("test_resnet")
    torch.save({"state_dict": net.state_dict()}, tmp_path / "w.pth")
    zipped = make(f"test_resnet@{tmp_path / 'w.pth'}")
    assert zipped.version == make(f"test_resnet@{saved(net, tmp_path / 'w.safetensors')}").version


class Trap:
    """What a hostile pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


def test_a_pickle_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Trap()}, "zip.pth")
    Path("plain.pth").write_bytes(pickle.dumps(Trap()))
    for name in ("zip.pth", "plain.pth"):
        with pytest.raises(SoritesError, match=name):
            make(f"test_resnet@{name}")
    assert not Path("sprung").exists()


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("content", [b"", b"text, not weights"])
def test_a_file_that_is_no_weights_file(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SoritesError, match=rf"{name}.*(not a weights file|more than tensors)"):
        make(f"test_resnet@{tmp_path / name}")


def test_another_networks_weights_are_refused(tmp_path: Path) -> None:
    path = saved(network("test_vit"), tmp_path / "w.safetensors")
    with pytest.raises(SoritesError, match="weights of timm:test_resnet"):
        make(f"test_resnet@{path}")
    with pytest.raises(SoritesError, match=r"timm:test_vit\.no_such_tag"):
        make(f"test_vit.no_such_tag@{path}")


def test_a_missing_file_an_unknown_name_and_no_name() -> None:
    with pytest.raises(SoritesError, match=r"no weights file nowhere\.pth"):
        make("test_resnet@nowhere.pth")
    with pytest.raises(UnknownName, match="Did you mean .*resnet18"):
        make("resnet18x")
    with pytest.raises(SoritesError, match="timm:resnet50"):
        make(None)


def test_a_bare_name_of_timm_is_answered_with_its_spec() -> None:
    with pytest.raises(UnknownName, match="timm:resnet50"):
        core.model("resnet50")
    with pytest.raises(UnknownName) as raised:
        core.model("resnet50000")
    assert "timm:" not in str(raised.value)


def test_no_published_weights_says_to_give_a_file() -> None:
    """A name that timm knows and never published weights for, so that nothing is asked of a network."""
    with pytest.raises(SoritesError, match="timm:lcnet_035"):
        make("lcnet_035")


def test_random_weights_are_the_same_each_time_and_ask_nothing_of_a_hub(
    photographs: dict[str, ImageU8],
) -> None:
    images = list(photographs.values())[:2]
    before = torch.get_rng_state()
    one, same = (make("test_resnet@random") for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert one.version == same.version
    np.testing.assert_array_equal(one(images, False).logits, same(images, False).logits)


def test_the_install_command_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match=r"sorites\[timm\]"):
        make("resnet18")
