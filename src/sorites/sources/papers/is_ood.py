"""Read IS-OOD (Long et al., NeurIPS 2024): its published lists, over images that the user has.

``is_ood:ROOT`` wants these folders, as the published repository has them below ``data``::

    ROOT/imglist/imagenet1k/test_imagenet.txt            the in-distribution images: 45 000 of ImageNet's
        validation images
    ROOT/imglist/imagenet21k/{train,val}/cov_C_sem_S.txt images of ImageNet-21K-P by covariate and
        semantic level, 0 to 7
    ROOT/imglist/SynIS/cov_C_sem_S.txt                   generated images by level
    ROOT/imagenet1k  ROOT/imagenet21k  ROOT/SynIS        the images, by the paths that the lists name

Levels are counted from 1 here, as in the paper. The lists have no labels. In-distribution images need
none; where class folders (``val/n01440764/NAME``) or ``LOC_val_solution.csv`` beside ``val`` bring
some, accuracy can be asked too. The graded images are captured under the shifts ``imagenet21k``
and ``syn_is``, so that one of a known class is not taken for an in-distribution one.
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

from sorites.core import Attr, Sample, Setting, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.rng import fair_order
from sorites.core.specs import split_path
from sorites.io.paths import entries, is_dir, is_file, leads_inside, path_of, subfolders
from sorites.io.readers import lines, whole
from sorites.io.tables import csv
from sorites.sources.decode import decode

# The prompts of Syn-IS: 51 style names of Stable Diffusion XL (IS-OOD, appendix D), each with any labels.


@functools.cache
def styles() -> tuple[str, ...]:
    """Return the names of the styles in the paper's order."""
    return tuple(files("sorites.sources").joinpath("syn_is.tsv").read_text(encoding="utf-8").splitlines()[1:])


