"""The two encoders of the out-of-class filter: an image-text encoder, and a second one for images.

Features of clean images and texts are cached per process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sorites import core
from sorites.core import CLEAN, ENCODERS, MODELS, Features, ImageU8, Sample
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.evaluation.images import has_whole_images
from sorites.evaluation.plan import Plan
from sorites.io.validation import Record

# The text that names the class; the text that names the shift adds a phrase to it. These are the
# prompts of the released code.
CLASS_TEXT = "a photo of a {}"
# Number of clean images whose features are cached, enough for a few tasks over all of their shifts.
CLEAN_KEPT = 256

Images = Callable[[Sequence[ImageU8], bool], Features]
# What encoders see: the whole image, as in the released code, or what the models of the run see.
VIEWS = ("whole", "framed")


@dataclass(frozen=True)
class Pair:
    """The encoders and texts of a filter by name, which determine its similarities for a run."""

    encoder: str
    second: str
    softmax: bool = False
    phrases: tuple[tuple[str, str], ...] = ()
    """Phrases of shifts that differ from the default, such as ``("snow", "in deep snow")``."""
    view: str = "whole"
    """One of ``VIEWS``."""

    def phrase(self, shift: str) -> str:
        """Return the phrase that adds a shift to the text of a class, such as "in heavy snow"."""
        return dict(self.phrases).get(shift) or f"in {shift.replace('_', ' ')}"


class PairRecord(Record):
    """Inputs on which the similarities of a filter depend, as stored in ``facts/out_of_class.json``."""

    encoder: str
    version: str
    second: str
    second_version: str
    softmax: bool
    texts: dict[str, str]
    """The text of each shift, for a class called CLASS."""
    view: str = "framed"
    """The view that was encoded: ``whole`` images, or ``framed`` ones, as in records without this field."""


def one_at_a_time(images: Images) -> Images:
    """Wrap an image encoder in a lock, since encoders need not be thread-safe."""
    lock = threading.Lock()

    def locked(images_u8: Sequence[ImageU8], framed: bool) -> Features:
        with lock:
            return images(images_u8, framed)

    return locked


def load_image_encoder(spec: str) -> tuple[Images, str]:
    """Load an image encoder by name: an encoder, or a model with features. Return it and its version.

    Raises:
        SoritesError: There is no such encoder or model, or the model has no features.
    """
    name, _ = core.split_spec(spec)
    if name in ENCODERS.names():
        try:
            encoder = core.encoder(spec)
            return one_at_a_time(encoder.images), encoder.version
        except SoritesError:
            if name not in MODELS.names():
                raise
    elif name not in MODELS.names():
        names = ", ".join(sorted({*MODELS.names(), *ENCODERS.names()}))
        raise SoritesError(
            f"{option('second', None)}: expected an encoder or a model with features, got {spec!r}."
            f" Available: {names}."
        )
    model = core.model(spec)

    def images(images_u8: Sequence[ImageU8], framed: bool) -> Features:
        features = model([np.array(image) for image in images_u8], framed).features
        if features is None:
            raise SoritesError(
                f"{option('second', None)}: model {spec} has no features. Use another, such as"
                " timm:NAME or lite0."
            )
        return features

    # Fail now, not in the middle of a run, if the model has no features.
    images([np.full((64, 64, 3), 128, np.uint8)], True)
    return images, model.version


class LoadedPair:
    """Both encoders, loaded once per process, with cached features of texts and clean images."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.encoder = core.encoder(pair.encoder)
        self._first = one_at_a_time(self.encoder.images)
        self._second, self.second_version = load_image_encoder(pair.second)
        self._lock = threading.Lock()
        self._clean: dict[tuple[str, bool], tuple[Features, Features]] = {}
        self.text = functools.cache(self._encoded_text)

    def images(self, images: Sequence[ImageU8], framed: bool) -> tuple[Features, Features]:
        """Return the features of images in the space of the first and of the second encoder."""
        return self._first(images, framed), self._second(images, framed)

    def clean(
        self, sample_id: str, whole: bool, make: Callable[[], tuple[Features, Features]]
    ) -> tuple[Features, Features]:
        """Return the features of a clean image: cached ones, or those that ``make`` returns."""
        key = sample_id, whole
        with self._lock:
            found = self._clean.get(key)
        if found is None:
            found = make()
            with self._lock:
                self._clean[key] = found
                if len(self._clean) > CLEAN_KEPT:
                    del self._clean[next(iter(self._clean))]
        return found

    def _encoded_text(self, text: str) -> Features:
        with self._lock:
            return self.encoder.texts([text])


class Encoders:
    """Both encoders for the images of one plan, which may have the samples of one slice only."""

    def __init__(self, loaded: LoadedPair, plan: Plan) -> None:
        self.pair, self._loaded, self._plan = loaded.pair, loaded, plan

    @property
    def record(self) -> PairRecord:
        """Return what the similarities depend on; those of other encoders or texts are not comparable."""
        shifts = sorted(name for name in self._plan.groups if name != CLEAN)
        return PairRecord(
            encoder=self.pair.encoder,
            version=self._loaded.encoder.version,
            second=self.pair.second,
            second_version=self._loaded.second_version,
            softmax=self.pair.softmax,
            texts={name: f"{CLASS_TEXT.format('CLASS')} {self.pair.phrase(name)}" for name in shifts},
            view=self.pair.view,
        )

    def sees_whole(self, shift: str) -> bool:
        """Return whether images of a shift are shown without the suite's frame."""
        return self.pair.view == "whole" and has_whole_images(self._plan, shift)

    def is_framed(self, sample: Sample, shift: str) -> bool:
        """Return whether an image is only scaled to the input of an encoder, not cropped by it."""
        return sample.framed if self.sees_whole(shift) else self._plan.is_framed(sample)

    def images(self, images: Sequence[ImageU8], framed: bool) -> tuple[Features, Features]:
        """Return the features of images in the space of the first and of the second encoder."""
        return self._loaded.images(images, framed)

    def clean(self, sample_id: str, shift: str) -> tuple[Features, Features]:
        """Return the features of a sample's clean image, seen as its images of a shift are."""
        whole = self.sees_whole(shift)
        return self._loaded.clean(sample_id, whole, lambda: self._clean_features(sample_id, whole))

    def _clean_features(self, sample_id: str, whole: bool) -> tuple[Features, Features]:
        sample = self._plan.clean_samples[sample_id]
        if whole:
            return self.images([sample.load()], sample.framed)
        return self.images([self._plan.framed(sample_id)], self._plan.is_framed(sample))

    def texts(self, label: int | None, shift: str) -> tuple[Features, Features] | None:
        """Return the features (1 x D) of the class text and of the shift text, or None without a class."""
        names = self._plan.labels.names
        if label is None or not 0 <= label < len(names):
            return None
        text = CLASS_TEXT.format(names[label])
        return self._loaded.text(text), self._loaded.text(f"{text} {self.pair.phrase(shift)}")
