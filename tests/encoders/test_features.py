"""Encoders by name: python, open_clip, and error messages for invalid ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from sorites.core import Encoder, ImageU8, encoder
from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.encoders.features import features

OWN = """
import numpy as np
class Own:
    version = "7"
    def images(self, images): return np.array([[p.mean(), p.std() + 1, 1.0] for p in images])
    def texts(self, sentences): return np.array([[len(s), 1.0, 1.0] for s in sentences])
own = Own()
class Broken(Own):
    def texts(self, sentences): return np.full((len(sentences), 3), np.nan)
    def images(self, images): return np.ones(3)
broken = Broken()
nothing = 3
"""


def image(value: int, side: int = 8) -> ImageU8:
    return np.full((side, side + 2, 3), value, np.uint8)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return name


@pytest.mark.parametrize("attribute", ["own", "Own"])
def test_your_own_object_or_class(module: str, attribute: str) -> None:
    judge = encoder(f"python:{module}:{attribute}")
    assert (judge.name, judge.version) == (f"python:{module}:{attribute}", "7")
    assert judge.images([image(9)], False).dtype == np.float32
    np.testing.assert_allclose(judge.images([image(9), image(3)], True)[:, 0], [9, 3])
    np.testing.assert_allclose(judge.texts(["abc"]), [[3, 1, 1]])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("python:", "expected python:module:name"),
        ("python:no_such_module:x", "no Python module named"),
        ("open_clip:ViT-B-32", "NAME@WEIGHTS"),
        (
            "open_clip:nowhere.json@x",
            "cannot read nowhere.json: No such file or directory. Expected an open_clip config",
        ),
        ("cifar:12", "from 1000 to 40000"),
        ("cifar:many", "40000, got 'many'"),
        ("clip", "'clip'. Did you mean open_clip"),
    ],
)
def test_says_what_may_be_asked(spec: str, says: str) -> None:
    with pytest.raises(SoritesError, match=says):
        encoder(spec)


def test_invalid_python_encoders_raise(module: str) -> None:
    with pytest.raises(SoritesError, match="got a int"):
        encoder(f"python:{module}:nothing")
    broken = encoder(f"python:{module}:broken")
    with pytest.raises(SoritesError, match="not finite"):
        broken.texts(["a"])
    with pytest.raises(SoritesError, match=r"2 x D, got shape \(3,\)"):
        broken.images([image(1), image(2)], False)


def test_features_keep_the_order_of_mixed_images() -> None:
    asked: list[tuple[int, bool]] = []

    def images(images_u8: list[ImageU8], framed: bool) -> np.ndarray:
        asked.append((len(images_u8), framed))
        return np.array([[p[0, 0, 0], framed] for p in images_u8], np.float32)

    judge = Encoder("own", images, lambda texts: np.ones((len(texts), 2), np.float32))
    mixed = [(image(i), i > 40) for i in range(90)]
    np.testing.assert_array_equal(features(judge, iter(mixed)), [[i, i > 40] for i in range(90)])
    assert asked == [(32, False), (9, False), (32, True), (17, True)]
    with pytest.raises(SoritesError, match="no images for encoder own"):
        features(judge, iter(()))


def test_open_clip_by_config_and_file(tmp_path: Path) -> None:
    library = import_with_torchvision("open_clip", "encoder open_clip", "clip")
    import torch
    from safetensors.torch import save_file

    config = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    }
    (tmp_path / "tiny-clip.json").write_text(json.dumps(config), encoding="utf-8")
    library.add_model_config(tmp_path / "tiny-clip.json")
    torch.manual_seed(0)
    model = library.create_model("tiny-clip").eval()
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "weights.safetensors")
    judge = encoder(f"open_clip:{tmp_path / 'tiny-clip.json'}@{tmp_path / 'weights.safetensors'}")
    with torch.inference_mode():
        tokens = library.get_tokenizer("tiny-clip")(["a photo of a frog", "a ship"])
        np.testing.assert_allclose(
            judge.texts(["a photo of a frog", "a ship"]), model.encode_text(tokens).numpy(), atol=1e-6
        )
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (model.visual.image_mean, model.visual.image_std))
        flat = (torch.full((3, 32, 32), 128 / 255) - mean) / std
        expected = model.encode_image(flat[None]).numpy()
    np.testing.assert_allclose(judge.images([image(128, 40)], True), expected, atol=1e-5)
    assert len(judge.version) == 32
    with pytest.raises(SoritesError, match="did not load"):
        encoder(f"open_clip:{tmp_path / 'tiny-clip.json'}@{tmp_path / 'none.pt'}")


def test_the_library_s_own_log_stays_out(caplog: pytest.LogCaptureFixture) -> None:
    import logging

    with pytest.raises(SoritesError, match="ViT-B-32@nofile did not load"):
        encoder("open_clip:ViT-B-32@nofile")
    assert caplog.records == []
    logging.error("another")
    assert [record.message for record in caplog.records] == ["another"]
