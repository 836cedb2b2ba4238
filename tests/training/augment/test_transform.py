"""One image at a time, whatever worker of a data loader asks."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.training import AugMix, ImageTransform, OpticsAugment
from sorites.training.augment import Flip, NoAugment


def image(seed=0):
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)


class Images(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, place):
        return self.transform(image(place))


KINDS = {
    "array": lambda p: p,
    "float array": lambda p: p.astype(np.float64) / 255,
    "pillow": Image.fromarray,
    "tensor": lambda p: torch.from_numpy(p).permute(2, 0, 1),
    "floats": lambda p: torch.from_numpy(p).permute(2, 0, 1).float() / 255,
}


def as_bytes(obj):
    if isinstance(obj, torch.Tensor):
        obj = obj.permute(1, 2, 0).numpy()
        return obj if obj.dtype == np.uint8 else np.floor(obj * 255 + 0.5).astype(np.uint8)
    array = np.asarray(obj)
    return array if array.dtype == np.uint8 else np.floor(array * 255 + 0.5).astype(np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_image_comes_back_as_what_it_was(kind):
    given = KINDS[kind](image())
    same = ImageTransform(NoAugment())(given)
    assert type(same) is type(given)
    assert getattr(same, "dtype", None) == getattr(given, "dtype", None)
    assert np.array_equal(as_bytes(same), image())
    moved = ImageTransform(OpticsAugment(scaled=4))(given, key="k")
    assert np.array_equal(as_bytes(moved), ImageTransform(OpticsAugment(scaled=4))(image(), key="k"))
    assert not np.array_equal(as_bytes(moved), image())


@pytest.mark.parametrize("moves", [OpticsAugment(scaled=4), AugMix()], ids=["optics", "augmix"])
def test_workers_and_where_a_loader_goes_on_change_nothing(moves):
    alone = torch.cat(list(DataLoader(Images(ImageTransform(moves)), batch_size=4)))
    beside = torch.cat(list(DataLoader(Images(ImageTransform(moves)), batch_size=5, num_workers=2)))
    rest = torch.cat(list(DataLoader(Subset(Images(ImageTransform(moves)), range(7, 12)), batch_size=2)))
    assert torch.equal(alone, beside)
    assert torch.equal(alone[7:], rest)
    assert len(torch.unique((alone.double().mean((1, 2, 3)) * 1e6).long())) == 12


def test_epochs_draw_anew_and_running_workers_see_them():
    transform = ImageTransform(OpticsAugment(scaled=4))
    loader = DataLoader(Images(transform), batch_size=4, num_workers=2, persistent_workers=True)
    epochs = []
    for epoch in (0, 1, 0):
        transform.set_epoch(epoch)
        epochs.append(torch.cat(list(loader)))
    assert torch.equal(epochs[0], epochs[2])
    assert not torch.equal(epochs[0], epochs[1])


def test_a_seed_decides_and_pickling_keeps_it():
    first = ImageTransform(AugMix(), seed=1)
    first.set_epoch(3)
    again = pickle.loads(pickle.dumps(first))
    assert np.array_equal(first(image()), again(image()))
    assert not np.array_equal(first(image()), ImageTransform(AugMix(), seed=2)(image()))


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((8, 8, 2), np.uint8),
        np.zeros((8, 8, 3), np.int32),
        torch.zeros(8, 8, 3),
        "x.png",
        Image.new("CMYK", (8, 8)),
        Image.new("P", (8, 8)),
    ],
)
def test_what_is_no_image_is_refused(given):
    with pytest.raises(SoritesError, match="RGBA image"):
        ImageTransform(Flip())(given)


def test_what_is_no_augmentation_is_refused():
    with pytest.raises(SoritesError, match="OpticsAugment.*got Identity"):
        ImageTransform(torch.nn.Identity())


OPTICS = ImageTransform(OpticsAugment(scaled=4))
GREY = image()[..., 0]


@pytest.mark.parametrize(
    "given",
    [GREY, GREY[..., None], Image.fromarray(GREY), torch.from_numpy(GREY)[None], torch.rand(1, 32, 32)],
)
def test_a_grey_image_stays_grey(given):
    moved = OPTICS(given, key="k")
    assert type(moved) is type(given)
    assert np.shape(moved) == np.shape(given)
    assert not isinstance(moved, Image.Image) or moved.mode == "L"
    assert not np.array_equal(np.asarray(moved), np.asarray(given))


def test_grey_is_the_luma_of_the_augmented_colours():
    grey = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))
    colours = OPTICS(grey.expand(3, -1, -1), key="k")
    wanted = 0.299 * colours[0] + 0.587 * colours[1] + 0.114 * colours[2]
    torch.testing.assert_close(OPTICS(grey, key="k")[0], wanted)


def test_alpha_is_kept():
    alpha = np.random.default_rng(3).integers(0, 256, (32, 32, 1), dtype=np.uint8)
    given = np.concatenate([image(), alpha], -1)
    moved = OPTICS(given, key="k")
    assert np.array_equal(moved[..., 3], alpha[..., 0])
    assert np.array_equal(moved[..., :3], OPTICS(image(), key="k"))
    assert OPTICS(Image.fromarray(given), key="k").mode == "RGBA"


def test_targets_come_back_behind_the_image():
    given, boxes = KINDS["tensor"](image()), {"boxes": torch.tensor([[1.0, 2.0, 3.0, 4.0]])}
    moved, target, label = OPTICS(given, boxes, 7)
    assert target is boxes
    assert label == 7
    assert torch.equal(moved, OPTICS(given))
    pair = OPTICS((given, boxes))
    assert torch.equal(pair[0], moved)
    assert pair[1] is boxes


class BoundingBoxes(torch.Tensor):
    """Boxes named as torchvision's."""


