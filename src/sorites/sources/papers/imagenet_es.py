"""Read ImageNet-ES as published: images of a screen, taken at 27 or 64 settings and five times
automatically, lamp on and off.

    ImageNet-ES/
      es-val/  {sampled_tin_no_resize, param_control, auto_exposure}      the 1000 references of partition S1
      es-test/ {sampled_tin_no_resize2, param_control, auto_exposure}     the 1000 references of partition S2
      es-train/tin_no_resize_sample_removed                               the 8000 others of
          Tiny-ImageNet's validation set, S3

Below ``param_control`` and ``auto_exposure`` lie light (l1 on, l5 off) / param_1, param_2, ... /
WordNet id / image. What ``sorites studio capture`` wrote has the same layout, may hold one part
alone, and says its settings in ``settings.json``. Baek et al., "Unexplored Faces of Robustness and
Out-of-Distribution", CVPR 2024.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sorites.core import Attr, Sample, Setting, add_source
from sorites.core import camera_grid as es_grid
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.io.paths import entries, is_dir, is_file, path_of, subfolders
from sorites.sources.decode import SUFFIXES, decode

# The most missing folders or images that an error names before it counts the rest.
NAMED = 6


@dataclass(frozen=True)
class Part:
    """A folder of the dataset, with its split, its partition and the folder of its reference images."""

    folder: str
    split: str
    partition: str
    references: str

    @property
    def captured(self) -> bool:
        """Return whether the part holds photographs of the screen, and not only references."""
        return self.split != "train"


PARTS = (
    Part("es-val", "val", "S1", "sampled_tin_no_resize"),
    Part("es-test", "test", "S2", "sampled_tin_no_resize2"),
    Part("es-train", "train", "S3", "tin_no_resize_sample_removed"),
)


@add_source
def imagenet_es(path: str | None, labels: Labels) -> list[Sample]:
    """Read ImageNet-ES from its folder (val and test), or one of es-val, es-test, es-train in it.

    The shift is ``camera``, and its params are the published settings. A sample is the reference
    image: its id is WordNet id / file name, its clean image is the original, and the attribute
    ``partition`` says S1, S2 or S3.
    """
    found = _parts(path)
    lost = [folder for part, root in found for folder in missing(part, root)]
    if lost:
        raise SoritesError(
            f"ImageNet-ES at {path} lacks {_listed(lost)}. Unpack the whole archive, or name one part:"
            " PATH/es-test"
        )
    return [sample for part, root in found for sample in _samples(part, root, labels)]


def _parts(path: str | None) -> list[tuple[Part, Path]]:
    if path is None:
        raise SoritesError(
            "the imagenet_es source needs the dataset's folder. Type: --source imagenet_es:PATH"
        )
    root = path_of(path)
    if not is_dir(root):
        raise SoritesError(
            f"wanted the folder of ImageNet-ES, got {root}, which"
            f" {'is a file' if is_file(root) else 'does not exist'}"
        )
    for part in PARTS:
        if root.name == part.folder:
            return [(part, root)]
    if is_dir(root / "ImageNet-ES"):
        root = root / "ImageNet-ES"
    captured = [(part, root / part.folder) for part in PARTS if part.captured]
    own = [(part, folder) for part, folder in captured if is_file(folder / es_grid.GRID_FILE)]
    return own or captured


def missing(part: Part, root: Path) -> list[str]:
    """Return the folders of the published layout that ``root`` lacks, each as a path that starts
    with the name of ``root``.
    """
    wanted = [part.references]
    if part.captured:
        wanted += [folder for _, folder in es_grid.captured(root, part.split).places()]
    return [f"{root.name}/{folder}" for folder in wanted if not is_dir(root / folder)]


def _samples(part: Part, root: Path, labels: Labels) -> Iterator[Sample]:
    attrs = (Attr("partition", part.partition),)
    references = _images(root / part.references)
    if not references:
        raise SoritesError(f"there are no images in {root / part.references}; wanted WordNet id / image")
    label_of = {wnid: labels.find(wnid) for wnid in sorted({id_.split("/")[0] for id_ in references})}

    def sample(id_: str, file: Path) -> Sample:
        return Sample(
            id_, functools.partial(decode, file), label_of[id_.split("/")[0]], attrs=attrs, split=part.split
        )

    yield from (sample(id_, file) for id_, file in references.items())
    for params, folder in es_grid.captured(root, part.split).places() if part.captured else ():
        shots = {_stem(id_): file for id_, file in _images(root / folder).items()}
        lost = [f"{folder}/{id_}" for id_ in references if _stem(id_) not in shots]
        if lost:
            raise SoritesError(
                f"{root} lacks {_listed(lost)}: each of the {len(references)} references must be there at"
                " every setting"
            )
        setting = Setting(None, params)
        yield from (
            replace(sample(id_, shots[_stem(id_)]), shift="camera", setting=setting) for id_ in references
        )


def _images(folder: Path) -> dict[str, Path]:
    """Map WordNet id / file name to the file, in order."""
    files = (entry for path in subfolders(folder) for entry in entries(path))
    kept = (
        Path(entry.path)
        for entry in files
        if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
    )
    return {as_utf8(f"{file.parent.name}/{file.name}"): file for file in kept}


def _stem(id_: str) -> str:
    """Return an id without the ending of its file's name: a reference may be a PNG, and its
    photographs are JPEGs.
    """
    return id_.rpartition(".")[0]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
