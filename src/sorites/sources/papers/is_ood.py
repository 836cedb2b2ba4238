"""Read IS-OOD (Long et al., NeurIPS 2024): the published image lists, for images that the user has.

``is_ood:ROOT`` expects these folders, as below ``data`` in the published repository::

    ROOT/imglist/imagenet1k/test_imagenet.txt            ID images: 45,000 ImageNet validation images
    ROOT/imglist/imagenet21k/{train,val}/cov_C_sem_S.txt ImageNet-21K-P images by covariate and semantic
                                                         level, 0 to 7
    ROOT/imglist/SynIS/cov_C_sem_S.txt                   generated images by level
    ROOT/imagenet1k  ROOT/imagenet21k  ROOT/SynIS        the images, at the paths in the lists

Levels are counted from 1 here, as in the paper. The lists contain no labels, and ID images need none;
class folders (``val/n01440764/NAME``) or ``LOC_val_solution.csv`` beside ``val`` add labels, so that
accuracy is available too. The graded images have the shifts ``imagenet21k`` and ``syn_is``, so that
images of a known class are not counted as in-distribution.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from sorites.core import Attr, FileRef, Sample, Setting, add_source
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.rng import hashed_order
from sorites.core.specs import split_path
from sorites.io.paths import entries, is_dir, is_file, is_relative_inside, path_of, subfolders
from sorites.io.readers import lines, parse_integer
from sorites.io.tables import csv
from sorites.sources.written import STYLED


# The prompts of Syn-IS: 51 Stable Diffusion XL styles (IS-OOD, appendix D), combined with labels.
@functools.cache
def styles() -> tuple[str, ...]:
    """Return the style names in the order of the paper."""
    return tuple(files("sorites.sources").joinpath("syn_is.tsv").read_text(encoding="utf-8").splitlines()[1:])


def prompts(labels: Sequence[str], of: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield (label, style, prompt) for all combinations of labels and styles; default: all styles."""
    for label in labels:
        for style in of or styles():
            yield label, style, f"{style} style {label}"


LEVELS = 8
CELL = re.compile(r"cov_([0-7])_sem_([0-7])\.txt")
# The list folders of each shift; the first part of their path is also the folder of the images.
SETS = {"imagenet21k": ("imagenet21k/train", "imagenet21k/val"), "syn_is": ("SynIS",)}
WNID = re.compile(r"n\d{8}")
IN_DISTRIBUTION = "imagenet1k/test_imagenet.txt"
SOLUTION = ("ImageId", "PredictionString")


@dataclass(frozen=True)
class Request:
    """The parsed source path: the root, the sets to read, the number of images per list, and whether to skip
    missing images (``present``).
    """

    root: Path
    sets: tuple[str, ...]
    each: int | None
    present: bool

    @functools.cached_property
    def above(self) -> int:
        """The number of characters of a path that belong to the root."""
        return len(str(self.root / "x")) - 1

    def below(self, path: str) -> str:
        """Return a path relative to the root, which is the id of a sample."""
        return path[self.above :] if os.sep == "/" else path[self.above :].replace(os.sep, "/")

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """The digests of the images by id; empty if Sorites did not draw them."""
        return STYLED.digests(self.root)

    def digest(self, path: str) -> str:
        """Return the digest of an image; empty if it is unknown."""
        return self.digests.get(self.below(path), "") if self.digests else ""


# The path of a listed image, and its sample. Paths are strings, because creating millions of ``Path``
# objects takes minutes.
Listed = tuple[str, Sample]


def _join(folder: str, line: str) -> str:
    """Return ``str(Path(folder) / line)``, with a fast path for normalised lines."""
    plain = os.sep == "/" and "//" not in line and "/." not in line and line[0] != "." and line[-1] != "/"
    return f"{folder}/{line}" if plain else str(Path(folder) / line)


@add_source
def is_ood(path: str | None, labels: Labels) -> list[Sample]:
    """Read the lists of IS-OOD for your images: is_ood:ROOT[,imagenet21k][,syn_is][,each=N][,present].

    ``imagenet21k`` or ``syn_is`` reads only that set. Missing files are an error that lists them, unless
    ``present`` skips them. ``each=N`` takes N images per list in a deterministic random order, because
    ImageNet-21K-P has 11.6 million images; there is one list per combination of levels.
    """
    request = _parse(path)
    lists = request.root / "imglist"
    label_of = {name: index for index, name in reversed([*enumerate(labels.ids)])}
    images = [*_in_distribution(request, lists, label_of)]
    for name in request.sets:
        cells = sorted((part, cell) for part in SETS[name] for cell in _cells(lists / part))
        for part, cell in cells:
            image_folder = request.root / part.split("/")[0]
            images += _graded(name, request, image_folder, cell, label_of)
    return _existing(images, request)


def _parse(path: str | None) -> Request:
    root, rest = split_path(path or "", ",")
    words = rest.split(",") if rest else []
    if not root:
        raise SoritesError(
            "the is_ood source needs the folder with imglist and the images. Pass"
            f" {option('source', 'is_ood:ROOT')}"
        )
    where = path_of(root)
    where = where / "data" if is_dir(where / "data" / "imglist") else where
    if not is_dir(where / "imglist"):
        raise SoritesError(f"expected a folder {where / 'imglist'} with the published lists of IS-OOD")
    each, sets = None, tuple(word for word in words if word in SETS)
    for word in words:
        if word.startswith("each=") and (number := parse_integer(word.removeprefix("each="))):
            each = number
        elif word not in (*SETS, "present"):
            raise SoritesError(
                f"is_ood: expected {', '.join(SETS)}, each=N or present after the folder, got {word[:80]!r}"
            )
    chosen = sets or tuple(
        name for name, folders in SETS.items() if any(is_dir(where / "imglist" / part) for part in folders)
    )
    return Request(where, chosen, each, "present" in words)


