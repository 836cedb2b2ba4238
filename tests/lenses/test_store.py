from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from sorites.core.errors import Damaged, SoritesError
from sorites.io.sealed_tensors import NO_DIGEST, seal_tensors
from sorites.lenses import store as lenses


def test_the_built_in_lenses_are_whole() -> None:
    folder = lenses.builtin()
    assert len(lenses.names(folder)) == 15
    for name in lenses.names(folder):
        entry = lenses.load(folder, name)
        kernels = entry.arrays["kernels"]
        assert kernels.shape[:2] == (13, 3)
        assert kernels.min() >= 0
        np.testing.assert_allclose(kernels.sum((-2, -1)), 1, atol=1e-5)
        assert entry.arrays["zernike"].shape == (5, 3, 37)
        assert 1 <= entry.about.pitch_um <= 20
        assert entry.quality == pytest.approx(np.mean(entry.about.mtf50))
        assert min(entry.about.caught) >= 0.95


def test_the_middle_of_a_kernel_is_its_centre_of_mass() -> None:
    kernels = lenses.load(lenses.builtin(), "CookeTriplet").arrays["kernels"]
    places = np.arange(kernels.shape[-1]) - kernels.shape[-1] // 2
    assert np.abs(kernels.sum(-2) @ places).max() < 0.02
    assert np.abs(kernels.sum(-1) @ places).max() < 0.02


def test_azimuth_zero_is_ninety_turned() -> None:
    """A symmetric lens: the kernel of a field along x is that of a field along y with x and y exchanged."""
    kernels = lenses.load(lenses.builtin(), "DoubleGauss").arrays["kernels"]
    for first in range(1, 13, 3):
        assert np.abs(kernels[first].transpose(0, 2, 1) - kernels[first + 2]).sum((1, 2)).max() < 0.05


def test_an_entry_survives_the_disk(tmp_path: Path) -> None:
    entry = lenses.load(lenses.builtin(), "TessarLens")
    lenses.save(entry, tmp_path)
    again = lenses.load(tmp_path, "TessarLens")
    assert again.about == entry.about
    np.testing.assert_allclose(again.arrays["kernels"], entry.arrays["kernels"], rtol=1e-5)


def test_what_is_not_a_lens_is_named(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no lenses in"):
        lenses.names(tmp_path)
    with pytest.raises(SoritesError, match="Did you mean CookeTriplet"):
        lenses.load(lenses.builtin(), "CookTriplet")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(Damaged, match="bad.safetensors cannot be read"):
        lenses.load(tmp_path, "bad")


def test_the_version_follows_the_files(tmp_path: Path) -> None:
    shutil.copy(lenses.builtin() / "TessarLens.safetensors", tmp_path / "a.safetensors")
    before = lenses.version(tmp_path)
    shutil.copy(lenses.builtin() / "HeliarLens.safetensors", tmp_path / "a.safetensors")
    assert lenses.version(tmp_path) != before


def test_a_selection_is_even_in_quality_and_takes_each_lens_once() -> None:
    held = {f"l{i}": q for i, q in enumerate([0.1, 0.11, 0.12, 0.2, 0.3, 0.31])}
    assert lenses.select_spread(held, 3) == ["l0", "l3", "l5"]
    assert sorted(lenses.select_spread(held, 6)) == sorted(held)
    with pytest.raises(SoritesError, match="expected 1 to 6 lenses, got 7"):
        lenses.select_spread(held, 7)


def test_the_ranking_falls_in_quality_and_ends_with_the_refused(tmp_path: Path) -> None:
    for name in ("TessarLens", "CookeTriplet"):
        shutil.copy(lenses.builtin() / f"{name}.safetensors", tmp_path)
    (tmp_path / "refused.csv").write_text("lens,accepted,reason\n123,false,its field is zero\n")
    table = lenses.rank_lenses(tmp_path)
    assert table["name"].to_list() == ["TessarLens", "CookeTriplet", "123"]
    assert table["refused"].to_list() == [None, None, "its field is zero"]


def test_coefficient_space_names_the_larger_of_each_pair() -> None:
    waves = np.zeros((5, 3, 12), np.float32)
    waves[2, :, 4] = 3.0  # Fringe 5, astigmatism
    waves[2, :, 7] = -4.0  # Fringe 8, coma
    place, size = lenses.coefficient_space(waves)
    assert size == pytest.approx(5)
    assert place == pytest.approx([0, 0.6, 0.8])


def test_production_errors_of_a_lens_may_lie_beside_it(tmp_path: Path) -> None:
    shutil.copy(lenses.builtin() / "HeliarLens.safetensors", tmp_path)
    shutil.copy(lenses.builtin() / "HeliarLens.safetensors", tmp_path / "HeliarLens.tilt.safetensors")
    assert lenses.names(tmp_path) == ["HeliarLens"]


def test_another_file_is_no_lens(tmp_path: Path) -> None:
    kernels = {"kernels": np.ones((13, 3, 5, 5), np.float32)}
    (tmp_path / "x.safetensors").write_bytes(seal_tensors(save(kernels, {"about": "{}", **NO_DIGEST})))
    with pytest.raises(SoritesError, match="it has no pitch_um"):
        lenses.load(tmp_path, "x")
    (tmp_path / "x.safetensors").write_bytes(save(kernels, {"about": "{}"}))
    with pytest.raises(Damaged, match="it contains no digest"):
        lenses.load(tmp_path, "x")
