"""What every source has to do, built in or plugged in. One that needs a path gets the one of ``examples``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.contracts import examples
from tests.contracts.conftest import Example
from tests.evaluation.fading import CLASSES, fading

from sorites import core
from sorites.core import SOURCES, FileRef, Generated, ImageRef, Sample, Source, to_float
from sorites.core.labels import imagenet, labels
from sorites.core.refs import data_of
from sorites.evaluation import plan
from sorites.evaluation.storage.contents import contents
from sorites.sources.cifar import CLASSES as CIFAR
from sorites.suites.suite import Suite

SLOW = {"stamps", "composites", "foolbox"}
"""Sources that fetch a package of Debian or PyPI."""

LABELS: dict[str, str | tuple[str, ...]] = {
    **dict.fromkeys(("cifar", "openood"), CIFAR),
    "maite": ("apple", "pear", "plum"),
    **dict.fromkeys(("slider", "edited"), ("disc", "square", "triangle", "cross")),
    **dict.fromkeys(("composites", "coco", "nuimages", "yolo"), "coco"),
}


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SOURCES.names()]
)
def read(
    request: pytest.FixtureRequest, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Source]]:
    name = request.param
    spec, _ = example("source", name)
    space = labels(LABELS.get(name, "imagenet"))
    if name in examples.SOURCES:
        monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    with examples.reading(name, spec):
        yield lambda: core.source(spec, space)


def test_every_sample_decodes_to_a_image(read: Callable[[], Source]) -> None:
    for sample in read().samples[:20]:
        image = sample.load()
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        if sample.alpha is not None:
            assert sample.alpha().shape == image.shape[:2]


def test_loading_again_gives_the_same_and_its_own_image(read: Callable[[], Source]) -> None:
    for sample in read().samples[:5]:
        first, second = sample.load(), sample.load()
        np.testing.assert_array_equal(first, second)
        assert first.flags.writeable is False or not np.shares_memory(first, second)


def test_the_same_samples_in_the_same_order_every_time(read: Callable[[], Source]) -> None:
    def told(source: Source) -> list[tuple[object, ...]]:
        return [(s.id, s.label, s.accept, s.shift, s.setting.canonical, s.split, s.attrs) for s in source]

    assert told(read()) == told(read())
    assert len(read()) > 0


def test_ids_are_text_and_unique(read: Callable[[], Source]) -> None:
    ids = [(s.id, s.shift, s.setting.canonical) for s in read()]
    assert len(set(ids)) == len(ids)
    for id_, _, _ in ids:
        assert id_
        assert id_.encode("utf-8").decode("utf-8") == id_
        assert not Path(id_).is_absolute(), "an id must be the same on another machine"


def test_labels_are_in_the_label_space(read: Callable[[], Source]) -> None:
    space = range(len(imagenet()))
    for sample in read():
        assert sample.label is None or sample.label in space
        assert all(label in space for label in sample.right)


def test_it_can_be_planned(read: Callable[[], Source]) -> None:
    made = plan.make(Suite(name="s"), read())
    assert made.images() == len(read()) + sum(len(dial.levels) for sample in read() for dial in sample.dials)


def _owes(sample: Sample) -> None:
    """Check what a sample that has dials of its own owes: images that do not depend on what else is
    asked, or in which order.
    """
    for dial in sample.dials:
        levels = dial.levels[:3]
        images = list(dial.sweep(levels))
        assert len(images) == len(levels)
        for image in images:
            assert image.dtype == np.float32
            assert image.shape[2:] == (3,)
            assert float(image.min()) >= -1e-3
            assert float(image.max()) <= 1 + 1e-3
        for image, again in zip(images, reversed(list(dial.sweep(levels[::-1]))), strict=True):
            np.testing.assert_allclose(image, again, atol=1e-4)
        (alone,) = dial.sweep(levels[-1:])
        np.testing.assert_allclose(images[-1], alone, atol=1e-4)
        assert images[0].shape == sample.load().shape


def test_dials_of_samples_own_give_an_image_for_a_severity_alone(read: Callable[[], Source]) -> None:
    for sample in read().samples[:2]:
        _owes(sample)


def test_a_source_with_such_dials_is_held_to_it() -> None:
    sample = next(fading("1", labels(CLASSES)))
    _owes(sample)
    for wrong in (
        lambda severities: iter([]),
        lambda severities: (to_float(sample.load()) * i for i, _ in enumerate(severities)),
    ):
        with pytest.raises((AssertionError, ValueError)):
            _owes(replace(sample, dials=(replace(sample.dials[0], sweep=wrong),)))


UNKNOWN = {"cifar", "composites", "maite", "slider"}
"""Sources that make their images from a package or a pipeline whose version is part of their samples' ids or dials,
or from user code."""


def test_changing_a_declared_file_changes_the_content(
    read: Callable[[], Source], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The data of a sample is what its references declare: its bytes are the content, and they alone."""
    samples = [replace(sample, label=None) for sample in read().samples[:5]]
    name = request.node.callspec.params["read"]
    files = [ref for sample in samples for ref in data_of(sample.image) if isinstance(ref, FileRef)]
    if not files and not SOURCES.get(name).__module__.startswith("sorites."):
        return  # a plug-in that draws its images has no files to declare
    assert bool(files) == (name not in UNKNOWN)
    before = contents(samples)
    assert before["content"].null_count() == (0 if files else len(samples))
    for number, ref in enumerate(files):
        moved = _altered(ref, tmp_path / f"altered{number}")
        after = contents([replace(sample, image=_with(sample.image, ref, moved)) for sample in samples])
        using = [ref in data_of(sample.image) for sample in samples]
        assert (before["content"] != after["content"]).to_list() == using


def _altered(ref: FileRef, folder: Path) -> FileRef:
    """Return the reference to a copy of its file in which the last byte of the image is another one."""
    data = bytearray(Path(ref.path).read_bytes())
    last = len(data) - 1 if ref.size is None else ref.offset + ref.size - 1
    data[last] ^= 0xFF
    folder.mkdir()
    copy = folder / Path(ref.path).name
    copy.write_bytes(data)
    return replace(ref, path=copy, within=None)


def _with(image: ImageRef, old: FileRef, new: FileRef) -> ImageRef:
    if isinstance(image, Generated):
        return replace(image, args=tuple(new if value == old else value for value in image.args))
    return new if image == old else image
