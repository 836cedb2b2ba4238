"""The diffusion classifier as a model: by words, by the numbers of a DiT, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.core.errors import SoritesError, UnknownName
from sorites.diffusion import classify
from tools import toy_world as world

IMAGE = np.random.default_rng(1).integers(0, 256, (20, 16, 3), np.uint8)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipe")
    world.pipeline(width=16).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def dit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, DiTPipeline, DiTTransformer2DModel

    torch.manual_seed(0)
    net = DiTTransformer2DModel(
        sample_size=8, num_layers=1, patch_size=4, attention_head_dim=8, num_attention_heads=2, in_channels=4, out_channels=8,
        num_embeds_ada_norm=5, norm_type="ada_norm_zero", norm_elementwise_affine=False, activation_fn="gelu-approximate",
        attention_bias=True,
    )  # fmt: skip
    torch.nn.init.normal_(net.proj_out_2.weight, std=0.1)
    vae = AutoencoderKL(block_out_channels=(8, 8), norm_num_groups=4, latent_channels=4, **_blocks())
    folder = tmp_path_factory.mktemp("dit")
    DiTPipeline(
        net, vae, DDIMScheduler(), id2label={str(i): f"object {i}" for i in range(5)}
    ).save_pretrained(folder)
    return folder


def _blocks() -> dict[str, tuple[str, str]]:
    return {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}


@pytest.mark.slow
def test_a_pipeline_classifies_with_the_classes_of_the_suite(tiny: Path) -> None:
    made = core.model(f"diffusion:{tiny}?draws=4&loss=l2&first=2").for_classes
    assert made is not None
    model = made(["disc", "cross"])
    logits = model([IMAGE, IMAGE[::-1].copy()]).logits
    assert logits is not None
    assert logits.shape == (2, 2)
    assert (logits < 0).all()
    np.testing.assert_array_equal(logits[:1], model([IMAGE]).logits)


@pytest.mark.slow
def test_answers_are_kept_between_images(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = core.model(f"diffusion:{tiny}?draws=2&first=2").for_classes
    assert made is not None
    before = made(["disc", "cross"])([IMAGE]).logits

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("sorites.models.diffusion.classify", never)
    np.testing.assert_array_equal(before, made(["disc", "cross"])([IMAGE]).logits)
    with pytest.raises(AssertionError):
        made(["disc", "square"])([IMAGE])


@pytest.mark.slow
def test_a_dit_classifies_by_its_own_numbers(dit: Path) -> None:
    model = core.model(f"diffusion:{dit}?draws=4&first=2&sure=0")
    logits = model([IMAGE]).logits
    assert logits is not None
    assert logits.shape == (1, 5)
    assert len(set(logits[0])) == 5


def test_the_noise_is_the_same_for_all_classes(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, int]] = []
    real = classify.predict_noise

    def spy(pipe: object, noisy: object, times: object, conditions: object) -> object:
        seen.extend((one.numpy().tobytes(), int(t)) for one, t in zip(noisy, times, strict=True))  # type: ignore[call-overload]
        return real(pipe, noisy, times, conditions)  # type: ignore[arg-type]

    monkeypatch.setattr(classify, "predict_noise", spy)
    made = core.model(f"diffusion:{tiny}?draws=2&sure=0&first=2").for_classes
    assert made is not None
    made(["disc", "square", "cross"])([IMAGE])
    assert len(seen) == 6
    assert len(set(seen)) == 2


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "diffusers"), ("{}?draws=x", "draws as a whole number"), ("{}?loss=l3", "l1 or l2"),
        ("{}?prompt=a photo", r"\{class\} once"), ("/nowhere", "does not exist"), ("{}?sure", "expected \\?sure=VALUE"),
        ("{}?words=/nowhere", "is not a folder"),
    ],
)  # fmt: skip
def test_bad_input_reports_what_was_expected(tiny: Path, argument: str, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        core.model(f"diffusion:{argument.format(tiny)}" if argument else "diffusion")


def test_an_unknown_option_names_those_that_are(tiny: Path) -> None:
    with pytest.raises(UnknownName, match="draws"):
        core.model(f"diffusion:{tiny}?drawz=3")


def test_a_dit_takes_no_words(dit: Path) -> None:
    with pytest.raises(SoritesError, match="prompt and words"):
        core.model(f"diffusion:{dit}?prompt=a {{class}}")


def test_a_dit_draws_no_sliders(dit: Path) -> None:
    from sorites.diffusion.pipeline import load

    with pytest.raises(SoritesError, match="pipeline among"):
        load(dit)
