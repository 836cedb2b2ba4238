"""Markers, homography and straightening, against the virtual camera's own geometry."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.conftest import scene

from sorites.apps.studio.cameras import CameraError
from sorites.apps.studio.markers import (
    apply_homography,
    board,
    drift,
    encode_jpeg,
    locate,
    placement,
    rectify,
)
from sorites.apps.studio.screen.server import Shown, render_screen
from sorites.apps.studio.virtual.scene import Room, View, as_jpeg
from sorites.apps.studio.virtual.studio import tv_size, view_of
from sorites.core import ImageU8, to_float
from sorites.optics.camera import Exposure
from sorites.shifts.camera import ES_STUDIO, put_on_screen

STAGE = (500, 375)
GOOD = Exposure(400, 1 / 60, 8.0)


def shown_at(size: tuple[int, int], stage: tuple[int, int] = STAGE) -> Shown:
    width, height = tv_size(stage)
    return Shown(1, (width, height), (width - size[0]) // 2, (height - size[1]) // 2, *size)


def frame_of(data: bytes, room: Room, size: tuple[int, int] = STAGE, exposure: Exposure = GOOD) -> ImageU8:
    screen = render_screen(data, shown_at(size))
    return room.developed(
        room.blurred(room.light(screen), exposure.aperture), 0.0, exposure, np.random.default_rng(1)
    )


def png(image: ImageU8) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("yaw", "pitch", "roll"), [(1.6, -1.1, 0.5), (-3, 2, -2)])
def test_corners_are_found_to_a_fraction_of_a_pixel(yaw: float, pitch: float, roll: float) -> None:
    room = Room(replace(view_of(STAGE), yaw=yaw, pitch=pitch, roll=roll), noise=False)
    shown = shown_at(STAGE)
    found = locate(frame_of(board(*STAGE).png, room), board(*STAGE), placement(shown, STAGE))
    assert found.markers == 20
    assert found.warnings == ()
    put = placement(shown, STAGE)
    corners = apply_homography(put, [(0, 0), (499, 0), (499, 374), (0, 374)])
    true = apply_homography(room.view.homography, corners)
    back = apply_homography(np.linalg.inv(found.matrix), true)
    assert np.median(np.linalg.norm(back - corners, axis=1)) < 0.7


@pytest.mark.slow
def test_ssim_of_straightened_photographs_against_the_unwarped_simulation() -> None:
    from skimage.metrics import structural_similarity

    room, shown = Room(view_of(STAGE), noise=False), shown_at(STAGE)
    found = locate(frame_of(board(*STAGE).png, room), board(*STAGE), placement(shown, STAGE))
    values = []
    for seed in range(2):
        image = scene(seed, STAGE[1], STAGE[0])
        for exposure in (GOOD,):
            flat = rectify(frame_of(png(image), room, exposure=exposure), found.matrix, shown, STAGE)
            direct = unwarped(image, exposure, room)
            values.append(structural_similarity(flat, direct, channel_axis=2))
    assert np.median(values) >= 0.9


def unwarped(image: ImageU8, exposure: Exposure, room: Room) -> ImageU8:
    """The directly simulated camera without noise and perspective."""
    from sorites.optics.develop import develop

    on_screen = put_on_screen(to_float(image), np.random.default_rng(0), ES_STUDIO, room.body)
    light = on_screen.blurred([exposure.aperture])[exposure.aperture]
    collected = room.body.electrons(exposure) / np.array(room.body.balance)
    electrons = light * (ES_STUDIO.white["off"] * collected) + np.array(ES_STUDIO.veil["off"]) * collected
    area = on_screen.area * room.body.averaged(exposure.iso)
    numbers = np.clip(
        electrons * room.body.dn_per_e(exposure.iso) + room.body.black_dn, 0, room.body.white_dn
    )
    return (develop(numbers.astype(np.float32), room.body, exposure.iso, area) * 255 + 0.5).astype(np.uint8)


@pytest.mark.slow
def test_a_tilted_a_cut_off_and_a_soft_camera_are_warned_of() -> None:
    shown, markers = shown_at(STAGE), board(*STAGE)
    put = placement(shown, STAGE)
    tilted = Room(replace(view_of(STAGE), yaw=12.0, margin=1.3), noise=False)
    assert any("tilted" in text for text in locate(frame_of(markers.png, tilted), markers, put).warnings)
    cut = Room(replace(view_of(STAGE), margin=0.85), noise=False)
    assert any("cut off" in text for text in locate(frame_of(markers.png, cut), markers, put).warnings)
    sharp = frame_of(markers.png, Room(view_of(STAGE), noise=False))
    from PIL import ImageFilter

    soft = np.asarray(Pillow.fromarray(sharp).filter(ImageFilter.GaussianBlur(3)))
    assert any("out of focus" in text for text in locate(soft, markers, put).warnings)
    with pytest.raises(CameraError, match="only 0 of 20 markers.*dark"):
        locate(np.zeros_like(sharp), markers, put)


def test_drift_is_the_farthest_corner() -> None:
    still = np.eye(3)
    moving = np.array([[1, 0, 3], [0, 1, 4], [0, 0, 1.0]])
    assert drift(still, moving, (0, 0, 10, 10)) == pytest.approx(5)


def test_a_plain_move_is_undone_exactly_and_metadata_is_kept() -> None:
    image = scene(3, 90, 120)
    frame = np.zeros((200, 300, 3), np.uint8)
    frame[40:130, 50:170] = image
    matrix = np.array([[1, 0, 50], [0, 1, 40], [0, 0, 1.0]])
    flat = rectify(frame, matrix, Shown(1, (120, 90), 0, 0, 120, 90), (120, 90))
    assert np.abs(flat.astype(int) - image).max() <= 1
    data = encode_jpeg(flat, as_jpeg(frame, GOOD, 95))
    opened = Pillow.open(io.BytesIO(data))
    assert opened.size == (120, 90)
    assert opened.getexif().get_ifd(0x8769)[0x8827] == 400


def test_a_finer_frame_is_averaged_and_not_aliased() -> None:
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 256, (300, 300, 3), dtype=np.uint8)
    third = np.diag([3.0, 3.0, 1.0]) @ np.array([[1, 0, 1 / 3], [0, 1, 1 / 3], [0, 0, 1.0]])
    flat = rectify(frame, third, Shown(1, (100, 100), 0, 0, 100, 100), (100, 100))
    assert flat.std() == pytest.approx(frame.std() / 3, rel=0.15)


def test_views_of_any_size() -> None:
    assert view_of((500, 375), megapixels=0.5).frame[0] * view_of((500, 375), megapixels=0.5).frame[
        1
    ] == pytest.approx(5e5, rel=0.01)
    assert View().scale == pytest.approx(576 / 500 / 1.1)
