"""Read released variants of a dataset: images that were corrupted, redrawn or collected by others.

    DIR/<corruption>/<severity>/<class>/<image>     ImageNet-C, ImageNet-C-bar, 3DCC, Tiny-ImageNet-C; a
                                                    folder of groups above corruptions is their family.
                                                    ImageNet-C-bar names its five folders by a parameter
                                                    (2.35, 3.20, ...): their order is the severity
    DIR/<corruption>.npy, DIR/labels.npy            CIFAR-10-C, CIFAR-100-C, CIFAR-10-C-bar: 8-bit images, one
                                                    fifth of the rows per severity
    DIR/<class>/<image>                             ImageNet-A, -R, -Sketch, -V2, ObjectNet: one named shift
    DIR/<name>/<class>/<image>                      several of these

A severity is the published level, 1 to 5. Corrupted images have the size of the model's input and count as
framed; images of named shifts are photographs of any size. Arrays are never unpickled.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from sorites.core import CLEAN, FileRef, Generated, ImageRef, ImageU8, Sample, Setting, add_source
from sorites.core.errors import BadImage, Notice, SoritesError, UnknownName, as_utf8
from sorites.core.labels import Labels, imagenet, imagenet_subset
from sorites.core.messages import option
from sorites.core.packed import packed
from sorites.core.specs import split_options
from sorites.io.decode import SUFFIXES
from sorites.io.paths import entries, is_dir, is_file, path_of, reason, subfolders
from sorites.io.readers import json_file, parse_integer
from sorites.io.resizing import frame
from sorites.sources.cifar import CLASSES

OPTIONS: Mapping[str, Sequence[str]] = dict.fromkeys(
    ("name", "clean", "resize", "crop", "jpeg", "trim", "classes", "folders", "real", "severities"), ()
)
SEVERITIES = 5
LABELS_FILE = "labels.npy"
# Subsets of ImageNet whose published accuracies mask the other classes.
MASKED = ("imagenet-a", "imagenet-r")
# Folders above those of corruptions, such as the groups of ImageNet-C (blur, digital, noise, weather).
MAX_GROUPS = 2
# The widest border that is cut off, in px.
MAX_TRIM = 64
# The number of an image of ImageNet's validation set, by which the ReaL labels are ordered.
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})")
_WNID = re.compile(r"n\d{8}")
# Names of folders of severities: a whole number, or a parameter with decimals (ImageNet-C-bar).
_PARAMETER = re.compile(r"\d{1,3}(\.\d+)?")


@dataclass
class Classes:
    """The label of each class folder, and the folders that are left out because they have none.

    Attributes:
        labels: The label space of the suite.
        mapping: Classes by folder name, if a file declares them.
        folders: The names in ``mapping`` of folders that are called otherwise, if a file has them.
        real: The ReaL labels of ImageNet's validation images in order, if a file has them.
        absent: The folders that were left out.
        known: The labels of each folder that was read.
    """

    labels: Labels
    mapping: Mapping[str, frozenset[int]] | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    real: Sequence[Sequence[int]] | None = None
    absent: dict[str, None] = field(default_factory=dict)
    known: dict[str, frozenset[int]] = field(default_factory=dict)

    def of(self, folder: str, where: Path) -> frozenset[int]:
        """Return the labels that count as correct for the images of a folder; empty to leave them out."""
        if folder not in self.known:
            self.known[folder] = self._found(folder, where)
            if not self.known[folder]:
                self.absent[folder] = None
        return self.known[folder]

    def _found(self, folder: str, where: Path) -> frozenset[int]:
        if self.mapping is not None:
            return self.mapping.get(self._mapped_name(folder), frozenset())
        # Numbers are those of ImageNet, also if the suite has a subset of its classes.
        position = parse_integer(folder)
        whole = imagenet()
        if position is not None and position < len(whole) and set(self.labels.ids) <= set(whole.ids):
            folder = whole.ids[position]
        found = self.labels.get(folder)
        if found is None and not (_WNID.fullmatch(folder) and folder in whole.ids):
            try:
                found = self.labels.find(folder)
            except UnknownName as error:
                raise SoritesError(
                    f"{where}: {error} For other names, pass ?classes=FILE with a JSON object of folders and"
                    " classes."
                ) from None
        return frozenset() if found is None else frozenset({found})

    def _mapped_name(self, folder: str) -> str:
        return self.folders.get(_plain(folder), _plain(folder))

    def without_folder(self) -> list[str]:
        """Return the names in ``mapping`` of which no folder was read."""
        read = {self._mapped_name(folder) for folder in self.known}
        return [name for name in self.mapping or () if name not in read]

    def sample(self, id_: str, image: ImageRef, accepted: frozenset[int], framed: bool) -> Sample:
        """Return a clean sample with its label, or with its ReaL labels."""
        number = _VALIDATION.search(id_) if self.real is not None else None
        if number is not None and self.real is not None:
            accepted = self._real(int(number[1]) - 1)
        label = min(accepted) if accepted else None
        return Sample(id_, image, label, accepted if len(accepted) > 1 else frozenset(), framed=framed)

    def _real(self, row: int) -> frozenset[int]:
        whole = imagenet().ids
        numbers = self.real[row] if self.real is not None and 0 <= row < len(self.real) else ()
        found = (self.labels.get(whole[number]) for number in numbers if 0 <= number < len(whole))
        return frozenset(label for label in found if label is not None)


def _plain(name: str) -> str:
    """Normalise a name: case, spaces and signs do not distinguish folders."""
    return re.sub(r"[\W_]+", " ", name.replace("'", "")).strip().lower()


@add_source
def variants(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read released variants as shifts: corruptions with severities, CIFAR-10-C arrays, or class folders.

    ``path`` is the folder, with options ``?key=value&key=value``. ``name`` names the shift of plain class
    folders (default: the name of the folder; ``clean`` for the original images). ``clean`` is the folder (for
    arrays, the .npy file) of the original images; ``resize``, ``crop`` and ``jpeg`` (a quality) are applied
    to these, in that order, where the variants were made and stored that way. ``severities`` keeps some, such
    as 1,3,5. ``trim`` cuts off a border of the images of class folders, in px. ``classes`` is a JSON file of
    folder names and classes, ``folders`` one of folders and their names in ``classes`` where these differ,
    and ``real`` that of the ReaL labels. Classes of ImageNet that the suite does not have are left out and
    counted.
    """
    place, given = split_options("variants", path, OPTIONS)
    root = path_of(place)
    if not is_dir(root):
        raise SoritesError(f"the variants source reads folders, but {root} is not one")
    classes = Classes(labels, _mapping(given, labels), _folders(given), _real_labels(given))
    levels = _levels(given)
    read = _stacks if is_file(root / LABELS_FILE) else _trees
    samples = packed(_counted(read(root, given, levels, classes), classes, root))
    if not samples:
        raise SoritesError(
            f"no images in {root}: expected corruption/severity/class/image, class/image, or .npy files with"
            f" {LABELS_FILE}"
        )
    return samples


