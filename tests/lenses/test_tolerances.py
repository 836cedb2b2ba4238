from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sorites.core.errors import Damaged, SoritesError
from sorites.lenses import tolerances

KINDS = {"decentre": "um", "tilt": "arcmin", "spacing": "um"}
COMPARED = {"decentre": "45b50934d9899110", "tilt": "2ea3bab772d1cffb", "spacing": "7b82fa06d9430340"}
"""Digests of the files of which every stop was compared with a trace."""

every_kind = pytest.mark.parametrize("kind", KINDS)


def own(kind: str = "decentre") -> Path:
    return tolerances.find(tolerances.builtin(), kind)


@every_kind
def test_the_built_in_tolerances_are_whole(kind: str) -> None:
    held = tolerances.load(own(kind))
    stops, places, colours, height, width = held.kernels.shape
    assert (stops, places, colours) == (len(held.steps), 6, 3)
    assert height == width
    assert height % 2 == 1
    assert held.kernels.min() >= 0
    np.testing.assert_allclose(held.kernels.sum((-2, -1)), 1, atol=1e-5)
    assert held.steps[0] == 0
    assert (held.about.kind, held.about.unit) == (kind, KINDS[kind])
    assert held.about.kept > 0.9
    np.testing.assert_allclose(held.mtf50, held.about.mtf50, atol=1e-5)


@every_kind
def test_the_middle_of_a_kernel_is_its_centre_of_mass(kind: str) -> None:
    kernels = tolerances.load(own(kind)).kernels
    places = np.arange(kernels.shape[-1]) - kernels.shape[-1] // 2
    assert np.abs(kernels.sum(-2) @ places).max() < 0.02
    assert np.abs(kernels.sum(-1) @ places).max() < 0.02


@every_kind
def test_the_built_in_tolerances_are_the_ones_that_were_compared(kind: str) -> None:
    """Before this digest is changed, trace every stop: ``tolerances.trace(lens, kind, held.steps[1:], field)``."""
    assert hashlib.sha256(own(kind).read_bytes()).hexdigest()[:16] == COMPARED[kind]


def test_the_built_in_tolerances_are_small() -> None:
    assert sum(path.stat().st_size for path in tolerances.builtin().glob("*.safetensors")) < 1.8e6


@every_kind
def test_as_designed_the_lens_is_symmetric(kind: str) -> None:
    """At stop 0 opposite azimuths are one kernel turned about; a wider space leaves it so, a moved
    element does not.
    """
    held = tolerances.load(own(kind))
    up, down = (1 + held.about.azimuths.index(azimuth) for azimuth in (90, 270))
    differ = np.abs(held.kernels[:, up] - held.kernels[:, down][..., ::-1, ::-1]).sum((-2, -1)).max(1)
    assert differ[0] < 0.03
    assert (differ[-1] < 0.03) == (kind == "spacing")


def test_between_stops_kernels_are_mixed() -> None:
    held = tolerances.load(own())
    low, high = held.steps[2:4]
    for share in (0.0, 0.25, 1.0):
        wanted = (1 - share) * held.kernels[2, 5] + share * held.kernels[3, 5]
        np.testing.assert_allclose(held.taps(low + share * (high - low), 90), wanted, atol=1e-7)
    np.testing.assert_allclose(held.taps(0.0, None), held.kernels[0, 0])
    np.testing.assert_allclose(held.taps(held.steps[-1], 315), held.kernels[-1, 2])
    assert held.sharpness((low + high) / 2, 90) == pytest.approx(held.mtf50[2:4, 5].mean())


def test_the_other_half_of_the_field_is_a_mirror_image() -> None:
    held = tolerances.load(own())
    assert tolerances.all_azimuths(held.about) == tuple(range(0, 360, 45))
    for azimuth, twin in ((135, 45), (180, 0), (225, 315)):
        np.testing.assert_array_equal(held.taps(20.0, azimuth), held.taps(20.0, twin)[..., ::-1])
        assert held.sharpness(20.0, azimuth) == held.sharpness(20.0, twin)


def test_beyond_the_last_stop_is_refused_by_name() -> None:
    held = tolerances.load(own())
    with pytest.raises(
        SoritesError,
        match=f"{held.steps[-1]:g} um, got 1000.0",
    ):
        held.taps(1000.0, None)