def _cells(folder: Path) -> list[Path]:
    if not is_dir(folder):
        return []
    return [Path(entry.path) for entry in entries(folder) if CELL.fullmatch(entry.name)]


def _lines(file: Path, each: int | None) -> list[str]:
    """Return the paths of a list without leading ``./``; with ``each``, a deterministic random subset."""
    STYLED.verify(file)
    paths = []
    for number, text in enumerate(lines(file, "a list of images, one path per line"), start=1):
        if line := text.strip().removeprefix("./"):
            if not is_relative_inside(line):
                raise SoritesError(
                    f"{file}, line {number}: expected a path below the folder of the images, got {line!r}"
                )
            paths.append(line)
    return paths if each is None else hashed_order(paths, lambda line: [line])[:each]


def _graded(
    name: str, request: Request, images: Path, cell: Path, label_of: Mapping[str, int]
) -> Iterator[Listed]:
    """Yield the images of one list; shared objects are created once, because lists are long."""
    covariate, semantic = (int(level) + 1 for level in CELL.fullmatch(cell.name).groups())  # type: ignore[union-attr]
    levels = Attr("sem_level", str(semantic)), Attr("cov_level", str(covariate))
    setting = Setting(None, {"cov_level": covariate, "sem_level": semantic})
    folder, part, generated = str(images), cell.parent.name, name == "syn_is"
    for line in _lines(cell, request.each):
        wnid, path = WNID.search(line), _join(folder, line)
        label = label_of.get(wnid[0]) if wnid else None
        split = "unknown" if label is None else part
        attrs = (*levels, *_generated(line)) if generated else levels
        image = FileRef(path, digest=request.digest(path))
        yield (
            path,
            Sample(request.below(path), image, label, attrs=attrs, split=split, shift=name, setting=setting),
        )


def _generated(line: str) -> tuple[Attr, ...]:
    """Return the word and style of a Syn-IS image, encoded as numbers in its file name."""
    parts = Path(line).stem.split("_")
    return (Attr("word", parts[1]), Attr("style", parts[2])) if len(parts) == 3 else ()


def _in_distribution(request: Request, lists: Path, label_of: Mapping[str, int]) -> Iterator[Listed]:
    images = request.root / "imagenet1k"
    solution, folders = _solution(images), _class_folders(images / "val")
    for line in _lines(lists / IN_DISTRIBUTION, request.each):
        name = Path(line).stem
        where = folders.get(Path(line).name)
        path = _join(str(images), line) if where is None else str(images / "val" / where / Path(line).name)
        label = label_of.get(where or solution.get(name, ""))
        yield (
            path,
            Sample(request.below(path), FileRef(path, digest=request.digest(path)), label, split="test"),
        )


def _solution(images: Path) -> dict[str, str]:
    """Map each image to its WordNet id, from the table of ImageNet's validation set."""
    path = images / "LOC_val_solution.csv"
    if not is_file(path):
        return {}
    frame = csv(path, f"a table with the columns {' and '.join(SOLUTION)}")
    if missing := [name for name in SOLUTION if name not in frame.columns]:
        raise SoritesError(f"{path}: expected the columns {' and '.join(SOLUTION)}; missing: {missing[0]}")
    return {
        image: words.split()[0]
        for image, words in frame.select(SOLUTION).iter_rows()
        if image and words and words.split()
    }


def _class_folders(val: Path) -> dict[str, str]:
    """Map each image to its class folder."""
    if not is_dir(val):
        return {}
    wnids = [folder.name for folder in subfolders(val) if re.fullmatch(r"n\d{8}", folder.name)]
    return {name: wnid for wnid in wnids for name in os.listdir(val / wnid)}


def _existing(images: Iterable[Listed], request: Request) -> list[Sample]:
    """Return the samples whose file exists; missing ones are an error, or a warning with ``present``."""
    # Each folder is listed only once.
    names_in = functools.cache(
        lambda folder: frozenset(os.listdir(folder)) if os.path.isdir(folder) else frozenset()
    )
    existing: list[Sample] = []
    missing: list[str] = []
    for path, sample in images:
        folder, _, name = path.rpartition(os.sep)
        if name in names_in(folder):
            existing.append(sample)
        else:
            missing.append(sample.id)
    if missing:
        message = _describe_missing(missing, request.root, len(existing) + len(missing))
        if not request.present:
            raise SoritesError(f"{message}\nTo skip them: is_ood:{request.root},present")
        warnings.warn(Notice(message, code="missing_images", count=len(missing)), stacklevel=3)
    return existing


def _describe_missing(ids: list[str], root: Path, total: int) -> str:
    """Return a message with the number of missing images per set and the first of them."""
    by_set: dict[str, list[str]] = {}
    for id_ in ids:
        by_set.setdefault(id_.partition("/")[0], []).append(id_)
    rows = [f"is_ood: {len(ids)} of {total} listed images are missing:"]
    for name, members in sorted(by_set.items()):
        absent = "" if is_dir(root / name) else f"; no folder {root / name}"
        rows.append(f"  {name}: {len(members)}{absent}, first {', '.join(members[:3])}")
    return "\n".join(rows)