def _counted(samples: Iterator[Sample], classes: Classes, root: Path) -> Iterator[Sample]:
    yield from samples
    _note_mask(classes, root)
    _note_names(classes, root)
    if classes.absent:
        first, count = next(iter(classes.absent)), len(classes.absent)
        text = (
            f"{root}: {count} class folders have none of the suite's classes and are left out, first {first}"
        )
        warnings.warn(Notice(text, code="classes_left_out", count=count), stacklevel=2)


def _note_names(classes: Classes, root: Path) -> None:
    """Tell that names in the file of classes have no folder: the folders may be called otherwise."""
    names = classes.without_folder()
    if names:
        text = (
            f"{root} has no folders for {len(names)} of the {len(classes.mapping or ())} names in the file of"
            f" classes, first {names[0]!r}. If they are called otherwise, pass ?folders=FILE with a JSON"
            " object of folders and names."
        )
        warnings.warn(Notice(text, code="names_without_folders", count=len(names)), stacklevel=2)


def _note_mask(classes: Classes, root: Path) -> None:
    """Tell that the folders are a published subset of ImageNet, if the suite has all of its classes."""
    whole = imagenet()
    if classes.labels.ids != whole.ids:
        return
    present = {label for found in classes.known.values() for label in found}
    for name in MASKED:
        subset = {whole.find(id_) for id_ in imagenet_subset(name).ids}
        if present == subset or (present <= subset and name in _plain(root.name).replace(" ", "-")):
            text = (
                f"the {len(present)} class folders of {root} are of {name}, whose published accuracies leave"
                f" out the other {len(whole) - len(subset)} classes of ImageNet: {option('labels', name)}"
            )
            warnings.warn(Notice(text, code="classes_not_masked", labels=name), stacklevel=2)
            return


