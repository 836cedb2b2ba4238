"""The cascade: AugMix, then OpticsAugment, by two weights of one flat Dirichlet draw."""

import pytest
import torch
from scipy import stats

from sorites.core.errors import SoritesError
from sorites.training import Cascade


def test_the_weights_have_beta_marginals_with_a_mean_of_a_quarter():
    cascade = Cascade(optics={"scaled": 4})
    cascade.seed(0)
    mixed, blurred = (weights.numpy().astype(float) for weights in cascade.weights(40_000))
    for weights in (mixed, blurred):
        assert stats.kstest(weights, stats.beta(1, 3).cdf).pvalue > 1e-3
        assert stats.kstest(weights, "uniform").pvalue < 1e-12
        assert abs(weights.mean() - 0.25) < 4 * (3 / 80) ** 0.5 / 200
        assert abs((weights > 0.5).mean() - 1 / 8) < 4 * (7 / 64) ** 0.5 / 200
    assert (mixed + blurred).max() <= 1
    assert stats.pearsonr(mixed, blurred).statistic < -0.3


def test_optics_works_on_what_augmix_made():
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    cascade = Cascade(32, optics={"scaled": 4}, augmix={"severity": 1})
    cascade.seed("x")
    mixed, blurred = cascade.weights(4)
    wanted = cascade.optics.mix(cascade.augmix.mix(images, mixed), blurred)
    cascade.seed("x")
    assert torch.equal(cascade(images), wanted)
    assert cascade.augmix.severity == 1
    assert cascade.optics.blur.side == 13


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"optics": {"foo": 1}},
            (
                "no option of the augmentation optics named 'foo'.* It has alpha, colours, kernels, scaled,"
                " severity"
            ),
        ),
        (
            {"augmix": {"size": 8}},
            "no option of the augmentation augmix named 'size'.* It has alpha, depth, fill, geometric, severity",
        ),
        ({"optics": 4}, "options of optics"),
    ],
)
def test_options_that_a_part_does_not_have_are_refused(options, said):
    with pytest.raises(SoritesError, match=said):
        Cascade(**options)