def prompts(labels: Sequence[str], of: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield label, style and prompt for every pair of the labels with the styles in ``of``, or with
    all styles.
    """
    for label in labels:
        for style in of or styles():
            yield label, style, f"{style} style {label}"


LEVELS = 8
CELL = re.compile(r"cov_([0-7])_sem_([0-7])\.txt")
# The folders of the lists, per shift; the first part of each is also the folder of its images.
SETS = {"imagenet21k": ("imagenet21k/train", "imagenet21k/val"), "syn_is": ("SynIS",)}
WNID = re.compile(r"n\d{8}")
IN_DISTRIBUTION = "imagenet1k/test_imagenet.txt"
SOLUTION = ("ImageId", "PredictionString")


@dataclass(frozen=True)
class Request:
    """The words after the colon: the root, which sets to read, how many images per list, and
    whether some may be missing.
    """

    root: Path
    sets: tuple[str, ...]
    each: int | None
    present: bool

    @functools.cached_property
    def above(self) -> int:
        """Return the number of letters of a path that belong to the root."""
        return len(str(self.root / "x")) - 1

    def below(self, path: str) -> str:
        """Return a path seen from the root, which is the name of a sample."""
        return path[self.above :] if os.sep == "/" else path[self.above :].replace(os.sep, "/")


# A listed image: where it should lie, and what it is. Paths are texts, because making millions of
# ``Path`` takes minutes.
Listed = tuple[str, Sample]


def _joined(folder: str, line: str) -> str:
    """Return ``str(Path(folder) / line)``, quickly where the line is written plainly."""
    plain = os.sep == "/" and "//" not in line and "/." not in line and line[0] != "." and line[-1] != "/"
    return f"{folder}/{line}" if plain else str(Path(folder) / line)


@add_source
def is_ood(path: str | None, labels: Labels) -> list[Sample]:
    """Read IS-OOD's lists over your images: is_ood:ROOT[,imagenet21k][,syn_is][,each=N][,present].

    ``imagenet21k`` or ``syn_is`` reads that set alone. Every listed file is looked for first; files
    that are missing are an error that names them, unless ``present`` says to go without them.
    ``each=N`` takes N images per list in a fair order, because ImageNet-21K-P has 11.6 million in
    all; there is one list per cell of levels.
    """
    request = _parse(path)
    listed = request.root / "imglist"
    places = {name: place for place, name in reversed([*enumerate(labels.ids)])}
    found = [*_in_distribution(request, listed, places)]
    for name in request.sets:
        cells = sorted((part, cell) for part in SETS[name] for cell in _cells(listed / part))
        for part, cell in cells:
            images = request.root / part.split("/")[0]
            found += _graded(name, request, images, cell, places)
    return _present(found, request)


def _parse(path: str | None) -> Request:
    root, rest = split_path(path or "", ",")
    words = rest.split(",") if rest else []
    if not root:
        raise SoritesError(
            "the is_ood source needs the folder with imglist and the images. Type: --source is_ood:ROOT"
        )
    where = path_of(root)
    where = where / "data" if is_dir(where / "data" / "imglist") else where
    if not is_dir(where / "imglist"):
        raise SoritesError(
            f"wanted {where / 'imglist'} with the published lists of IS-OOD; there is no such folder"
        )
    each, sets = None, tuple(word for word in words if word in SETS)
    for word in words:
        if word.startswith("each=") and (number := whole(word.removeprefix("each="))):
            each = number
        elif word not in (*SETS, "present"):
            raise SoritesError(
                f"is_ood: wanted {', '.join(SETS)}, each=N or present after the folder, got {word[:80]!r}"
            )
    chosen = sets or tuple(
        name for name, places in SETS.items() if any(is_dir(where / "imglist" / part) for part in places)
    )
    return Request(where, chosen, each, "present" in words)


def _cells(folder: Path) -> list[Path]:
    if not is_dir(folder):
        return []
    return [Path(entry.path) for entry in entries(folder) if CELL.fullmatch(entry.name)]


def _lines(file: Path, each: int | None) -> list[str]:
    """Return the paths of a list without the leading ``./``, or ``each`` of them in a fair order."""
    paths = []
    for number, text in enumerate(lines(file, "a list of images, one path per line"), start=1):
        if line := text.strip().removeprefix("./"):
            if not leads_inside(line):
                raise SoritesError(
                    f"{file}, line {number}: wanted a path below the folder of the images, got {line!r}"
                )
            paths.append(line)
    return paths if each is None else fair_order(paths, lambda line: [line])[:each]


def _graded(
    name: str, request: Request, images: Path, cell: Path, places: Mapping[str, int]
) -> Iterator[Listed]:
    """Yield the images of one list; what they share is made once."""
    covariate, semantic = (int(level) + 1 for level in CELL.fullmatch(cell.name).groups())  # type: ignore[union-attr]
    levels = Attr("sem_level", str(semantic)), Attr("cov_level", str(covariate))
    setting = Setting(None, {"cov_level": covariate, "sem_level": semantic})
    folder, part, made = str(images), cell.parent.name, name == "syn_is"
    for line in _lines(cell, request.each):
        wnid, path = WNID.search(line), _joined(folder, line)
        label = places.get(wnid[0]) if wnid else None
        split = "unknown" if label is None else part
        attrs = (*levels, *_generated(line)) if made else levels
        load = functools.partial(decode, path)
        yield (
            path,
            Sample(request.below(path), load, label, attrs=attrs, split=split, shift=name, setting=setting),
        )


def _generated(line: str) -> tuple[Attr, ...]:
    """Return the word and the style of an image of Syn-IS, which its file name holds as numbers
    after a running number.
    """
    parts = Path(line).stem.split("_")
    return (Attr("word", parts[1]), Attr("style", parts[2])) if len(parts) == 3 else ()


def _in_distribution(request: Request, listed: Path, places: Mapping[str, int]) -> Iterator[Listed]:
    images = request.root / "imagenet1k"
    solution, folders = _solution(images), _class_folders(images / "val")
    for line in _lines(listed / IN_DISTRIBUTION, request.each):
        name = Path(line).stem
        where = folders.get(Path(line).name)
        path = _joined(str(images), line) if where is None else str(images / "val" / where / Path(line).name)
        label = places.get(where or solution.get(name, ""))
        yield (
            path,
            Sample(id=request.below(path), load=functools.partial(decode, path), label=label, split="test"),
        )


def _solution(images: Path) -> dict[str, str]:
    """Map each image to its WordNet id, from the table that comes with ImageNet's validation set."""
    path = images / "LOC_val_solution.csv"
    if not is_file(path):
        return {}
    frame = csv(path, f"a table with the columns {' and '.join(SOLUTION)}")
    if lost := [name for name in SOLUTION if name not in frame.columns]:
        raise SoritesError(f"{path}: wanted the columns {' and '.join(SOLUTION)}; {lost[0]} missing")
    return {
        image: words.split()[0]
        for image, words in frame.select(SOLUTION).iter_rows()
        if image and words and words.split()
    }


def _class_folders(val: Path) -> dict[str, str]:
    """Map each image to the class folder it lies in."""
    if not is_dir(val):
        return {}
    wnids = [folder.name for folder in subfolders(val) if re.fullmatch(r"n\d{8}", folder.name)]
    return {name: wnid for wnid in wnids for name in os.listdir(val / wnid)}


def _present(found: Iterable[Listed], request: Request) -> list[Sample]:
    """Return the samples whose file is there; the others are named in an error or a warning.

    Each folder is read once.
    """
    listed = functools.cache(
        lambda folder: frozenset(os.listdir(folder)) if os.path.isdir(folder) else frozenset()
    )
    there: list[Sample] = []
    missing: list[str] = []
    for path, sample in found:
        folder, _, name = path.rpartition(os.sep)
        if name in listed(folder):
            there.append(sample)
        else:
            missing.append(sample.id)
    if missing:
        message = _missing(missing, request.root, len(there) + len(missing))
        if not request.present:
            raise SoritesError(f"{message}\nTo go without them: is_ood:{request.root},present")
        warnings.warn(message, stacklevel=3)
    return there


def _missing(names: list[str], root: Path, wanted: int) -> str:
    """Return a message that counts the missing images per set and names the first of them."""
    by_set: dict[str, list[str]] = {}
    for name in names:
        by_set.setdefault(name.partition("/")[0], []).append(name)
    said = [f"is_ood: {len(names)} of {wanted} listed images are missing:"]
    for name, some in sorted(by_set.items()):
        absent = "" if is_dir(root / name) else f"; there is no folder {root / name}"
        said.append(f"  {name}: {len(some)}{absent}, first {', '.join(some[:3])}")
    return "\n".join(said)
