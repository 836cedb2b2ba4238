"""Order, select and frame the samples of sources."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Box, ImageU8, Sample, Source, read_only, split_spec
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, open_labels
from sorites.core.messages import option
from sorites.core.packed import ById, PackedSamples, as_packed, packed
from sorites.core.rng import digest, hashed_order
from sorites.evaluation.storage.contents import contents
from sorites.models.trained import training_contents
from sorites.sources.shards import SHARDED, Shard
from sorites.suites.suite import Fit, Frame, Suite

# The model plug-in that lists the content of its training images: copies under other names are found too.
TRAINED = "trained"


def training_samples(fit: Fit, labels: Labels, source: Source | None) -> list[Sample]:
    """Return the training images of a suite: clean images of its source, or of ``source``."""
    read = core.source(fit.source, labels) if source is None else source
    training = _clean("fit", fit.source, read, fit.split)[: fit.limit]
    if fit.only == "correct" and all(sample.label is None for sample in training):
        raise SoritesError(
            f'fit: only = "correct" needs labelled training images, but those of {fit.source} have no labels'
        )
    return training


def validation_samples(
    fit: Fit, labels: Labels, source: Source | None, training: Sequence[Sample]
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the in-distribution and the OOD validation images; OOD images may have any labels."""
    validation = fit.validation
    if validation is None:
        return (), ()
    spec, same_source = validation.source or fit.source, validation.source in (None, fit.source)
    read = source if same_source and source is not None else core.source(spec, labels)
    in_distribution = _clean("fit.validation", spec, read, validation.split)[: validation.limit]
    both = (
        {sample.id for sample in training} & {sample.id for sample in in_distribution} if same_source else ()
    )
    if both:
        raise SoritesError(
            f"fit: {len(both)} of {len(in_distribution)} validation images are training images; choose"
            " another"
            " split"
        )
    if validation.ood is None:
        if all(sample.label is None for sample in in_distribution):
            raise SoritesError(
                f"fit.validation: the images of {spec} have no labels, so misclassified images cannot serve"
                ' as OOD images. Give OOD images: [fit.validation] ood = "folder:PATH"'
            )
        return in_distribution, ()
    return (
        in_distribution,
        _clean("fit.validation", validation.ood, core.source(validation.ood, open_labels()), None)[
            : validation.limit
        ],
    )


def _clean(key: str, spec: str, source: Source, split: str | None) -> list[Sample]:
    """Return the clean images of a source or one of its splits, in hashed order.

    Raises:
        SoritesError: There are none.
    """
    clean = [sample for sample in hashed_samples(source) if sample.shift == CLEAN]
    check_unique(clean)
    chosen = [sample for sample in clean if split is None or sample.split == split]
    if not chosen:
        splits = ", ".join(sorted({sample.split for sample in clean if sample.split})) or "none"
        of = "" if split is None else f" of the split {split!r}; its splits are {splits}"
        raise SoritesError(f"{key}: the source {spec} has no clean images{of}")
    return chosen


def hashed_samples(source: Source) -> PackedSamples:
    """Sort samples by a hash of their ids: any prefix is a random sample, and the order of the source does
    not matter.
    """
    samples = as_packed(source.samples)
    if not len(samples):
        raise SoritesError(f"the source {source.name} has no samples")
    heads = samples.heads()
    order = np.argsort(heads, kind="stable")
    for start, stop in _tied_ranges(heads[order]):
        order[start:stop] = sorted(order[start:stop], key=lambda place: _sort_key(samples[int(place)]))
    return samples.take(order)


def _sort_key(sample: Sample) -> tuple[bytes, str, float, str]:
    return digest(sample.id), sample.shift, sample.setting.severity or 0.0, sample.setting.canonical