def test_a_tolerance_survives_the_disk(tmp_path: Path) -> None:
    held = tolerances.load(own("tilt"))
    path = tolerances.save(held, tmp_path)
    assert path.name == f"{held.about.lens}.tilt.safetensors"
    again = tolerances.load(path)
    assert again.about == held.about
    np.testing.assert_allclose(again.kernels, held.kernels, atol=1e-3 * held.kernels.max())
    assert tolerances.version(path) != tolerances.version(own("tilt"))


def test_the_file_of_a_kind_is_found_or_named_missing(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no tilt in"):
        tolerances.find(tmp_path, "tilt")
    shutil.copy(own("tilt"), tmp_path / "a.tilt.safetensors")
    assert tolerances.find(tmp_path, "tilt") == tmp_path / "a.tilt.safetensors"
    with pytest.raises(SoritesError, match="expected decentre"):
        tolerances.find(tmp_path / "a.tilt.safetensors", "decentre")
    shutil.copy(own("tilt"), tmp_path / "b.tilt.safetensors")
    with pytest.raises(
        SoritesError,
        match=r"several lenses.*a\.tilt.*b\.tilt",
    ):
        tolerances.find(tmp_path, "tilt")


def test_what_is_no_tolerance_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tilt.safetensors").write_bytes(b"nothing")
    with pytest.raises(Damaged, match="x.tilt.safetensors cannot be read"):
        tolerances.about(tmp_path / "x.tilt.safetensors")
    held = tolerances.load(own())
    short = held.about.model_construct(**held.about.model_dump(exclude={"field"}))
    with pytest.raises(SoritesError, match="it has no field"):
        tolerances.about(tolerances.save(replace(held, about=short), tmp_path))
    with pytest.raises(SoritesError, match="expected kernels of"):
        tolerances.load(tolerances.save(replace(held, kernels=held.kernels[:, :3]), tmp_path / "few"))


def test_what_cannot_be_traced_is_named_without_the_tracer() -> None:
    with pytest.raises(SoritesError, match="got 'shear'"):
        tolerances.trace("CookeTriplet", "shear", [1.0], 0.7)
    for stops in ([], [0.0, 1.0], [5.0, 1.0], [1.0, float("inf")]):
        with pytest.raises(SoritesError, match="^stops:"):
            tolerances.trace("CookeTriplet", "tilt", stops, 0.7)
    with pytest.raises(SoritesError, match="^field:"):
        tolerances.trace("CookeTriplet", "tilt", [1.0], 0.0)


def test_the_sheet_has_a_row_a_stop() -> None:
    held = tolerances.load(own("tilt"))
    sheet = tolerances.table(held)
    assert sheet.columns == ["tilt_arcmin", "mtf50_axis", "mtf50_field", "mtf50_worst", "worst_at"]
    assert sheet["tilt_arcmin"].to_list() == list(held.steps)
    assert (sheet["mtf50_worst"] <= sheet["mtf50_field"]).all()


@pytest.fixture(scope="module")
def designed_once() -> Iterator[None]:
    """Trace the lens as designed, which takes longest, once for the three kinds of errors."""
    from sorites.optics.tracing import tolerance

    trace, known = tolerance.designed, dict[str, Any]()

    def designed(lens: Any) -> Any:
        if lens.name not in known:
            known[lens.name] = trace(lens)
        return known[lens.name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tolerance, "designed", designed)
        yield


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@every_kind
@pytest.mark.usefixtures("tracer", "designed_once")
def test_the_tolerances_that_come_with_us_are_what_tracing_gives(kind: str) -> None:
    """The lens as designed and at its last stop, which decides about the element and the size of all kernels.

    Stops are traced one by one in the same way, and those between were compared when the files were made, whose
    content is fixed by ``test_the_built_in_tolerances_are_the_ones_that_were_compared``.
    """
    held = tolerances.load(own(kind))
    fresh = tolerances.trace(held.about.lens, kind, held.steps[-1:], held.about.field)
    assert fresh.about.element == held.about.element
    assert fresh.kernels.shape[1:] == held.kernels.shape[1:]
    assert np.abs(fresh.kernels - held.kernels[[0, -1]]).sum((-2, -1)).max() < 0.02
    np.testing.assert_allclose(fresh.mtf50, held.mtf50[[0, -1]], atol=1e-3)
