"""What all augmentations share: their own generators, states that can be restored, batches that are
refused.
"""

import copy
import pickle

import pytest
import torch

from sorites.core.errors import SoritesError
from sorites.training.augment import Augmentation, Chain, Flip, OpticsAugment, augmentation

SPECS = ["flip", "optics", "augmix", "cascade", "optics,augmix", "digital", "lens", "gaussian_noise", "fog"]


@pytest.fixture(scope="module")
def images():
    return torch.rand(5, 3, 24, 24, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_keeps_its_shape_and_range_and_is_not_written_into(spec, images):
    given = images.clone(memory_format=torch.channels_last)
    moves = augmentation(spec, 24)
    moves.seed(1)
    made = moves(given)
    assert made.shape == images.shape
    assert made.dtype == torch.float32
    assert made.min() >= 0
    assert made.max() <= 1
    assert torch.equal(given, images)
    assert not torch.equal(made, images)


@pytest.mark.parametrize("spec", SPECS)
def test_the_words_of_a_seed_decide_and_no_other_generator_does(spec, images):
    moves = augmentation(spec, 24)
    moves.seed(3, "step", 7)
    first = moves(images)
    torch.manual_seed(99)
    moves.seed(3, "step", 7)
    assert torch.equal(moves(images), first)
    before = torch.random.get_rng_state()
    moves.seed(3, "step", 8)
    assert not torch.equal(moves(images), first)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kept", ["state", "copy", "pickle"])
def test_what_is_restored_goes_on_with_the_same_draws(spec, kept, images):
    moves = augmentation(spec, 24)
    moves(images)
    if kept == "state":
        other = augmentation(spec, 24)
        other.load_state_dict({name: value.clone() for name, value in moves.state_dict().items()})
    else:
        other = copy.deepcopy(moves) if kept == "copy" else pickle.loads(pickle.dumps(moves))
    assert torch.equal(other(images), moves(images))


def test_in_eval_mode_images_pass_as_with_dropout(images):
    network = torch.nn.Sequential(OpticsAugment(), torch.nn.Identity())
    assert not torch.equal(network(images), images)
    assert torch.equal(network.eval()(images), images)


def test_parts_of_a_chain_draw_apart(images):
    """Two flips that drew alike would always undo each other."""
    twice = Chain([Flip(), Flip()])
    assert any(not torch.equal(twice(images), images) for _ in range(5))


def test_the_seed_of_torch_is_where_a_new_one_begins():
    torch.manual_seed(5)
    one = Flip().uniform(4)
    torch.manual_seed(5)
    assert torch.equal(Flip().uniform(4), one)
    torch.manual_seed(6)
    assert not torch.equal(Flip().uniform(4), one)


@pytest.mark.parametrize(
    "given",
    [torch.zeros(8, 8), torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 8, 8, dtype=torch.uint8), [[0.5]]],
)
def test_what_is_no_batch_of_images_is_refused(given):
    with pytest.raises(SoritesError, match="images as floats in 0..1"):
        Flip()(given)


def test_images_of_another_size_are_refused():
    with pytest.raises(SoritesError, match="images of 32x32 px, got 16x8"):
        Flip(32)(torch.zeros(1, 3, 8, 16))
    with pytest.raises(SoritesError, match="size .* got 0"):
        Flip(0)


@pytest.mark.parametrize("spec", [*SPECS, "none"])
@pytest.mark.parametrize(("values", "said"), [((0.0, 255.0), "from 0 to 255"), ((-2.0, 2.0), "from -2 to 2")])
def test_every_augmentation_refuses_values_that_are_not_in_0_to_1(spec, values, said):
    given = torch.tensor(values).repeat(1, 3, 24, 12)
    moves = augmentation(spec, 24)
    for batch in (given, given.contiguous(memory_format=torch.channels_last), given.half()):
        with pytest.raises(SoritesError, match=f"got values {said}"):
            moves(batch)
    assert torch.equal(moves.eval()(given), given)


def test_values_that_are_no_numbers_are_refused_and_rounding_is_not(images):
    with pytest.raises(SoritesError, match="got values from nan to nan"):
        OpticsAugment()(torch.full((1, 3, 24, 24), torch.nan))
    assert OpticsAugment()(images * 1.0002 - 0.0001).shape == images.shape


def test_a_chain_looks_at_the_values_of_a_batch_once(images, monkeypatch):
    looks = []
    monkeypatch.setattr(Augmentation, "_check_values", lambda self, batch: looks.append(type(self).__name__))
    Chain([Flip(), Chain([OpticsAugment(), Flip()])])(images)
    assert looks == ["Chain"]


def test_a_part_of_a_chain_still_refuses_another_size(images):
    with pytest.raises(SoritesError, match="images of 32x32 px, got 24x24"):
        Chain([Flip(), OpticsAugment(32)])(images)


def test_an_empty_batch_stays_empty():
    assert OpticsAugment()(torch.zeros(0, 3, 32, 32)).shape == (0, 3, 32, 32)


def test_the_base_makes_nothing_by_itself():
    with pytest.raises(TypeError, match="abstract"):
        Augmentation()


def test_flips_are_half_of_all(images):
    flip = Flip()
    flip.seed(0)
    many = images[:1].expand(4000, -1, -1, -1)
    flipped = (flip(many) == images[:1].flip(-1)).all(dim=(1, 2, 3)).sum().item()
    assert abs(flipped - 2000) < 4 * 1000**0.5
