from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sorites import core
from sorites.core import (
    Box,
    Generated,
    ImageF32,
    Model,
    Outputs,
    Sample,
    Setting,
    Shift,
    Source,
    to_float,
    to_uint8,
)
from sorites.core.errors import SoritesError


def test_eight_bits_survive_the_way_to_floats_and_back() -> None:
    every = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    image = to_float(every)
    assert image.dtype == np.float32
    assert (image.min(), image.max()) == (0, 1)
    np.testing.assert_array_equal(to_uint8(image), every)


@given(st.floats(-3, 3, width=32))
def test_rounding_is_to_the_nearest_and_clips(value: float) -> None:
    held = int(to_uint8(np.full((1, 1, 3), value, np.float32))[0, 0, 0])
    assert abs(held - min(max(value, 0.0), 1.0) * 255) <= 0.5 + 1e-4


def test_a_image_is_made_without_touching_the_image() -> None:
    image = np.full((2, 2, 3), 1.7, np.float32)
    to_uint8(image)
    assert (image == np.float32(1.7)).all()


def test_settings_are_told_apart_by_their_canonical_text() -> None:
    assert Setting(2.0).canonical == '{"severity": 2.0}'
    one, other = Setting(None, {"iso": 100, "shutter": 0.01}), Setting(None, {"shutter": 0.01, "iso": 100})
    assert one.canonical == other.canonical
    assert one.canonical != Setting(None, {"iso": 200, "shutter": 0.01}).canonical
    assert Setting(2.0, level=1).canonical == Setting(2.0, level=None).canonical


def test_what_counts_as_right() -> None:
    def right(**more: object) -> frozenset[int]:
        return Sample("s", Generated(lambda: np.zeros((1, 1, 3), np.uint8)), **more).right  # type: ignore[arg-type]

    assert right() == frozenset()
    assert right(label=0) == {0}
    assert right(label=3, accept=frozenset({3, 5})) == {3, 5}


