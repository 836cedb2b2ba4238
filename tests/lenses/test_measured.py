"""Lenses from measured PSFs and edges, and kernels for other programs."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.optics.test_edge import gaussian, photographed

from sorites import core
from sorites.core.errors import InvalidOption, Notice, SoritesError
from sorites.core.rng import rng_for
from sorites.lenses import store
from sorites.lenses.measured import import_all, import_measured
from sorites.optics.develop import to_display
from sorites.optics.tracing.blur import CYCLES_MM, FIELDS, POSITIONS


def long_blur(azimuth: float, side: int = 21) -> np.ndarray:
    y, x = np.mgrid[: side + 0, : side + 0] - side // 2
    turn = np.radians(azimuth)
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    light = np.exp(-(along**2) / 18 - across**2 / 4)
    return np.stack([light / light.sum()] * 3)


@pytest.fixture
def stack(tmp_path: Path) -> np.ndarray:
    return np.stack([long_blur(0)] * len(FIELDS))


def save(array: np.ndarray, path: Path) -> Path:
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".mat":
        from scipy.io import savemat

        savemat(path, {"psf": array})
    else:
        torch = pytest.importorskip("torch")
        torch.save(torch.from_numpy(array), path)
    return path


@pytest.mark.parametrize("ending", [".npy", ".mat", ".pt"])
def test_psfs_at_five_fields_become_a_lens_that_blurs(ending: str, stack: np.ndarray, tmp_path: Path) -> None:
    out = tmp_path / "lenses"
    import_measured(save(stack, tmp_path / f"mine{ending}"), "psf", 3.5, out)
    lens = store.load(out, "mine")
    assert lens.about.pitch_um == 3.5
    for kernel, (field, azimuth) in zip(lens.arrays["kernels"], POSITIONS, strict=True):
        wanted = long_blur(azimuth if field else 0)
        assert np.abs(kernel - wanted).sum((1, 2)).max() < 0.02, (field, azimuth)
    image = np.random.default_rng(0).random((40, 40, 3), dtype=np.float32)
    made = core.shift("lens", lenses=str(out))(image, {"lens": "mine", "field": 0.7}, rng_for(0, "a", "lens"))
    assert 0 < made.std() < image.std()
    with pytest.warns(Notice, match="mine"):
        core.shift("lens_whole", lenses=str(out))
    assert store.rank_lenses(out)["name"].to_list() == ["mine"]


@pytest.mark.parametrize("shape", [(), (3,), (13, 3)])
def test_other_shapes_are_the_same_over_the_field_or_complete(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.broadcast_to(gaussian(1.5, 15), (*shape, 15, 15))
    lens = import_measured(save(np.array(array), tmp_path / "x.npy"), "psf", 2.0, tmp_path / "l")
    assert np.abs(lens.arrays["kernels"] - gaussian(1.5, 15)).sum((-2, -1)).max() < 1e-3


def test_the_mtf_is_in_cycles_per_mm(tmp_path: Path) -> None:
    """A Gaussian of 1.5 pixels of 4 um has a standard deviation of 6 um."""
    lens = import_measured(save(gaussian(1.5, 25), tmp_path / "x.npy"), "psf", 4.0, tmp_path / "l")
    known = CYCLES_MM <= 125
    wanted = np.exp(-2 * (np.pi * 0.006 * CYCLES_MM) ** 2)
    assert np.abs(lens.arrays["mtf"][0, 0] - wanted)[known].max() < 0.01


def test_a_psf_off_its_middle_is_centred(tmp_path: Path) -> None:
    moved = np.roll(gaussian(1.5, 25), 3, axis=1)
    lens = import_measured(save(moved, tmp_path / "x.npy"), "psf", 2.0, tmp_path / "l")
    assert np.abs(lens.arrays["kernels"][0, 0] - gaussian(1.5, 25)).sum() < 0.01


def test_an_edge_becomes_a_round_blur(tmp_path: Path) -> None:
    light = photographed(1.5).astype(np.float32)
    display = to_display(np.repeat(light[..., None], 3, 2))
    Pillow.fromarray(core.to_uint8(display)).save(tmp_path / "edge.png")
    table = import_all([tmp_path / "edge.png"], "edge", 4.0, tmp_path / "l")
    assert table["lens"].to_list() == ["edge"]
    kernel = store.load(tmp_path / "l", "edge").arrays["kernels"][0, 1]
    assert np.abs(kernel - gaussian(1.53)).sum() < 0.15
    assert store.load(tmp_path / "l", "edge").about.measured == "edge"


@pytest.mark.parametrize(
    "array",
    [
        np.full((9, 9), np.nan),
        np.zeros((9, 9)),
        np.where(np.eye(9) > 0, 1.0, -0.5),
        np.ones((2, 9, 9)),
        np.ones((9, 9), complex),
    ],
    ids=["nan", "dark", "negative", "shape", "complex"],
)
def test_what_is_no_psf_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(SoritesError):
        import_measured(save(array, tmp_path / "x.npy"), "psf", 2.0, tmp_path / "l")
    assert not (tmp_path / "l" / "x.safetensors").exists()


@pytest.mark.parametrize(
    ("shape", "typed"),
    [
        ((9, 9, 3), r"permute\(psf, \[3 1 2\]\)"),
        ((9, 9, 3, 5), r"permute\(psf, \[4 3 1 2\]\)"),
        ((5, 9, 9), "np.repeat"),
        ((9,), "got"),
    ],
)
def test_another_order_of_axes_is_refused_with_what_to_type(
    shape: tuple[int, ...], typed: str, tmp_path: Path
) -> None:
    with pytest.raises(SoritesError, match=r"x\.npy: expected.*" + typed):
        import_measured(save(np.ones(shape), tmp_path / "x.npy"), "psf", 2.0, tmp_path / "l")


def test_the_array_named_psf_counts_in_a_file_with_several(tmp_path: Path) -> None:
    from scipy.io import savemat

    savemat(tmp_path / "x.mat", {"psf": gaussian(1.5, 15), "mask": np.ones((15, 15))})
    lens = import_measured(tmp_path / "x.mat", "psf", 2.0, tmp_path / "l")
    assert np.abs(lens.arrays["kernels"] - gaussian(1.5, 15)).sum((-2, -1)).max() < 1e-3
    savemat(tmp_path / "y.mat", {"a": gaussian(1.5, 15), "b": np.ones((15, 15))})
    with pytest.raises(SoritesError, match=r"a, b"):
        import_measured(tmp_path / "y.mat", "psf", 2.0, tmp_path / "l")


def test_a_background_is_told(tmp_path: Path) -> None:
    with pytest.warns(Notice, match="background") as told:
        import_measured(save(gaussian(1.5, 15) + 0.01, tmp_path / "x.npy"), "psf", 2.0, tmp_path / "l")
    assert {one.message.code for one in told if isinstance(one.message, Notice)} == {"background"}


def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = save(gaussian(1.5, 15), tmp_path / "good.npy"), tmp_path / "bad.mat"
    bad.write_bytes(b"nothing")
    table = import_all([bad, good], "psf", 2.0, tmp_path / "l")
    assert table.select("lens", "accepted").rows() == [("bad", False), ("good", True)]
    assert "bad.mat" in table["reason"][0]
    with pytest.raises(SoritesError, match=r"bad\.mat"):
        import_all([bad], "psf", 2.0, tmp_path / "l")
    with pytest.raises(SoritesError, match="two files"):
        import_all([good, save(gaussian(1.5, 15), tmp_path / "good.mat")], "psf", 2.0, tmp_path / "l")


def test_a_measurement_is_no_prescription(tmp_path: Path) -> None:
    from sorites.lenses.trace import read_lens

    with pytest.raises(SoritesError, match="psf"):
        read_lens(str(save(gaussian(1.5, 15), tmp_path / "x.npy")))


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (marker,))

    torch.save(Evil(), tmp_path / "x.pt")
    (tmp_path / "y.npy").write_bytes(pickle.dumps(Evil()))
    for name in ("x.pt", "y.npy"):
        with pytest.raises(SoritesError, match=r"(?s)^(?!.*weights_only).*Save"):
            import_measured(tmp_path / name, "psf", 2.0, tmp_path / "l")
    assert not marker.exists()


def test_the_sampling_must_be_stated(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        import_measured(save(gaussian(1.0), tmp_path / "x.npy"), "psf", None, tmp_path / "l")
    with pytest.raises(InvalidOption):
        import_measured(tmp_path / "x.npy", "psf", 0.0035, tmp_path / "l")
    with pytest.raises(InvalidOption):
        import_all([tmp_path / "x.npy"], "photo", 2.0, tmp_path / "l")