def _tied_ranges(ordered: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return start and end of each run of two or more equal values."""
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts, stops = np.r_[0, edges], np.r_[edges, len(ordered)]
    longer = stops - starts > 1
    return list(zip(starts[longer].tolist(), stops[longer].tolist(), strict=True))


def tied(samples: PackedSamples) -> list[int]:
    """Return the indices of samples whose id hash is shared by another sample, in order; these include all
    duplicate ids.
    """
    heads = samples.heads()
    order = np.argsort(heads, kind="stable")
    return sorted(int(index) for start, stop in _tied_ranges(heads[order]) for index in order[start:stop])


def distinct(samples: PackedSamples) -> int:
    """Return the number of distinct ids."""
    places = tied(samples)
    return len(samples) - len(places) + len(set(samples.take(places).ids()))


def by_shards(spec: str, labels: Labels, limit: int | None) -> Source:
    """Return the samples of a source shard by shard, in hashed order of shard names.

    No more shards are read than the limit needs. Samples of one shard stay together, so a prefix is not a
    random sample.
    """
    name, argument = split_spec(spec)
    if name not in SHARDED:
        raise SoritesError(
            f"order = shards needs a sharded source ({', '.join(sorted(SHARDED))}), got {spec}"
        )
    samples = packed(
        _in_shards(hashed_order(SHARDED[name](argument, labels), lambda shard: (shard.name,)), limit)
    )
    if not samples:
        raise SoritesError(f"the source {spec} has no samples")
    return Source(name, samples)


def _in_shards(shards: Sequence[Shard], limit: int | None) -> Iterator[Sample]:
    count = 0
    for shard in shards:
        for sample in shard.read():
            count += 1
            yield sample
        if limit is not None and count >= limit:
            return


def first_ids(samples: PackedSamples, limit: int | None) -> dict[str, None]:
    """Return the first distinct ids, up to the limit."""
    ids: dict[str, None] = {}
    for id_ in samples.ids():
        if limit is not None and len(ids) >= limit:
            break
        ids[id_] = None
    return ids


def find_sample(source: Source, name: str) -> Sample:
    """Return the clean sample with this id, or the only one whose id ends with it."""
    clean = [sample for sample in source if sample.shift == CLEAN]
    matches = [sample for sample in clean if sample.id == name] or [
        s for s in clean if f"/{s.id}".endswith(f"/{name}")
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SoritesError(
            f"{len(matches)} images of {source.name} are called {name}, such as {matches[0].id} and"
            f" {matches[1].id}"
        )
    raise UnknownName(
        "image", name, (sample.id for sample in clean), f"The source {source.name} has {len(clean):,}."
    )


def check_unique(samples: Sequence[Sample]) -> None:
    """Raise a ``SoritesError`` if two samples have the same id, shift and setting."""
    all_samples = as_packed(samples)
    keys: set[tuple[str, str, str]] = set()
    for sample in all_samples.take(tied(all_samples)):
        key = (sample.id, sample.shift, sample.setting.canonical)
        if key in keys:
            raise SoritesError(
                f"the source has two {sample.shift} samples with the id {sample.id!r} and the same setting"
            )
        keys.add(key)


# Frames.


GroundTruth = tuple[Box, ...] | None


def frame_of(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame for a sample: that of its captured shift, else of its source, else of the suite."""
    own = (
        next((entry.frame for entry in suite.sources if entry.name == sample.source), None)
        if sample.source
        else None
    )
    return suite.frames.get(sample.shift) or own or suite.frame


def laid_frame(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame to apply to a sample's image; None if the image is already framed."""
    return None if sample.framed else frame_of(suite, sample)


def framed_sample(suite: Suite, sample: Sample) -> tuple[ImageU8, GroundTruth]:
    """Decode a sample and apply its frame; return the read-only image and its ground-truth boxes in pixels of
    it.
    """
    image, frame = sample.load(), laid_frame(suite, sample)
    if frame is None:
        return read_only(image), sample.ground_truth
    ground_truth = None if sample.ground_truth is None else frame.moved(sample.ground_truth, *image.shape[:2])
    return read_only(frame(image)), ground_truth


def framed_image(suite: Suite, sample: Sample) -> ImageU8:
    """Decode a sample and apply its frame, unless it is already framed."""
    return framed_sample(suite, sample)[0]


class CleanImages:
    """Framed clean images by sample id; the last ones that fit into ``kept`` bytes are cached.

    Threads that ask for the same image at the same time wait for one of them to decode it. ``decoded`` counts
    how often an image was decoded.
    """

    def __init__(self, suite: Suite, clean: PackedSamples, kept: int) -> None:
        self.decoded = 0
        self._samples = ById(clean)
        self._suite, self._kept = suite, kept
        self._lock, self._bytes = threading.Lock(), 0
        self._images: OrderedDict[str, Future[tuple[ImageU8, GroundTruth]]] = OrderedDict()

    def __call__(self, id_: str) -> ImageU8:
        return self._framed(id_)[0]

    def _framed(self, id_: str) -> tuple[ImageU8, GroundTruth]:
        with self._lock:
            entry = self._images.get(id_)
            is_new = entry is None
            if entry is None:
                entry = self._images[id_] = Future()
            self._images.move_to_end(id_)
        if is_new:
            self._decode(id_, entry)
        return entry.result()

    def _decode(self, id_: str, entry: Future[tuple[ImageU8, GroundTruth]]) -> None:
        """Decode an image and drop the oldest ones, if there are too many; a failure is not kept."""
        with self._lock:
            self.decoded += 1
        try:
            framed = framed_sample(self._suite, self._samples[id_])
        except BaseException as error:  # an interrupt too must wake those who wait
            with self._lock:
                del self._images[id_]
            entry.set_exception(error)
            return
        with self._lock:
            self._bytes += framed[0].nbytes
            entry.set_result(framed)
            for other, image in list(self._images.items()) if self._bytes > self._kept else ():
                if image.done() and self._bytes > self._kept:
                    self._bytes -= self._images.pop(other).result()[0].nbytes

    def ground_truth(self, id_: str) -> GroundTruth:
        """Return the ground-truth boxes in pixels of the framed image, or None if unknown."""
        sample = self._samples[id_]
        return (
            sample.ground_truth
            if sample.ground_truth is None or laid_frame(self._suite, sample) is None
            else self._framed(id_)[1]
        )


def unseen(samples: PackedSamples, models: Sequence[str]) -> PackedSamples:
    """Return the samples whose images none of some trained models was trained on.

    Args:
        samples: The samples.
        models: Specs of trained models: ``trained:DIR``.

    Raises:
        SoritesError: A model is not a trained one, or no sample is left.
    """
    seen = frozenset[str]().union(*(contents_of(spec) for spec in models))
    if not seen or not len(samples):
        return samples
    kept = [i for i, content in enumerate(contents(samples)["content"]) if content not in seen]
    if not kept:
        raise SoritesError(f"all {len(samples)} images are training images of {', '.join(models)}")
    return samples.take(np.array(kept))


def contents_of(spec: str) -> frozenset[str]:
    """Return the hashes of the images that a model of the spec ``trained:DIR`` was trained on."""
    name, argument = split_spec(spec)
    if name != TRAINED or not argument:
        raise SoritesError(
            f"{option('unseen_by', None)}: expected a model that lists its training images, {TRAINED}:DIR,"
            f" got {spec!r}"
        )
    return training_contents(argument)