@pytest.mark.parametrize(
    "target",
    [
        {"boxes": torch.zeros(1, 4), "labels": torch.tensor([1])},
        ({"image_id": 3, "masks": torch.zeros(1, 32, 32)}, 7),
        torch.zeros(1, 4).as_subclass(BoundingBoxes),
    ],
)
@pytest.mark.parametrize("moves", [Flip(), AugMix()])
def test_boxes_that_would_be_wrong_are_refused(moves, target):
    with pytest.raises(SoritesError, match="moves objects"):
        ImageTransform(moves)(image(), target)
    moved, same = ImageTransform(AugMix(geometric=False))(image(), target)
    assert same is target
    assert moved.shape == (32, 32, 3)


def test_labels_pass_where_objects_move():
    assert ImageTransform(Flip())(image(), {"labels": [3], "name": "a"}, 7)[1:] == (
        {"labels": [3], "name": "a"},
        7,
    )


class TaggedImage(torch.Tensor):
    """A subclass of tensors, as torchvision's ``tv_tensors.Image`` is."""


@pytest.mark.parametrize("kind", ["tensor", "floats"])
def test_a_subclass_of_tensors_is_kept(kind):
    plain = KINDS[kind](image())
    moved, boxes = OPTICS(plain.as_subclass(TaggedImage), [[1, 2, 11, 12]])
    assert type(moved) is TaggedImage
    assert boxes == [[1, 2, 11, 12]]
    assert torch.equal(moved.as_subclass(torch.Tensor), OPTICS(plain))


def test_a_pipeline_of_torchvision_keeps_its_boxes_and_tensors():
    tv_tensors = import_with_torchvision("torchvision.tv_tensors", "a test", "timm")
    v2 = import_with_torchvision("torchvision.transforms.v2", "a test", "timm")
    given = tv_tensors.Image(KINDS["tensor"](image()))
    boxes = tv_tensors.BoundingBoxes([[1, 2, 11, 12]], format="XYXY", canvas_size=(32, 32))
    pipeline = v2.Compose([v2.RandomHorizontalFlip(1.0), OPTICS, v2.ToDtype(torch.float32, scale=True)])
    moved, target = pipeline(given, {"boxes": boxes, "labels": torch.tensor([3])})
    assert type(moved) is tv_tensors.Image
    assert type(target["boxes"]) is tv_tensors.BoundingBoxes
    assert target["boxes"].tolist() == [[21, 2, 31, 12]]
    assert target["labels"].tolist() == [3]


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 3, 32, 32)])
def test_an_augmentation_keeps_a_subclass_of_tensors(shape):
    plain, moves = torch.rand(shape), OpticsAugment(scaled=4)
    moves.seed(1)
    moved = moves(plain.as_subclass(TaggedImage))
    assert type(moved) is TaggedImage
    moves.seed(1)
    assert torch.equal(moved.as_subclass(torch.Tensor), moves(plain))
    assert type(moves.eval()(plain.as_subclass(TaggedImage))) is TaggedImage


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (torch.zeros(3, 32, 40, dtype=torch.uint8), r"uint8 of shape \(3, 32, 40\)"),
        (torch.zeros(1, 32, 40), r"\(1, 32, 40\)"),
        (torch.zeros(32, 40), r"\(32, 40\)"),
        (np.zeros((32, 40, 3), np.uint8), "ndarray"),
    ],
)
def test_a_refusal_has_the_shape_that_was_given_and_what_takes_it(given, named):
    with pytest.raises(SoritesError, match=named + r".*ImageTransform\(OpticsAugment"):
        OpticsAugment(scaled=4)(given)


def test_targets_batches_and_nested_samples_are_refused_with_what_takes_them():
    with pytest.raises(SoritesError, match="as_torchvision"):
        OpticsAugment(scaled=4)(torch.zeros(3, 32, 32), {"boxes": []})
    with pytest.raises(SoritesError, match="as_torchvision"):
        OPTICS({"image": image()})
    with pytest.raises(SoritesError, match="batch"):
        OPTICS(torch.zeros(2, 3, 32, 32))


def test_a_single_tensor_is_a_batch_of_one():
    one = torch.rand(3, 32, 32)
    moves = OpticsAugment(scaled=4)
    moves.seed(1)
    alone = moves(one)
    moves.seed(1)
    assert torch.equal(alone, moves(one[None])[0])
