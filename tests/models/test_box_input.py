"""An image's place in a detector's input: geometry by hand, pixels against OpenCV and Pillow, and
the way back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.models import box_graphs as graphs

from sorites import core
from sorites.core import ImageU8
from sorites.models.detectors.config import Filter, Fit, placed, scaled


@pytest.mark.parametrize("size", [(416, 416), (77, 300), (640, 512)])
@pytest.mark.parametrize(("filter", "code"), [("bilinear", 1), ("bicubic", 2)])
def test_scaling_is_opencvs_within_a_level(
    size: tuple[int, int], filter: Filter, code: int, photographs: dict[str, ImageU8]
) -> None:
    cv2 = pytest.importorskip("cv2")
    image = photographs["chelsea"]
    theirs = cv2.resize(image, size[::-1], interpolation=code)
    assert np.abs(scaled(image, size, filter, False).astype(int) - theirs).max() <= 1


def test_antialiased_scaling_is_pillows(photographs: dict[str, ImageU8]) -> None:
    image = photographs["chelsea"]
    theirs = np.asarray(Pillow.fromarray(image).resize((64, 48), Pillow.Resampling.BILINEAR))
    assert np.array_equal(scaled(image, (48, 64), "bilinear", True), theirs)
    assert scaled(image, image.shape[:2], "bilinear", False) is image


@pytest.mark.parametrize(
    ("fit", "inner", "left", "top"),
    [("letterbox", (32, 64), 0, 16), ("corner", (32, 64), 0, 0), ("squash", (64, 64), 0, 0)],
)
def test_placement_of_an_image(fit: Fit, inner: tuple[int, int], left: int, top: int) -> None:
    image = np.full((100, 200, 3), 200, np.uint8)
    inside, place = placed(image, (64, 64), fit, 114, "bilinear", False)
    mask = (inside == 200).all(axis=2)
    assert mask[top : top + inner[0], left : left + inner[1]].all()
    assert mask.sum() == inner[0] * inner[1]
    assert (inside[~mask] == 114).all()
    corners = np.array([[left, top, left + inner[1], top + inner[0]]])
    np.testing.assert_allclose(place.back(corners), [[0, 0, 200, 100]])


@pytest.mark.parametrize("fit", ["letterbox", "corner", "squash"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 999), (640, 480), (333, 500)])
def test_a_spot_is_found_again(fit: Fit, shape: tuple[int, int]) -> None:
    """The bright pixel with the most light in the input lies, mapped back, in the bright block of
    the image.
    """
    image = np.zeros((*shape, 3), np.uint8)
    y, x = shape[0] // 3, shape[1] // 4
    image[y : y + 40, x : x + 40] = 255
    inside, place = placed(image, (320, 320), fit, 0, "bilinear", False)
    rows, columns = np.nonzero(inside[..., 0] > 200)
    found = place.back(np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]]))[0]
    wanted = (x, y, min(x + 40, shape[1]), min(y + 40, shape[0]))
    step = 1 + 1 / min(place.across, place.down)
    np.testing.assert_allclose(found, wanted, atol=step)


@pytest.mark.parametrize(
    ("options", "at", "scores"),
    [
        ("", (0, 0), (114 / 255,) * 3),
        ("fill=0", (0, 0), ()),
        ("", (32, 32), (0.2, 0.4, 0.8)),
        ("channels=bgr", (32, 32), (0.8, 0.4, 0.2)),
        ("fit=squash", (0, 0), (0.2, 0.4, 0.8)),
        ("mean=[0.1,0.1,0.1]&std=[0.5,0.5,0.5]", (32, 32), (0.2, 0.6, 1.4)),
    ],
)
def test_what_a_graph_is_fed(
    options: str, at: tuple[int, int], scores: tuple[float, ...], tmp_path: Path
) -> None:
    """The graph gives the colours of one input pixel as scores of the classes 0, 1 and 2."""
    image = np.tile(np.array([51, 102, 204], np.uint8), (100, 200, 1))
    model = core.model(f'boxes:{graphs.pixels(tmp_path / "m.onnx", at=at)}?{options}&labels=["a","b","c"]')
    outputs = model([image])
    assert outputs.boxes is not None
    np.testing.assert_allclose(
        [b.conf for b in sorted(outputs.boxes[0], key=lambda b: b.label)], scores, atol=1e-6
    )
