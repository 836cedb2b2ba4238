"""Heads on features: the arms, the control with as many images, and the points that a split by
image makes up.
"""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core import Generated, Model, Outputs, Sample, Setting
from sorites.core.errors import SoritesError
from sorites.training.heads import ARMS, HeadData, accuracies, chosen, features, gains, head_data, leak

FOLDERS = ("animals", "food", "tools")
LEVELS = (0, 1, 1, 1, 2, 2, 2, 3)


def composites(strength: float = 1.0, own: float = 3.0, each: int = 12) -> HeadData:
    """Features that hold the class weakly, the object strongly, and a direction of their own for
    each uncommon setting.
    """
    rng = np.random.default_rng(1)
    objects = [f"{folder}/{number}" for folder in FOLDERS for number in range(each)]
    class_of = np.repeat(np.arange(3), each)
    directions, identity, moved = (
        rng.normal(size=(3, 40)),
        rng.normal(size=(len(objects), 40)),
        rng.normal(size=(4, 40)),
    )
    rows = [(obj, level) for obj in range(len(objects)) for level in LEVELS]
    found = [
        strength * directions[class_of[t]]
        + own * identity[t]
        + 2 * level * moved[level]
        + rng.normal(size=40) / 2
        for t, level in rows
    ]
    return HeadData(
        np.array(found, np.float32),
        tuple(objects[t] for t, _ in rows),
        np.array([class_of[t] for t, _ in rows]),
        np.array([level for _, level in rows]),
        FOLDERS,
    )


def test_the_control_has_as_many_images_of_the_same_objects_as_the_head_of_common_settings() -> None:
    data = composites()
    split = data.split(0)
    places = {arm: chosen(data, split.train, arm, 0) for arm in ARMS}
    shows = {arm: [data.objects[place] for place in some] for arm, some in places.items()}
    assert sorted(shows["common"]) == sorted(shows["equal"]) == sorted(set(shows["all"]))
    assert (data.levels[places["common"]] == 0).all()
    assert len(set(data.levels[places["equal"]])) > 1
    assert set(places["all"]) == set(split.train)
    assert set(places["equal"]) != set(chosen(data, split.train, "equal", 1))


def test_gains_are_means_over_seeds_of_differences_within_a_seed() -> None:
    from scipy.stats import ttest_1samp

    found = accuracies(composites(), range(4))
    assert found.select("seed", "arm", "level").n_unique() == found.height == 4 * 3 * 4
    row = gains(found).filter(arm="all", level=2).row(0, named=True)
    arms = [found.filter(arm=arm, level=2).sort("seed")["accuracy"].to_numpy() for arm in ("all", "common")]
    apart = 100 * (arms[0] - arms[1])
    theirs = ttest_1samp(apart, 0).confidence_interval(0.95)
    assert row["gain"] == pytest.approx(apart.mean())
    assert (row["low"], row["high"]) == pytest.approx((theirs.low, theirs.high))


def test_a_split_by_image_gives_points_that_are_not_there() -> None:
    apart = leak(composites(strength=0.2), range(3))
    by_object, by_image = apart["object"].mean(), apart["image"].mean()
    assert by_image > 0.9  # type: ignore[operator]
    assert by_image - by_object > 0.3  # type: ignore[operator]


def test_composites_of_rare_classes_are_left_out_and_levels_are_severities() -> None:
    def sample(obj: str, level: int) -> Sample:
        return Sample(
            obj,
            Generated(lambda: np.full((8, 8, 3), level, np.uint8)),
            0,
            setting=Setting(float(level)),
            shift="context",
        )

    samples = [sample(f"{folder}/{n}", level) for folder in ("a", "b") for n in range(4) for level in (0, 2)]
    samples.append(sample("rare/0", 0))
    model = Model("flat", lambda images: Outputs(features=np.array([[p.mean()] for p in images], np.float32)))
    data = head_data(samples, features(samples, model))
    assert data.names == ("a", "b")
    assert len(data.objects) == 16
    assert data.levels.tolist() == [0, 2] * 8
    np.testing.assert_array_equal(data.features[:, 0], data.levels)


def test_a_model_without_features_is_refused() -> None:
    mute = Model("mute", lambda images: Outputs(logits=np.zeros((len(images), 2), np.float32)))
    with pytest.raises(SoritesError, match="mute"):
        features([Sample("a", Generated(lambda: np.zeros((8, 8, 3), np.uint8)), 0)], mute)