# Options.


def _levels(given: Mapping[str, str]) -> frozenset[int] | None:
    if "severities" not in given:
        return None
    found = [parse_integer(text) for text in given["severities"].split(",")]
    if any(level is None or level < 1 for level in found):
        raise SoritesError(f"variants: expected severities such as 1,3,5, got {given['severities']!r}")
    return frozenset(level for level in found if level is not None)


def _mapping(given: Mapping[str, str], labels: Labels) -> dict[str, frozenset[int]] | None:
    """Return the labels by folder name of a JSON file; several classes are a list, or have semicolons."""
    if "classes" not in given:
        return None
    file = path_of(given["classes"])
    content = json_file(file, "a JSON object of folder names and classes")
    if not isinstance(content, dict):
        raise SoritesError(f"{file}: expected a JSON object of folder names and classes")
    mapping = {}
    for folder, named in content.items():
        names = named if isinstance(named, list) else str(named).split(";")
        found = (labels.get(str(name), str(name).partition(",")[0]) for name in names)
        mapping[_plain(folder)] = frozenset(label for label in found if label is not None)
    if not any(mapping.values()):
        raise SoritesError(f"{file}: none of its classes is among the labels")
    return mapping


def _folders(given: Mapping[str, str]) -> dict[str, str]:
    """Return the names in the file of classes by folder name."""
    if "folders" not in given:
        return {}
    file, expected = (
        path_of(given["folders"]),
        "a JSON object of folders and their names in the file of classes",
    )
    if "classes" not in given:
        raise SoritesError(f"variants: folders={file} names the folders of ?classes=FILE; pass that, too")
    content = json_file(file, expected)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content.values()):
        raise SoritesError(f"{file}: expected {expected}")
    return {_plain(folder): _plain(name) for folder, name in content.items()}


def _real_labels(given: Mapping[str, str]) -> list[list[int]] | None:
    if "real" not in given:
        return None
    file = path_of(given["real"])
    content = json_file(file, "ReaL labels: a list of class numbers per validation image")
    rows: list[Any] = content if isinstance(content, list) else [None]
    if not all(isinstance(row, list) and all(isinstance(i, int) for i in row) for row in rows):
        raise SoritesError(f"{file}: expected a list of class numbers for each validation image")
    return rows


def _number(given: Mapping[str, str], key: str, low: int, high: int) -> int | None:
    value = parse_integer(given[key]) if key in given else None
    if key in given and (value is None or not low <= value <= high):
        raise SoritesError(f"variants: {key} is a whole number from {low} to {high}, got {given[key]!r}")
    return value


@dataclass(frozen=True)
class Step:
    """What is done to clean images so that they have been stored as the variants: resize, crop, JPEG."""

    resize: int | None = None
    crop: int | None = None
    jpeg: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Step:
        """Return the step of the options."""
        return cls(
            _number(given, "resize", 1, 4096), _number(given, "crop", 1, 4096), _number(given, "jpeg", 1, 100)
        )

    def ref(self, image: ImageRef) -> ImageRef:
        """Return the reference of a clean image after this step."""
        if self == Step():
            return image
        return Generated(_stored, (image, self.resize, self.crop, self.jpeg), 1)


def _stored(image: ImageRef, resize: int | None, crop: int | None, jpeg: int | None) -> ImageU8:
    pixels = image.load()
    if resize is not None or crop is not None:
        pixels = frame(pixels, resize or min(pixels.shape[:2]), crop, "bilinear")
    if jpeg is None:
        return pixels
    buffer = io.BytesIO()
    Pillow.fromarray(pixels).save(buffer, "JPEG", quality=jpeg)
    return np.asarray(Pillow.open(buffer).convert("RGB"))


