"""A second, small test of strangeness for ImageNet classifiers: cut-outs that show one of its classes, and others that show none.

Near and far follow from the folder names: a strange picture is near if its folder, at most two deep, also holds a picture of an
ImageNet class (another bird among birds), and far otherwise (planets, graves, flowers).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from sorites.core import Attr, Sample, add_source
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.sources.stamps import stamps, table


@add_source
def stamps_ood(path: str | None, labels: Labels) -> list[Sample]:
    """Read photo cut-outs of ImageNet's classes and of none of them, each in the group familiar, near or far."""
    if path is not None:
        raise SoritesError(f'wanted "stamps_ood", got "stamps_ood:{path}"')
    return [_grouped(sample) for part in (None, "unknown") for sample in stamps(part, labels)]


def _grouped(sample: Sample) -> Sample:
    return replace(sample, attrs=(*sample.attrs, Attr("group", group(sample.id, sample.split))))


def group(file: str, split: str) -> str:
    """Return the group of a picture: familiar, near or far."""
    if split != "unknown":
        return "familiar"
    return "near" if _folder(file) in {_folder(stamp.file) for stamp in table() if stamp.label} else "far"


def _folder(file: str) -> tuple[str, ...]:
    return PurePosixPath(file).parent.parts[:2]
