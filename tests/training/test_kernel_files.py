"""Kernels for other programs: read back as published, and a module that blurs like the shifts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.core.errors import InvalidOption
from sorites.core.rng import rng_for
from sorites.lenses import store
from sorites.shifts.aberration import default, load
from sorites.training.kernel_files import export_kernels


@pytest.mark.parametrize("ending", [".npy", ".pt"])
def test_an_exported_stack_is_read_as_the_published_one(ending: str, tmp_path: Path) -> None:
    path = export_kernels(default().array, tmp_path / f"stack{ending}")
    assert np.array_equal(load(path).array, default().array)
    if ending == ".pt":
        torch = pytest.importorskip("torch")
        assert tuple(torch.load(path, weights_only=True).shape) == (8, 5, 3, 25, 25)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_an_exported_module_blurs_like_the_shifts(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    image = np.random.default_rng(1).random((40, 50, 3), dtype=np.float32)
    planes = torch.from_numpy(image.transpose(2, 0, 1).copy())[None].repeat(2, 1, 1, 1)
    module = torch.jit.load(export_kernels(default().array, tmp_path / "m.pt", "module"))
    for mode, drawn in ((7, 3), (8, 4)):
        made = module(planes, torch.tensor([drawn * 5 + 2] * 2))[1].permute(1, 2, 0).numpy().clip(0, 1)
        shift = core.shift("coma")
        seeds = (rng_for(seed, "a", "coma") for seed in range(40))
        chosen = (next(shift.sweep_with_chosen_params(image, [3.0], rng)) for rng in seeds)
        wanted = next(blurred for blurred, params in chosen if params["zernike"] == mode)
        assert np.abs(made - wanted).max() < 1e-5
    lens = store.load(store.builtin(), "CookeTriplet")
    taps = lens.arrays["kernels"][..., ::-1, ::-1]
    module = torch.jit.load(export_kernels(taps, tmp_path / "l.pt", "module", "reflect"))
    made = module(planes, torch.tensor([0, 0]))[0].permute(1, 2, 0).numpy().clip(0, 1)
    params = {"lens": "CookeTriplet", "field": 0.0}
    assert np.abs(made - core.shift("lens")(image, params, rng_for(0, "a", "lens"))).max() < 1e-5


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_an_exported_module_refuses_what_it_would_blur_wrongly(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.jit.load(export_kernels(default().array, tmp_path / "m.pt", "module"))
    image, first = torch.rand(1, 3, 30, 30), torch.tensor([0])
    for images, which in (
        ((image * 255).to(torch.uint8), first),
        (image[0], first),
        (image[:, :1], first),
        (image, torch.tensor([0, 1])),
        (image, torch.tensor(0)),
    ):
        with pytest.raises(torch.jit.Error, match="expected"):
            module(images, which)


def test_other_files_and_forms_are_refused(tmp_path: Path) -> None:
    for name, form, padding in (
        ("x.txt", "tensor", "zeros"),
        ("x.pt", "onnx", "zeros"),
        ("x.pt", "module", "edge"),
    ):
        with pytest.raises(InvalidOption):
            export_kernels(default().array, tmp_path / name, form, padding)