# Folders of images.


def _trees(
    root: Path, given: Mapping[str, str], levels: frozenset[int] | None, classes: Classes
) -> Iterator[Sample]:
    corruptions = list(_corruptions(root))
    if corruptions:
        _refuse_trim(given)
        yield from _clean_folder(given, classes, framed=True)
        for folder, family in corruptions:
            yield from _corrupted(folder, family, levels, classes)
        return
    yield from _clean_folder(given, classes, framed=False)
    plain = _has_images(root)
    for folder in [root] if plain else subfolders(root):
        name = given.get("name", folder.name) if plain else folder.name
        yield from _named(folder, as_utf8(name), classes, _number(given, "trim", 1, MAX_TRIM))


def _corruptions(folder: Path, depth: int = 0) -> Iterator[tuple[Path, str]]:
    """Yield the folders of corruptions and their family: their folders are numbers with classes in them."""
    below = subfolders(folder)
    numbered = [path for path in below if _PARAMETER.fullmatch(path.name)]
    if numbered and len(numbered) == len(below) and any(map(_has_images, numbered)):
        yield folder, folder.parent.name if depth > 1 else ""
    elif depth < MAX_GROUPS:
        for path in below:
            yield from _corruptions(path, depth + 1)


def _by_level(folder: Path) -> list[tuple[int, Path]]:
    """Return the folders of a corruption with their severity: a number, or the rank of a parameter."""
    paths = sorted(subfolders(folder), key=lambda path: float(path.name))
    numbers = [parse_integer(path.name) for path in paths]
    if None not in numbers:
        return [(number or 0, path) for number, path in zip(numbers, paths, strict=True)]
    if len(paths) != SEVERITIES:
        raise SoritesError(
            f"{folder}: its folders are named by a parameter ({paths[0].name}), so their order is the"
            f" severity; expected all {SEVERITIES}, got {len(paths)}"
        )
    return list(enumerate(paths, 1))


def _has_images(folder: Path) -> bool:
    """Return whether the folder contains class folders with images."""
    return any(_is_image(entry.name) for path in subfolders(folder)[:3] for entry in entries(path))


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _images(folder: Path, classes: Classes) -> Iterator[tuple[str, Path, frozenset[int]]]:
    """Yield id (class/stem), file and labels of each image in class folders."""
    for path in subfolders(folder):
        accepted = classes.of(as_utf8(path.name), path)
        for entry in entries(path) if accepted else ():
            if _is_image(entry.name):
                yield as_utf8(f"{path.name}/{Path(entry.name).stem}"), Path(entry.path), accepted


def _corrupted(
    folder: Path, family: str, levels: frozenset[int] | None, classes: Classes
) -> Iterator[Sample]:
    for level, path in _by_level(folder):
        if level < 1 or (levels is not None and level not in levels):
            continue
        setting = Setting(float(level), level=level)
        for id_, file, accepted in _images(path, classes):
            clean = classes.sample(id_, FileRef(str(file)), accepted, framed=True)
            yield replace(clean, shift=as_utf8(folder.name), setting=setting, family=family)


def _named(folder: Path, name: str, classes: Classes, trim: int | None) -> Iterator[Sample]:
    for id_, file, accepted in _images(folder, classes):
        image: ImageRef = FileRef(str(file))
        if trim is not None:
            image = Generated(_trimmed, (image, trim), 1)
        sample = classes.sample(id_, image, accepted, framed=False)
        yield (
            sample if name == CLEAN else replace(sample, shift=name, setting=Setting(None, {"variant": name}))
        )


def _trimmed(image: ImageRef, by: int) -> ImageU8:
    pixels = image.load()
    if min(pixels.shape[:2]) <= 2 * by:
        raise BadImage(f"an image of {pixels.shape[1]} x {pixels.shape[0]} px has no border of {by} px")
    return np.ascontiguousarray(pixels[by:-by, by:-by])


def _refuse_trim(given: Mapping[str, str]) -> None:
    if "trim" in given:
        raise SoritesError(
            "variants: trim is for class folders (ObjectNet), not for corruptions; leave it out"
        )


