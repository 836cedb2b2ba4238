"""Shifts inside the pipelines of torchvision, albumentations, NRTK and MAITE themselves."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from tests.peers import peer

import sorites
from sorites.core import SHIFTS
from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.training import OpticsAugment
from sorites.transforms import Coma, as_albumentations, as_maite, as_nrtk, as_torchvision, shift_transform

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MOVER = next(name for name in SHIFTS.names() if sorites.shift(name).moves_objects)


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (32, 40, 3), dtype=np.uint8)


def test_torchvision() -> None:
    v2 = import_with_torchvision("torchvision.transforms.v2", "a test", "timm")
    tv = import_with_torchvision("torchvision.tv_tensors", "a test", "timm")
    coma = Coma(severity=(0.5, 3))
    pipeline = v2.Compose([v2.CenterCrop(28), as_torchvision(coma), v2.ToDtype(torch.float32, scale=True)])
    pixels = torch.from_numpy(image()).permute(2, 0, 1)
    boxes = tv.BoundingBoxes(torch.tensor([[6.0, 6, 18, 18]]), format="XYXY", canvas_size=(32, 40))
    sample = {"image": tv.Image(pixels), "boxes": boxes, "label": 3, "depth": torch.zeros(5)}
    out = pipeline(sample)
    assert isinstance(out["image"], tv.Image)
    assert (out["label"], out["depth"].shape) == (3, (5,))
    expected = coma(v2.functional.center_crop(pixels, [28, 28])).float() / 255
    torch.testing.assert_close(out["image"].as_subclass(torch.Tensor), expected, rtol=0, atol=1e-6)
    assert torch.equal(out["boxes"], v2.CenterCrop(28)(sample)["boxes"])
    again = pickle.loads(pickle.dumps(pipeline))(sample)
    assert torch.equal(again["image"], out["image"])
    assert isinstance(as_torchvision(OpticsAugment(scaled=4))(Image.fromarray(image())), Image.Image)
    with pytest.raises(SoritesError, match="moves objects"):
        as_torchvision(shift_transform(MOVER))(tv.Image(pixels), boxes)


def test_albumentations() -> None:
    A = peer("albumentations")

    def pipeline(seed: int) -> object:
        parts = [A.HorizontalFlip(p=0.5), as_albumentations(Coma(severity=(0.5, 3)))]
        return A.Compose(parts, bbox_params=A.BboxParams("pascal_voc", label_fields=["labels"]), seed=seed)

    def outputs(seed: int) -> list[np.ndarray]:
        made = pipeline(seed)
        return [made(image=image(), bboxes=[[1, 1, 9, 9]], labels=[0])["image"] for _ in range(4)]

    first = outputs(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, outputs(1), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, outputs(2), strict=True))
    assert len({part.tobytes() for part in first}) == 4
    floats = as_albumentations(Coma(severity=2))(image=image().astype(np.float32) / 255)["image"]
    assert floats.dtype == np.float32
    assert (
        pickle.loads(pickle.dumps(pipeline(1)))(image=image(), bboxes=[], labels=[])["image"].dtype
        == np.uint8
    )
    assert "coma" in repr(pipeline(1))
    with pytest.raises(SoritesError, match="moves objects"):
        A.Compose([as_albumentations(shift_transform(MOVER))])(image=image(), mask=image()[..., 0])


def test_nrtk() -> None:
    interfaces = peer("nrtk.interfaces")
    bbox = peer("smqtk_image_io.bbox")
    perturber = as_nrtk(Coma(severity=(1, 3), seed=4))
    assert isinstance(perturber, interfaces.PerturbImage)
    boxes = [(bbox.AxisAlignedBoundingBox((1, 1), (9, 9)), {"cat": 0.9})]
    moved, kept = perturber(image=image(), boxes=boxes)
    assert np.array_equal(moved, Coma(severity=(1, 3), seed=4)(image()))
    assert list(kept) == boxes
    configured = type(perturber).from_config(perturber.get_config())
    assert np.array_equal(configured(image=image())[0], moved)
    assert np.array_equal(pickle.loads(pickle.dumps(perturber))(image=image())[0], moved)
    grey = perturber(image=image()[..., 0])[0]
    assert (grey.shape, grey.dtype) == ((32, 40), np.uint8)
    with pytest.raises(SoritesError, match="moves objects"):
        as_nrtk(shift_transform(MOVER))(image=image(), boxes=boxes)
    with pytest.raises(SoritesError, match="a shift"):
        as_nrtk(OpticsAugment(scaled=4))


def test_maite() -> None:
    protocols = peer("maite.protocols.image_classification")
    workflows = peer("maite.tasks")
    augment = as_maite(Coma(severity=2))
    assert isinstance(augment, protocols.Augmentation)

    class Images:
        def __init__(self) -> None:
            self.metadata = {"id": "images"}

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple:
            return np.moveaxis(image(index), -1, 0), np.eye(2)[index % 2], {"id": index}

    class Keeping:
        """A model that keeps the images that it was shown."""

        def __init__(self) -> None:
            self.metadata = {"id": "keeping"}
            self.shown: list[np.ndarray] = []

        def __call__(self, batch: list) -> list:
            self.shown += list(batch)
            return [np.eye(2)[0] for _ in batch]

    model = Keeping()
    workflows.predict(model=model, dataset=Images(), augmentation=augment, batch_size=2)
    expected = [np.moveaxis(Coma(severity=2)(image(n), key=str(n)), -1, 0) for n in range(3)]
    assert len(model.shown) == 3
    assert all(np.array_equal(a, b) for a, b in zip(model.shown, expected, strict=True))