def _adds(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
    return image + np.float32(severity * rng.random())


@pytest.fixture
def dial() -> Shift:
    return Shift("adds", _adds, "test", "unit", (1.0, 2.0, 4.0))


def test_a_shift_knows_its_levels(dial: Shift) -> None:
    assert dial.top == 4
    assert [dial.setting(s).level for s in (0, 1, 2.0, 3, 4)] == [None, 1, 2, None, 3]


@given(severities=st.lists(st.floats(0, 8), min_size=1, max_size=6))
def test_one_trajectory_is_one_draw(severities: list[float]) -> None:
    shift, image = Shift("adds", _adds, "test", "unit", (1.0,)), np.zeros((1, 1, 3), np.float32)
    rng = np.random.default_rng(5)
    draw = np.random.default_rng(5).random()
    made = [float(moved[0, 0, 0]) for moved in shift.sweep(image, severities, rng)]
    assert made == [np.float32(s * draw) for s in severities]
    assert rng.random() == draw, "the generator given is not used up"


def test_a_faster_sweep_is_asked_only_for_what_moves(dial: Shift) -> None:
    asked: list[list[float]] = []

    @dial.sweeper
    def together(image: ImageF32, severities: Sequence[float], rng: np.random.Generator) -> list[ImageF32]:
        asked.append(list(severities))
        return [image + np.float32(s) for s in severities]

    image = np.zeros((1, 1, 3), np.float32)
    made = list(dial.sweep(image, [2, 0, 1], np.random.default_rng(0)))
    assert asked == [[2, 1]]
    assert [float(m[0, 0, 0]) for m in made] == [2, 0, 1]
    made[1] += 1
    assert image.max() == 0, "severity 0 gives a copy"


def test_a_grid_has_settings_and_no_line() -> None:
    def expose(image: ImageF32, params: Mapping[str, float], rng: np.random.Generator) -> ImageF32:
        return image * np.float32(params["settings"])

    grid = Shift("expose", expose, "camera", "settings", settings=({"settings": 0.5}, {"settings": 0.25}))
    image = np.ones((1, 1, 3), np.float32)
    made = list(grid.sweep(image, [0.0, *grid.settings], np.random.default_rng(0)))
    assert [float(m[0, 0, 0]) for m in made] == [1, 0.5, 0.25]
    assert grid.setting({"settings": 0.5}) == Setting(None, {"settings": 0.5})


@pytest.mark.usefixtures("empty")
def test_options_are_for_shifts_that_have_some() -> None:
    def tinted(colour: float = 0.0) -> Shift:
        return Shift("tint", lambda image, severity, rng: image + np.float32(colour), "colour", "1", (1.0,))

    @core.add_shift(family="colour", unit="1", levels=(1,), configure=tinted)
    def tint(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        return image

    made = core.shift("tint", colour=0.5)
    assert made.options == {"colour": 0.5}
    assert float(made(np.zeros((1, 1, 3), np.float32), 1, np.random.default_rng(0))[0, 0, 0]) == 0.5
    with pytest.raises(SoritesError, match="option named 'color'. Did you"):
        core.shift("tint", color=0.5)
    tint.configure = None
    with pytest.raises(SoritesError, match="has no options, got colour"):
        core.shift("tint", colour=1)


def test_outputs_count_whatever_they_hold() -> None:
    assert len(Outputs()) == 0
    assert len(Outputs(logits=np.zeros((3, 2), np.float32))) == 3
    assert len(Outputs(features=np.zeros((4, 2), np.float32))) == 4
    assert len(Outputs(boxes=[(Box((0, 0, 1, 1), 2),), ()])) == 2


def test_a_model_prepares_each_image_and_sees_them_together() -> None:
    def prepare(image: core.ImageU8, framed: bool) -> core.ImageU8:
        return image[:1] if framed else image

    def forward(images: list[core.ImageU8]) -> Outputs:
        return Outputs(np.array([[p.shape[0]] for p in images], np.float32))

    model = Model("m", forward, prepare)
    images = [np.zeros((n, 2, 3), np.uint8) for n in (4, 5)]
    assert model(images).logits.ravel().tolist() == [4, 5]  # type: ignore[union-attr]
    assert model(images, framed=True).logits.ravel().tolist() == [1, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("lite0", ("lite0", None)),
        ("onnx:a/b.onnx", ("onnx", "a/b.onnx")),
        ("python:module:callable", ("python", "module:callable")),
        ("folder:C:\\images", ("folder", "C:\\images")),
        ("folder:", ("folder", None)),
    ],
)
def test_what_follows_the_first_colon_is_the_argument(spec: str, parts: tuple[str, str | None]) -> None:
    assert core.split_spec(spec) == parts


def test_look_ups_by_name_say_what_is_near() -> None:
    assert core.shift("jpeg").name == "jpeg"
    with pytest.raises(SoritesError, match="'jpge'.*jpeg.*list shifts"):
        core.shift("jpge")
    with pytest.raises(SoritesError, match=r"source named 'foldr'\. Did you"):
        core.source("foldr:x")
    with pytest.raises(SoritesError, match="needs a path"):
        core.source("folder")


def test_a_source_is_a_list_of_samples() -> None:
    samples = [Sample(str(i), Generated(lambda: np.zeros((1, 1, 3), np.uint8))) for i in range(3)]
    source = Source("some", samples)
    assert list(source) == samples
    assert len(source) == 3


class Far:
    """OOD score by distance from what was fitted."""

    def __init__(self, k: int = 1) -> None:
        self.k = k

    def __call__(self, outputs: Outputs) -> np.ndarray:
        return np.full(len(outputs), self.k, np.float32)


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries without names, to be filled and forgotten."""
    for registry in (core.SHIFTS, core.SCORERS):
        registry.names()
        monkeypatch.setattr(registry, "_objects", {})


@pytest.mark.usefixtures("empty")
def test_scorers_are_functions_or_classes() -> None:
    def flat(outputs: Outputs, height: float = 2) -> np.ndarray:
        return np.full(len(outputs), height, np.float32)

    core.add_scorer(Far)
    core.add_scorer(flat)
    some = Outputs(np.zeros((2, 3), np.float32))
    assert core.scorer("Far", k=7)(some).tolist() == [7, 7]
    assert core.scorer("flat")(some).tolist() == [2, 2]
    assert core.scorer("flat", height=1)(some).tolist() == [1, 1]


@pytest.mark.usefixtures("empty")
def test_a_decorator_takes_the_functions_name_and_first_line() -> None:
    @core.add_shift(family="colour", unit="turns", levels=(1, 2))
    def hue(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        """Turns the colour wheel.

        And more."""
        return image

    assert (hue.name, hue.about, hue.levels, hue.version) == ("hue", "Turns the colour wheel.", (1.0, 2.0), 1)
    with pytest.raises(SoritesError, match="the shift name 'hue' is"):
        core.add_shift(family="x", unit="x", levels=(1,))(hue.apply)