def _clean_folder(given: Mapping[str, str], classes: Classes, framed: bool) -> Iterator[Sample]:
    step = Step.of(given)
    if "clean" not in given:
        _refuse_step(step)
        return
    folder = path_of(given["clean"])
    if not is_dir(folder):
        raise SoritesError(f"variants: clean is a folder of class folders, but {folder} is not one")
    for id_, file, accepted in _images(folder, classes):
        yield classes.sample(id_, step.ref(FileRef(str(file))), accepted, framed and step.crop is not None)


def _refuse_step(step: Step) -> None:
    if step != Step():
        raise SoritesError(
            "variants: resize, crop and jpeg are applied to the clean images;"
            f" name them: {option('source', 'variants:DIR?clean=DIR&jpeg=85')}"
        )


# Arrays of CIFAR-10-C.


def _stacks(
    root: Path, given: Mapping[str, str], levels: frozenset[int] | None, classes: Classes
) -> Iterator[Sample]:
    _refuse_trim(given)
    numbers = _array(root / LABELS_FILE)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) % SEVERITIES:
        raise SoritesError(
            f"{root / LABELS_FILE}: expected one class number per image and severity, got {numbers.shape}"
        )
    label_of = _cifar_labels(root / LABELS_FILE, numbers, classes.labels)
    count, labels = len(numbers) // SEVERITIES, [label_of[number] for number in numbers.tolist()]
    step = Step.of(given)
    if "clean" in given:
        refs = _rows(path_of(given["clean"]), count)
        for row, ref in enumerate(refs):
            yield Sample(f"{row:05d}", step.ref(ref), labels[row], framed=True)
    else:
        _refuse_step(step)
    for entry in entries(root):
        file = Path(entry.path)
        if file.suffix == ".npy" and file.name != LABELS_FILE:
            for place, ref in enumerate(_rows(file, len(numbers))):
                level, row = place // count + 1, place % count
                if levels is None or level in levels:
                    setting = Setting(float(level), level=level)
                    yield Sample(
                        f"{row:05d}",
                        ref,
                        labels[place],
                        shift=as_utf8(file.stem),
                        setting=setting,
                        framed=True,
                    )


def _cifar_labels(file: Path, numbers: np.ndarray[Any, Any], labels: Labels) -> dict[int, int | None]:
    """Return the label of each class number: by its name for CIFAR-10 if the suite has it, else by position.

    Raises:
        SoritesError: The suite's classes are ImageNet's, whose positions mean other classes.
    """
    count = int(numbers.max()) + 1
    names = CLASSES if count == len(CLASSES) else ()
    found = {}
    for number in sorted(set(numbers.tolist())):
        label = labels.get(names[number]) if names else None
        if label is None and set(labels.ids) <= set(imagenet().ids):
            raise SoritesError(
                f"{file} has the numbers of {count} classes, and the suite's classes are ImageNet's. List the"
                f" names of the {count} classes in a text file, one per line: {option('labels', 'FILE')}"
            )
        found[number] = label if label is not None else number if number < len(labels) else None
    return found


def _array(file: Path) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SoritesError(f"cannot read {file} as an array of numbers: {reason(error)}") from error
    return array


def _rows(file: Path, count: int) -> Iterator[ImageRef]:
    """Yield the images of an array of ``count`` images as parts of its file."""
    array = _array(file)
    if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8 or not array.flags.c_contiguous:
        raise SoritesError(f"{file}: expected 8-bit images N x H x W x 3, got {array.dtype} {array.shape}")
    if len(array) < count:
        raise SoritesError(f"{file}: expected {count} images, got {len(array)}")
    height, width = array.shape[1:3]
    size, start = height * width * 3, file.stat().st_size - array.nbytes
    for row in range(count):
        name = f"{as_utf8(file.name)}/{row}"
        yield Generated(_pixels, (FileRef(str(file), start + row * size, size, name), height, width), 1)


def _pixels(ref: FileRef, height: int, width: int) -> ImageU8:
    data = np.frombuffer(ref.read(), np.uint8)
    if len(data) != height * width * 3:
        raise BadImage(f"{ref.name}: expected {height * width * 3} bytes, got {len(data)}")
    return data.reshape(height, width, 3)
