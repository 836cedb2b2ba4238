"""What every measure owes, built in or plugged in: the best value for equal images, its
direction, one number per pair.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from tests.measures.images import blurred, scene

from sorites import core
from sorites.core import MEASURES, ImageU8, Measure, add_measure, plugins
from sorites.core.errors import BadImage, SoritesError
from sorites.core.registry import Registry
from sorites.evaluation.facts import decomposition

CLEAN = np.asarray(gaussian_filter(scene(3, 96).astype(float), (1, 1, 0)), np.uint8)


def exposed(image: ImageU8, settings: float) -> ImageU8:
    linear = (image / 255) ** 2.2 * 2**settings
    return np.round(255 * np.clip(linear, 0, 1) ** (1 / 2.2)).astype(np.uint8)


def veiled(image: ImageU8, depth: float) -> ImageU8:
    return np.round(image * math.exp(-depth) + 200 * (1 - math.exp(-depth))).astype(np.uint8)


MOVES: dict[str, tuple[Callable[[ImageU8, float], ImageU8], float, float]] = {
    "blur": (blurred, 0.7, 3.0),
    "exposure": (exposed, 0.5, 2.0),
    "veil": (veiled, 0.2, 1.0),
}
"""Ways to move an image, each with a mild and a strong setting."""


@pytest.fixture(params=MEASURES.names())
def measure(request: pytest.FixtureRequest) -> Measure:
    made = core.measure(request.param)
    try:
        made(CLEAN, CLEAN)
    except SoritesError as error:
        if "Type:" not in str(error):
            raise
        pytest.skip(str(error))
    return made


def far(measure: Measure, moved: ImageU8) -> float:
    """Return a number that is larger the further the moved image is from the clean one, by the
    direction of the measure.
    """
    value = measure(CLEAN, moved)
    return abs(value) if measure.nearer == "lower" else -value


def test_it_says_what_it_is(measure: Measure) -> None:
    assert MEASURES.get(measure.name) is measure
    assert measure.nearer in ("lower", "higher")
    assert measure.unit
    assert measure.about


def test_equal_images_have_the_best_value(measure: Measure) -> None:
    best = far(measure, CLEAN)
    if measure.nearer == "lower":
        assert best == pytest.approx(0, abs=1e-9)
    for move, mild, strong in MOVES.values():
        assert best <= far(measure, move(CLEAN, mild)) + 1e-9
        assert best <= far(measure, move(CLEAN, strong)) + 1e-9


def test_it_points_the_way_it_says(measure: Measure) -> None:
    """Some kind of move is seen: a strong one is further than a mild one, and that further than none."""
    best = far(measure, CLEAN)
    found = {
        name: (far(measure, move(CLEAN, mild)), far(measure, move(CLEAN, strong)))
        for name, (move, mild, strong) in MOVES.items()
    }
    assert any(best < mild - 1e-3 and mild < strong - 1e-3 for mild, strong in found.values()), found


def test_images_of_two_sizes_or_kinds_are_refused(measure: Measure) -> None:
    for other in (CLEAN[:64], CLEAN[:, :64], CLEAN.astype(np.float32)):
        for pair in ((CLEAN, other), (other, CLEAN)):
            if measure.whole and other.dtype == np.uint8:
                assert math.isfinite(measure(*pair)), "a whole measure brings two sizes to one itself"
                continue
            with pytest.raises(
                BadImage, match="two 8-bit images" if measure.whole else "two 8-bit images of one size"
            ):
                measure(*pair)


def test_the_same_pair_twice_is_the_same_bit_for_bit(measure: Measure) -> None:
    moved = exposed(blurred(CLEAN, 1), 0.5)
    first, again = measure(CLEAN, moved), measure(CLEAN.copy(), moved.copy())
    assert isinstance(first, float)
    assert first == again


def test_images_are_not_written_to(measure: Measure) -> None:
    pair = CLEAN.copy(), veiled(CLEAN, 0.5)
    before = [image.copy() for image in pair]
    for image in pair:
        image.flags.writeable = False
    measure(*pair)
    for image, was in zip(pair, before, strict=True):
        np.testing.assert_array_equal(image, was)


def test_a_direction_is_lower_or_higher() -> None:
    def sideways(reference: ImageU8, moved: ImageU8) -> float:
        return 0.0

    with pytest.raises(
        SoritesError, match='measure sideways: expected nearer="lower" or nearer="higher", got \'up\''
    ):
        add_measure(nearer="up")(sideways)  # type: ignore[arg-type]
    assert "sideways" not in MEASURES.names()


def test_an_unknown_measure_is_named() -> None:
    with pytest.raises(SoritesError, match="'sim'. Did you mean ssim"):
        core.measure("sim")


def test_the_examples_in_the_documentation_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in [obj for obj in vars(plugins).values() if isinstance(obj, Registry)]:
        registry.names()
        monkeypatch.setattr(registry, "_objects", dict(registry._objects))
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, {})
    assert core.measure("worst_difference")(CLEAN, CLEAN + np.uint8(1)) == 1
    judge = core.encoder("colours")
    assert judge.images([CLEAN, veiled(CLEAN, 1)], False).shape == (2, 4)
    assert decomposition.learn(judge, decomposition.recipe(judge)) is not None
