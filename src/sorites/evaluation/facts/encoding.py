"""Image features of an encoder in files: of a source in slices, and of a run task by task, computed on an
engine.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sorites import core
from sorites.core import Encoder, ImageU8, Sample
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.progress import Tick
from sorites.core.rng import digest
from sorites.encoders.features import features
from sorites.evaluation.engines import Engine
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.facts.rulers import in_distribution_images, limited
from sorites.evaluation.images import LeftOut, readable, shots
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.storage.contents import stamp
from sorites.evaluation.storage.shards import ENCODED, SAFETENSORS, stem, tensor_files
from sorites.evaluation.storage.tensors import About, read_header, write_tensors
from sorites.evaluation.worker import Running
from sorites.io.digests import shards_in
from sorites.models.trial import trial_images

# The minimum number of images whose neighbours are searched together.
MIN_IMAGES_PER_SEARCH = 2048

# The id of an image, the image, and whether it is already framed.
Named = tuple[str, ImageU8, bool]


def version_of(encoder: Encoder) -> str:
    """Return the version of an encoder, or a hash of its rounded features of three images if it has none."""
    if encoder.version:
        return encoder.version
    features = encoder.images(trial_images((96, 96)), True)
    rounded = np.round(features / max(float(np.abs(features).max()), 1e-30), 3)
    return f"answers {digest(rounded.tobytes().hex()).hex()}"


def encode(
    judge: Encoder,
    version: str,
    images: Iterable[Named],
    key: str,
    left: LeftOut,
    folder: Path,
    stem: str,
    stamp: str = "",
) -> None:
    """Write the features of images to a file.

    Args:
        judge: The encoder.
        version: Its version.
        images: Image ids, images, and whether they are framed.
        key: The name of the ids in the file, "image_id" or "sample_id".
        left: The images that could not be read, which are counted in the file.
        folder: The folder of the file.
        stem: Its name without digest and suffix.
        stamp: Identifies the files that the images were read from.
    """
    ids: list[str] = []

    def listed() -> Iterator[tuple[ImageU8, bool]]:
        for name, image, framed in images:
            ids.append(name)
            yield image, framed

    pairs = listed()
    first = next(pairs, None)
    image_features = (
        np.empty((0, 1), np.float32) if first is None else features(judge, itertools.chain([first], pairs))
    )
    content = digest(json.dumps(ids), hashlib.blake2b(image_features.tobytes()).hexdigest()).hex()
    skipped = [left.count, left.first]
    about = {key: ids, "left_out": skipped, "version": version, "stamp": stamp, "content": content}
    write_tensors(folder, stem, {"features": image_features}, **about)


def about_encoded(path: Path, key: str) -> About:
    """Return the metadata of a file of features, without the features."""
    about = read_header(path)
    match about:
        case {"left_out": [int(), str()], "content": str()} if isinstance(about.get(key), list):
            return about
    raise SoritesError(f"{path} lacks the ids of its features. Delete it, and it will be recomputed.")


def is_encoded(path: Path | None, key: str, version: str, stamp: Callable[[], str] = str) -> bool:
    """Return whether a file of features exists and can be reused: undamaged, for this version and these
    images.
    """
    if path is None:
        return False
    try:
        about = about_encoded(path, key)
    except SoritesError:
        return False
    # Files with unreadable images are recomputed, because the images may be readable now.
    return about.get("version") == version and not about["left_out"][0] and about.get("stamp") == stamp()


def encode_unit(run: Running, unit: Unit, *, encoder: str, version: str) -> None:
    """Encode the images of one task of a run and store the features with the image ids."""
    model: Encoder = run.once(f"encoder {encoder}", lambda plan: core.encoder(encoder))
    left = LeftOut()
    images = run_images(run.plan, [run.here(unit)], left)
    encode(model, version, images, "image_id", left, run.folder / ENCODED, stem(unit, encoder))


def run_images(plan: Plan, units: Sequence[Unit], left: LeftOut) -> Iterator[Named]:
    """Yield the images of units, their ids, and whether they are framed; ``left`` counts unreadable ones."""
    for unit in units:
        for shot in shots(plan, unit):
            if shot.image is None:
                left.add(f"{shot.sample.id}, {shot.shift}", shot.error or "no image")
            else:
                name = plan.image_id(shot.sample, shot.shift, shot.setting)
                yield name, shot.image, plan.is_framed(shot.sample)


def encode_run(run: Running, encoder: Encoder, engine: Engine, workers: int, tick: Tick) -> list[list[Path]]:
    """Encode the tasks of a run that this version of the encoder has not encoded yet.

    Returns:
        The files of all tasks, in groups of about as many images as are searched together.
    """
    plan, folder = run.plan, run.folder
    units, version = plan.units(), version_of(encoder)
    existing = tensor_files(folder, ENCODED)
    stems = {unit: stem(unit, encoder.name) for unit in units}
    todo = [unit for unit in units if not is_encoded(existing.get(stems[unit]), "image_id", version)]
    forget_files(existing.get(stems[unit]) for unit in todo)
    tick(sum(map(plan.images_of, units)) - sum(map(plan.images_of, todo)))
    for unit, _ in run.each(engine, todo, encode_unit, workers, encoder=encoder.name, version=version):
        tick(plan.images_of(unit))
    groups: list[list[Path]] = []
    files, remaining = tensor_files(folder, ENCODED), 0
    for unit in units:
        if remaining <= 0:
            groups.append([])
            remaining = MIN_IMAGES_PER_SEARCH
        groups[-1].append(files[stems[unit]])
        remaining -= plan.images_of(unit)
    return groups


# Features of a source's images: each slice of the source is one file.

# Images per file.
IMAGES_PER_FILE = 2048

_opening = threading.RLock()


@dataclass(frozen=True)
class Images:
    """The images of a source, described so that other processes can open them.

    Attributes:
        source: The name of the source.
        labels: The classes.
        in_distribution: Whether images of classes outside ``labels`` are accepted.
        limit: The maximum number of images, in a fair order.
    """

    source: str
    labels: Labels
    in_distribution: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Slices:
    """The slices of a source's images and the encoder.

    Attributes:
        images: The images.
        encoder: The name of the encoder.
        version: Its version.
        count: The number of images.
        ids: A hash of the ids of all images in order.
        size: The number of images per slice.
    """

    images: Images
    encoder: str
    version: str
    count: int
    ids: str
    size: int

    def starts(self) -> range:
        """Return the index of the first image of each slice."""
        return range(0, self.count, self.size)

    def folder(self, work: Path) -> Path:
        """Return the folder of the features."""
        parts = (self.images.source, self.images.limit, self.encoder, self.version, self.ids, self.size)
        return work / f"features-{digest(*parts, size=8).hex()}"

    def files(self, work: Path) -> list[Path]:
        """Return the files of the features in the order of the images."""
        existing = shards_in(self.folder(work), SAFETENSORS)
        return [existing[_stem(start)] for start in self.starts()]


def slices_of(images: Images, encoder: str) -> Slices:
    """List the images of a source and divide them into slices."""
    samples, ids = _list_samples(images, encoder)
    if not len(samples):
        raise SoritesError(f"source {images.source} has no images")
    return Slices(images, encoder, version_of(judge_of(encoder)), len(samples), ids, IMAGES_PER_FILE)


def forget() -> None:
    """Clear the cached sources and encoder of this process."""
    _list_samples.cache_clear()
    judge_of.cache_clear()


def _stem(start: int) -> str:
    """Return the file stem of the slice that starts at an index."""
    return f"{start:09d}"


def forget_files(paths: Iterable[Path | None]) -> None:
    """Delete files that are computed again."""
    for path in paths:
        if path is not None:
            path.unlink(missing_ok=True)


def encode_slices(work: Path, slices: Slices, engine: Engine, workers: int, tick: Tick) -> None:
    """Encode the slices that are not encoded yet; each is a task of the engine."""
    sizes = {start: min(slices.size, slices.count - start) for start in slices.starts()}
    folder, samples = slices.folder(work), _list_samples(slices.images, slices.encoder)[0]
    existing = shards_in(folder, SAFETENSORS)

    def is_current(start: int) -> bool:
        file, part = existing.get(_stem(start)), samples[start : start + slices.size]
        return is_encoded(file, "sample_id", slices.version, lambda: stamp(part))

    todo = [start for start in sizes if not is_current(start)]
    forget_files(existing.get(_stem(start)) for start in todo)
    tick(slices.count - sum(sizes[start] for start in todo))
    for start, _ in engine(todo, functools.partial(encode_slice, work, slices), workers):
        tick(sizes[start])


def encode_slice(work: Path, slices: Slices, start: int) -> None:
    """Encode the images of one slice and store the features with the sample ids."""
    with _opening:
        samples, ids = _list_samples(slices.images, slices.encoder)
        encoder = judge_of(slices.encoder)
    if (len(samples), ids) != (slices.count, slices.ids):
        named = slices.images.source
        raise SoritesError(
            f"{named} lists different images in another process: got {len(samples)}, expected {slices.count}"
        )
    part, unreadable = samples[start : start + slices.size], LeftOut()
    images, folder = _read(part, unreadable), slices.folder(work)
    encode(encoder, slices.version, images, "sample_id", unreadable, folder, _stem(start), stamp(part))


def _read(samples: Sequence[Sample], left: LeftOut) -> Iterator[tuple[str, ImageU8, bool]]:
    for sample, image in readable(samples, left):
        stop_if_requested()
        yield sample.id, image, sample.framed


@functools.lru_cache(maxsize=1)
def judge_of(encoder: str) -> Encoder:
    """Return an encoder, loaded once per process."""
    return core.encoder(encoder)


@functools.lru_cache(maxsize=2)
def _list_samples(images: Images, encoder: str) -> tuple[Sequence[Sample], str]:
    """Return the samples and a hash of all ids; a source is listed once per process."""
    spec, labels = images.source, images.labels
    opened = (
        in_distribution_images(spec, labels, judge_of(encoder))
        if images.in_distribution
        else core.source(spec, labels)
    )
    samples = opened.samples if images.limit is None else limited(opened, images.limit)
    hasher = hashlib.blake2b(digest_size=16)
    for sample in samples:
        encoded_id = sample.id.encode(errors="backslashreplace")
        hasher.update(len(encoded_id).to_bytes(8, "little") + encoded_id)
    return samples, hasher.hexdigest()
