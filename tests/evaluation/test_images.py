from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from sorites import core
from sorites.core import CLEAN, Generated, ImageF32, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.evaluation import plan
from sorites.evaluation.images import reason, shifted_shots, shots
from sorites.evaluation.plan import Plan, Unit
from sorites.suites.suite import parse

IMAGE = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)


def make(*shifts: str, **more: object) -> Plan:
    suite = parse({"name": "s", "shifts": list(shifts), "seed": 3, **more}, "test")
    return plan.make(suite, Source("mine", [Sample("p", Generated(lambda: IMAGE), 0)]))


@pytest.fixture
def odd() -> Iterator[None]:
    """Shifts that go wrong, for as long as a test takes."""
    core.SHIFTS.names()
    before = dict(core.SHIFTS._objects)

    @core.add_shift(family="test", unit="1", levels=(1, 2, 3))
    def hollow(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        return image * np.float32("nan" if severity == 2 else 1)

    @core.add_shift(family="test", unit="1", levels=(1, 2, 3))
    def brittle(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        if severity == 2:
            raise ValueError("snap")
        return image

    yield
    core.SHIFTS._objects.clear()
    core.SHIFTS._objects.update(before)


def test_a_shot_is_the_shift_at_its_stop_with_the_samples_draw() -> None:
    made = make("gaussian_noise")
    noise = core.shift("gaussian_noise")
    for shot in shots(made, Unit("gaussian_noise", 0, 1)):
        severity = shot.setting.severity
        assert severity is not None
        alone = noise(core.to_float(IMAGE), severity, rng_for(3, "p", "gaussian_noise"))
        np.testing.assert_array_equal(shot.image, core.to_uint8(alone))
        assert shot.setting.level == noise.levels.index(severity) + 1
        assert (shot.error, shot.probe) == (None, False)


def test_the_clean_shot_is_the_framed_image() -> None:
    made = make("jpeg", frame={"resize": 8, "crop": 6})
    (shot,) = shots(made, Unit(CLEAN, 0, 1))
    assert made.suite.frame is not None
    np.testing.assert_array_equal(shot.image, made.suite.frame(IMAGE))


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hollow", "hollow returned pixels that are not finite at 2.0"),
        ("brittle", "brittle: ValueError: snap"),
    ],
)
def test_what_a_shift_cannot_make_is_an_error_and_not_a_image(name: str, said: str) -> None:
    made = list(shifted_shots(make(name), make(name).groups[CLEAN][0], name, [1.0, 2.0, 3.0]))
    assert [shot.setting.severity for shot in made] == [1.0, 2.0, 3.0]
    assert made[0].image is not None
    assert made[1].image is None
    assert made[1].error == said
    assert all((shot.image is None) != (shot.error is None) for shot in made)


def test_errors_are_kept_in_words() -> None:
    assert reason(SoritesError("x.png: truncated"), "reading") == "x.png: truncated"
    assert reason(KeyError("k"), "reading the image") == "reading the image: KeyError: 'k'"
