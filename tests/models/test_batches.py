"""Rows of a model that torch computes depend on the batch size, and not on the images beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

torch = pytest.importorskip("torch")

import sorites  # noqa: E402
from sorites import core  # noqa: E402
from sorites.core import Backend, ImageU8, Model  # noqa: E402
from sorites.core.compute.torch_tools import ComputeOptions, use_compute_options  # noqa: E402
from sorites.core.errors import SoritesError  # noqa: E402
from sorites.evaluation.storage.record import read_record  # noqa: E402
from sorites.models.session import CUDA_OPTIONS, ON_CPU, ON_GPU, backend, providers  # noqa: E402


def photographs(count: int, side: int) -> list[ImageU8]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (side, side, 3), np.uint8) for _ in range(count)]


def loaded(spec: str, precision: str) -> Model:
    with use_compute_options(ComputeOptions("cpu", precision)):
        return core.model(spec)


def differing(model: Model, images: Sequence[ImageU8], groups: Sequence[Sequence[int]]) -> int:
    """Count the rows that change if images are evaluated in other groups."""
    together = np.asarray(model(images, True).logits)
    apart = {i: row for group in groups for i, row in zip(group, _logits(model, images, group), strict=True)}
    return sum(not np.array_equal(together[i], row) for i, row in apart.items())


def _logits(model: Model, images: Sequence[ImageU8], group: Sequence[int]) -> Any:
    return model([images[i] for i in group], True).logits


GROUPS = ([0], [1, 2, 3], [7, 6, 5, 4], [15, 0, 9, 8, 11, 10, 12], [13, 14])


@pytest.mark.parametrize("spec", ["timm:test_vit@random", "timm:test_resnet@random"])
def test_8_bit_layers_see_one_image_at_a_time(spec: str) -> None:
    model, images = loaded(spec, "int8"), photographs(16, 160)
    assert model.backend == Backend("torch", "cpu", "int8")
    assert model.with_batch(4).batch is None
    assert differing(model, images, GROUPS) == 0


def test_padded_passes_give_the_same_rows() -> None:
    model, images = loaded("timm:test_resnet@random", "bfloat16").with_batch(8), photographs(16, 160)
    assert differing(model, images, GROUPS) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "efficientnet_b0"])
def test_networks_depend_on_the_number_of_images_but_not_if_padded(name: str) -> None:
    """With float32 on torch, as on a GPU; ONNX Runtime, which a CPU uses, needs no padding."""
    model, images = loaded(f"timm:{name}@random", "float32"), photographs(16, 224)
    assert model.backend == Backend("onnxruntime")
    assert differing(model, images, GROUPS) == 0
    on_torch = _on_torch(model)
    unpadded = differing(on_torch, images, GROUPS)
    assert differing(on_torch.with_batch(8), images, GROUPS) == 0
    print(f"{name}: {unpadded} of 16 rows differ without padding, 0 with it")


def _on_torch(model: Model) -> Model:
    from dataclasses import replace

    from sorites.models.torch_module import _on_torch as forward

    return replace(model, forward=forward(model.module, "cpu"), backend=Backend("torch", batch_matters=True))


# ONNX Runtime with CUDA cannot run here; what it is asked for and how its answer is read can be checked.


class Session:
    """What a session says about itself."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def get_providers(self) -> list[str]:
        return list(self.names)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: {"device_id": "1"} for name in self.names}


def test_onnx_runtime_is_asked_for_one_kernel_without_tf32() -> None:
    both = (ON_GPU, ON_CPU)
    assert providers("cuda:1", both) == [(ON_GPU, {**CUDA_OPTIONS, "device_id": "1"}), (ON_CPU, {})]
    assert providers(None, both)[0][1]["use_tf32"] == "0"
    assert providers("cpu", both) == providers(None, [ON_CPU]) == [(ON_CPU, {})]
    for device in ("cuda", "mps"):
        with pytest.raises(SoritesError, match=device):
            providers(device, [ON_CPU])


def test_the_record_says_where_a_session_really_runs() -> None:
    assert backend(Session(ON_GPU, ON_CPU)) == Backend("onnxruntime", "cuda:1", batch_matters=True)
    assert backend(Session(ON_GPU, ON_CPU), batch_matters=False).batch_matters is False
    assert backend(Session(ON_CPU)) == Backend("onnxruntime")


@pytest.mark.slow
def test_processes_use_the_batch_of_the_run(tmp_path: Path) -> None:
    """Worker processes make the plan again from the folder, whose id depends on the batch."""
    (tmp_path / "images" / "n01440764").mkdir(parents=True)
    for i, image in enumerate(photographs(5, 160)):
        Pillow.fromarray(image).save(tmp_path / "images" / "n01440764" / f"{i}.png")
    rows = []
    for engine, batch in (("local", 4), ("processes", 4), ("local", 3)):
        out = tmp_path / f"{engine}{batch}"
        run = sorites.run(
            "demo", source=f"folder:{tmp_path / 'images'}", models=["timm:test_vit@random"], shifts=["contrast"],
            precision="bfloat16", engine=engine, workers=2, batch=batch, out=out,
        )  # fmt: skip
        rows.append((read_record(out).run_id, run.collect().sort("image_id").select("conf", "top5")))
    assert rows[0][0] == rows[1][0] != rows[2][0]
    assert rows[0][1].equals(rows[1][1])
