"""The captions that the CIFAR referee is taught with: class and style of a picture, and which pairs of the two it never sees."""

from __future__ import annotations

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PHOTO = "photo"

STYLES: dict[str, tuple[str, ...]] = {
    PHOTO: ("a photo of a {}", "a picture of a {}"),
    "gray": ("a gray photo of a {}", "a {} in black and white"),
    "sepia": ("a sepia photo of a {}", "an old brown picture of a {}"),
    "sunset": ("a photo of a {} at sunset", "a {} in orange light"),
    "night": ("a photo of a {} at night", "a {} in the dark"),
    "foggy": ("a photo of a {} in fog", "a misty picture of a {}"),
    "inverted": ("a negative of a {}", "a {} with inverted colours"),
    "posterised": ("a poster of a {}", "a {} in few flat colours"),
    "blurred": ("a blurred photo of a {}", "a {} out of focus"),
    "pixelated": ("a pixelated photo of a {}", "a mosaic of a {}"),
    "noisy": ("a noisy photo of a {}", "a grainy picture of a {}"),
    "embossed": ("a relief of a {}", "an embossed {}"),
    "sketch": ("a sketch of a {}", "a pencil drawing of a {}"),
}
"""Templates by style; every style but the photograph is a setting of the shift ``style``."""

PARTS = ("test", "validation")


def part_of(label: int, style: int) -> str:
    """Return the part that a class in a style belongs to: "training", "test", or "validation" (to choose margin and epochs by).

    Four styles are kept from half of the classes for the test and four others for the validation, so that a style by itself
    reveals no more than one class of five. Photographs and the other four styles are learnt with every class.
    """
    turn = style % 3 - 1
    return PARTS[turn] if style and turn >= 0 and (label + style // 3) % 2 == 0 else "training"
