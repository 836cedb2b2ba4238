"""Properties of every fitted scorer: independence of order, batches and earlier fits, and errors for
invalid input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance

from sorites import core
from sorites.core import Outputs
from sorites.core.errors import SoritesError, TooFewImages
from sorites.scorers.base import MAX_EXACT_VALUES, Bank, Moments, Percentile

if TYPE_CHECKING:
    from tests.scorers.conftest import Case

TRAINED = [
    *("knn", "mds", "rmds", "vim(dim=12)", "react", "dice", "nnguide", "fdbd", "she", "nci", "core", "gmm"),
    *("residual(dim=12)", "vra", "ras", "relation", "corp(dim=64)"),
]
ON_LOGITS = ["klm", "openmax"]
HEADED = ["ash_b", "ash_s", "ash_p", "scale", "mcm"]
PLAIN = ["msp", "max_logit", "energy", "gen", "gradnorm"]
ON_FEATURES = [*TRAINED, *HEADED, "gradnorm"]


def fitted(spec: str, case: Case, batches: Any = None) -> Any:
    scorer = core.scorer(spec)
    return scorer.fit(case.batches() if batches is None else batches, case.head)


def with_ids(case: Case, order: np.ndarray, size: int) -> list[tuple[Outputs, list[int | None]]]:
    made = []
    for i in range(0, len(order), size):
        some = order[i : i + size]
        given = case.outputs(case.train[some])
        made.append(
            (Outputs(given.logits, given.features, ids=[f"p{j}" for j in some]), case.labels[some].tolist())
        )
    return made


@pytest.mark.parametrize("spec", [*TRAINED, *ON_LOGITS, *HEADED, *PLAIN])
def test_scores_do_not_depend_on_batches_or_call_order(spec: str, case: Case) -> None:
    scorer, asked = fitted(spec, case), case.outputs()
    first = scorer(asked)
    assert first.shape == (len(case.asked),)
    assert first.dtype == np.float32
    assert asked.logits is not None
    for size in (1, 3, 16):
        parts = [
            scorer(Outputs(asked.logits[i : i + size], case.asked[i : i + size]))
            for i in range(0, len(case.asked), size)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), first)
    np.testing.assert_array_equal(scorer(Outputs(asked.logits[::-1], case.asked[::-1]))[::-1], first)
    assert scorer(case.outputs(case.asked[:0])).shape == (0,)


@pytest.mark.parametrize("spec", [*TRAINED, *ON_LOGITS, "knn(k=5, bank=64)", "nnguide(k=5, bank=64)"])
def test_the_order_and_batches_of_training_images_do_not_matter(spec: str, case: Case) -> None:
    rng, count = np.random.default_rng(1), len(case.train)
    one = fitted(spec, case, with_ids(case, np.arange(count), 100))
    other = fitted(spec, case, with_ids(case, rng.permutation(count), 17))
    np.testing.assert_allclose(other(case.outputs()), one(case.outputs()), rtol=1e-6)
    assert one.fitted == other.fitted


def test_refitting_discards_the_previous_fit(case: Case) -> None:
    for spec in [*TRAINED, *ON_LOGITS]:
        again = fitted(spec, case, with_ids(case, np.arange(300, 600), 50)).fit(case.batches(), case.head)
        np.testing.assert_array_equal(again(case.outputs()), fitted(spec, case)(case.outputs()))


def test_mds_matches_scikit_learn_covariance(case: Case) -> None:
    means = np.stack([case.train[case.labels == c].mean(axis=0, dtype=np.float64) for c in range(6)])
    shared = EmpiricalCovariance(assume_centered=True).fit(case.train.astype(np.float64) - means[case.labels])
    expected = np.min([shared.mahalanobis(case.asked - mean) for mean in means], axis=0)
    np.testing.assert_allclose(fitted("mds", case)(case.outputs()), expected, rtol=1e-4)


def test_constant_directions_are_left_out_like_a_pseudo_inverse(case: Case) -> None:
    """Dead units and a repeated feature: the covariance is singular, the distance is that without them."""
    wide = np.concatenate([case.train, case.train[:, :1], np.zeros((len(case.train), 3), np.float32)], axis=1)
    asked = np.concatenate(
        [case.asked, case.asked[:, :1], np.zeros((len(case.asked), 3), np.float32)], axis=1
    )
    logits = case.outputs(case.train).logits
    for name in ("mds", "rmds"):
        scorer = core.scorer(name).fit([(Outputs(logits, wide), case.labels)])
        np.testing.assert_allclose(
            scorer(Outputs(case.outputs().logits, asked)),
            fitted(name, case)(case.outputs()),
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("name", ["mds", "rmds"])
def test_classes_without_training_images_give_no_nan(name: str, case: Case) -> None:
    held = case.labels != 2
    batches = [(case.outputs(case.train[held]), case.labels[held])]
    scorer = fitted(name, case, batches)
    renamed = np.where(case.labels[held] > 2, case.labels[held] - 1, case.labels[held])
    closed = fitted(name, case, [(case.outputs(case.train[held]), renamed)])
    assert scorer.fitted == {"images": 500, "classes": 5}
    np.testing.assert_array_equal(scorer(case.outputs()), closed(case.outputs()))


def test_unlabelled_images_are_used_only_by_scorers_without_classes(case: Case) -> None:
    some = [None if i % 2 else int(c) for i, c in enumerate(case.labels)]
    assert fitted("mds", case, [(case.outputs(case.train), some)]).fitted["images"] == 300
    assert fitted("knn", case, [(case.outputs(case.train), some)]).fitted == {"images": 600, "bank": 600}
    with pytest.raises(SoritesError, match="the model's classes"):
        fitted("mds", case, [(case.outputs(case.train), [-1] * 600)])


def test_she_names_the_class_that_has_no_pattern(case: Case) -> None:
    best = case.outputs().logits.argmax(axis=1)  # type: ignore[union-attr]
    held = case.labels != best[0]
    scorer = fitted("she", case, [(case.outputs(case.train[held]), case.labels[held])])
    with pytest.raises(SoritesError, match=f"class {best[0]} was"):
        scorer(case.outputs())
    kept = best != best[0]
    np.testing.assert_array_equal(
        scorer(case.outputs(case.asked[kept])), fitted("she", case)(case.outputs(case.asked[kept]))
    )


def test_zero_vector_has_distance_one(case: Case) -> None:
    zero = np.zeros((1, case.train.shape[1]), np.float32)
    assert fitted("knn", case)(case.outputs(zero))[0] == 1
    training = np.concatenate([np.repeat(zero, 10, axis=0), case.train])
    with_zeros = fitted("knn(k=10)", case, [(case.outputs(training), None)])
    assert with_zeros(case.outputs(zero))[0] == 0
    away = -case.train[:5] - 1
    np.testing.assert_allclose(with_zeros(case.outputs(away)), 1, atol=1e-6)
    for spec in ON_FEATURES:
        assert np.isfinite(fitted(spec, case)(case.outputs(zero))).all(), spec


def test_kth_neighbour_is_exact_below_float32_precision(case: Case) -> None:
    """A hundred nearly equal neighbours, and the training images themselves: distance 0, not the
    rounding of 2 - 2 cos.
    """
    assert not fitted("knn(k=1)", case)(case.outputs(case.train)).any()
    rng = np.random.default_rng(0)
    crowd = (case.train[:1] + 1e-6 * rng.normal(size=(100, case.train.shape[1]))).astype(np.float32)
    scorer = fitted("knn(k=50)", case, [(case.outputs(crowd), None)])
    unit = [
        rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True) for rows in (case.asked, crowd)
    ]
    expected = np.sort(np.linalg.norm(unit[0][:, None] - unit[1][None], axis=2), axis=1)[:, 49]
    np.testing.assert_allclose(scorer(case.outputs()), expected, rtol=1e-6)


@pytest.mark.parametrize("spec", ON_FEATURES)
def test_non_finite_inputs_raise(spec: str, case: Case) -> None:
    bad = case.asked.copy()
    bad[3, 5] = np.nan
    logits = case.outputs().logits
    with pytest.raises(SoritesError, match="in 1 of 80 rows"):
        fitted(spec, case)(Outputs(logits, bad))
    if spec in TRAINED:
        with pytest.raises(SoritesError, match="in 1 of 80 rows"):
            fitted(spec, case, [(Outputs(logits, bad), case.labels[:80])])


@pytest.mark.parametrize("spec", ON_FEATURES)
def test_features_must_have_the_fitted_width(spec: str, case: Case) -> None:
    with pytest.raises(SoritesError, match="expected features, got none"):
        fitted(spec, case)(Outputs(case.outputs().logits))
    if spec != "gradnorm":
        with pytest.raises(SoritesError, match="40 columns, as in fit, got 39"):
            fitted(spec, case)(Outputs(case.outputs().logits, case.asked[:, 1:]))


@pytest.mark.parametrize("spec", [*TRAINED, *ON_LOGITS, *HEADED])
def test_calling_before_fit_raises(spec: str, case: Case) -> None:
    with pytest.raises(SoritesError, match="not fitted"):
        core.scorer(spec)(case.outputs())


@pytest.mark.parametrize("spec", TRAINED)
def test_training_needs_images_of_one_width(spec: str, case: Case) -> None:
    with pytest.raises(SoritesError, match="to be fitted on"):
        fitted(spec, case, [])
    narrow = Outputs(case.outputs().logits, case.asked[:, 1:])
    with pytest.raises(SoritesError, match="40 columns, as in fit, got 39"):
        fitted(spec, case, [(case.outputs(), case.labels[:80]), (narrow, case.labels[:80])])
    with pytest.raises(SoritesError, match="80 training images, got 3"):
        fitted(spec, case, [(case.outputs(), case.labels[:3])])


@pytest.mark.parametrize(
    "spec", ["react", "dice", "vim(dim=12)", "fdbd", "nci", "vra", "ras", "core", *HEADED]
)
def test_missing_or_malformed_head_raises(spec: str, case: Case) -> None:
    with pytest.raises(SoritesError, match="last linear layer"):
        core.scorer(spec).fit(case.batches())
    with pytest.raises(SoritesError, match="C x D and C"):
        core.scorer(spec).fit(case.batches(), (case.weight, case.bias[1:]))


def test_too_few_training_images_for_k_raise(case: Case) -> None:
    few = [(case.outputs(case.train[:30]), None)]
    with pytest.raises(SoritesError, match=r"got 30.*knn\(k=15\)"):
        fitted("knn", case, few)
    with pytest.raises(SoritesError, match="k=100"):
        fitted("nnguide", case, few)
    with pytest.raises(SoritesError, match=r"its 35 .* got 30.*vim\(dim=15\)"):
        fitted("vim(dim=35)", case, few)


@pytest.mark.parametrize(
    "spec",
    [
        "knn(k=0)",
        "knn(k=1.5)",
        "knn(bank=0)",
        "vim(dim=0)",
        "react(percentile=100)",
        "ash_b(percentile=-1)",
        "nci(alpha=-1)",
        "vra(low=90, high=10)",
        "corp(variance=0)",
        "gmm(reg=0)",
        "relation(power=0)",
        "openmax(tail=0)",
        "mcm(temperature=0)",
        "neglabel(keep=2)",
        "adascale_a(low=90)",
    ],
)
def test_parameters_out_of_range_raise(spec: str) -> None:
    with pytest.raises(SoritesError, match=f"scorer {spec.partition('(')[0]}: "):
        core.scorer(spec)


def test_two_classes_with_the_same_weights_have_no_border(case: Case) -> None:
    weight = case.weight.copy()
    weight[1] = weight[0]
    scorer = core.scorer("fdbd").fit(case.batches(), (weight, case.bias))
    assert np.isfinite(scorer(case.outputs())).all()


def test_bank_keeps_the_smallest_hashes_in_any_order() -> None:
    rows = np.arange(1000, dtype=np.float32)[:, None]
    ids = [f"s{i}" for i in range(1000)]
    order = np.random.default_rng(0).permutation(1000)
    banks = [Bank(100), Bank(100), Bank(100)]
    banks[0].add(rows, ids)
    for i in order:
        banks[1].add(rows[i : i + 1], [ids[i]])
        banks[2].add(rows[i : i + 1], None)
    assert np.array_equal(banks[0].rows(), banks[1].rows())
    assert len(np.unique(banks[2].rows())) == 100


def test_moments_match_numpy(case: Case) -> None:
    moments = Moments()
    for outputs, labels in case.batches(13):
        assert outputs.features is not None
        moments.add(outputs.features, labels)
    rows = case.train.astype(np.float64)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    np.testing.assert_allclose(moments.scatter(moments.mean), np.cov(rows.T, bias=True), atol=1e-12)
    np.testing.assert_allclose(moments.class_means()[4], rows[case.labels == 4].mean(axis=0))


@pytest.mark.parametrize("percent", [0.5, 10, 50, 90, 99])
def test_percentiles_match_numpy(percent: float) -> None:
    rng = np.random.default_rng(0)
    few, many = Percentile(), Percentile()
    values = (rng.normal(size=MAX_EXACT_VALUES + 1000) * 3).astype(np.float32)
    few.add(values[:500])
    few.add(values[500:1000])
    assert few.value(percent) == np.percentile(values[:1000].astype(np.float64), percent)
    for part in np.array_split(values, 7):
        many.add(part)
    expected = np.percentile(values, percent)
    assert many.value(percent) == pytest.approx(expected, rel=5e-4, abs=1e-4)


@pytest.mark.parametrize("name", ["mds", "rmds"])
def test_a_covariance_is_refused_where_classes_have_one_image_or_the_same_twice(
    name: str, case: Case
) -> None:
    """Of one image per class the spread within classes is rounding, and distances of 1e18 came of it."""
    labels = np.arange(12)
    some = (case.train[:12] + 300).astype(np.float32)
    wide = Outputs(np.zeros((12, 12), np.float32), some)
    with pytest.raises(TooFewImages, match=rf"scorer {name}: .* got 12 of 12 classes"):
        core.scorer(name).fit([(wide, labels)])
    twice = Outputs(np.zeros((24, 12), np.float32), np.concatenate([some, some]))
    with pytest.raises(TooFewImages, match="got 24 of 12 classes"):
        core.scorer(name).fit([(twice, np.concatenate([labels, labels]))])


def test_fewer_images_than_features_are_noted(case: Case) -> None:
    few = core.scorer("mds").fit([(case.outputs(case.train[:30]), case.labels[:30])])
    assert "fitted on 30 images of 6 classes, which span 24 of 40 directions" in few.note
    assert fitted("mds", case).note == ""
