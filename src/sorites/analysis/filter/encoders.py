"""The two encoders of the out-of-class filter: an encoder of images and texts, and a second one of
images alone.

What a run asks for again and again, features of its clean images and of its texts, is encoded
once per process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sorites import core
from sorites.core import CLEAN, ENCODERS, MODELS, Features, ImageU8
from sorites.core.errors import SoritesError
from sorites.evaluation.plan import Plan

# The text that names the class; the one that names the shift adds a phrase to it. These are the
# prompts of the released code.
CLASS_TEXT = "a photo of a {}"
# The number of clean images whose features are kept: those of some slices, over all of their
# shifts.
CLEAN_KEPT = 256

Images = Callable[[Sequence[ImageU8], bool], Features]


@dataclass(frozen=True)
class Pair:
    """The encoders and texts of a filter by name: what its similarities follow from, besides the run."""

    encoder: str
    second: str
    softmax: bool = False
    phrases: tuple[tuple[str, str], ...] = ()
    """Shifts whose phrase is not the default, with it: ``("snow", "in deep snow")``."""

    def phrase(self, shift: str) -> str:
        """Return the words that put a class into a shift: "in heavy snow" for heavy_snow unless
        another phrase is given.
        """
        return dict(self.phrases).get(shift) or f"in {shift.replace('_', ' ')}"


def one_at_a_time(images: Images) -> Images:
    """Return the encoder of an encoder so that one thread calls it at a time: encoders need not be
    made for several.
    """
    lock = threading.Lock()

    def locked(images_u8: Sequence[ImageU8], framed: bool) -> Features:
        with lock:
            return images(images_u8, framed)

    return locked


def images_encoder(spec: str) -> tuple[Images, str]:
    """Return an encoder of images and its version by name: an encoder, or a model that gives features."""
    name, _ = core.split_spec(spec)
    if name in ENCODERS.names():
        try:
            judge = core.encoder(spec)
            return one_at_a_time(judge.images), judge.version
        except SoritesError:
            if name not in MODELS.names():
                raise
    elif name not in MODELS.names():
        known = ", ".join(sorted({*MODELS.names(), *ENCODERS.names()}))
        raise SoritesError(
            f"--second: wanted a model that gives features or an encoder, got {spec!r}. There are {known}."
        )
    model = core.model(spec)

    def images(images_u8: Sequence[ImageU8], framed: bool) -> Features:
        found = model([np.array(image) for image in images_u8], framed).features
        if found is None:
            raise SoritesError(
                f"--second: the model {spec} gives no features. Name another, such as timm:NAME or lite0."
            )
        return found

    images([np.full((64, 64, 3), 128, np.uint8)], True)
    return images, model.version


class Encoders:
    """Both encoders, loaded, with the texts and the clean images of one run."""

    def __init__(self, pair: Pair, plan: Plan) -> None:
        self.pair, self._plan = pair, plan
        self.encoder = core.encoder(pair.encoder)
        self._first = one_at_a_time(self.encoder.images)
        self._second, self._second_version = images_encoder(pair.second)
        self._samples = plan.clean_samples
        self.clean = functools.lru_cache(CLEAN_KEPT)(self._clean)
        self._texts_lock = threading.Lock()
        self._text = functools.cache(self._encoded_text)

    @property
    def record(self) -> Mapping[str, object]:
        """Return what similarities follow from: those by other encoders or texts do not compare."""
        shifts = sorted(name for name in self._plan.groups if name != CLEAN)
        texts = {name: f"{CLASS_TEXT.format('CLASS')} {self.pair.phrase(name)}" for name in shifts}
        encoder = {"encoder": self.pair.encoder, "version": self.encoder.version}
        second = {
            "second": self.pair.second,
            "second_version": self._second_version,
            "softmax": self.pair.softmax,
        }
        return {**encoder, **second, "texts": texts}

    def images(self, images: Sequence[ImageU8], framed: bool) -> tuple[Features, Features]:
        """Return the features of some images in the encoder's space and in the second encoder's."""
        return self._first(images, framed), self._second(images, framed)

    def _clean(self, sample_id: str) -> tuple[Features, Features]:
        return self.images([self._plan.framed(sample_id)], self._plan.is_framed(self._samples[sample_id]))

    def texts(self, label: int | None, shift: str) -> tuple[Features, Features] | None:
        """Return the features, 1 x D, of the text that names a class and of the one that names it
        in a shift.
        """
        names = self._plan.labels.names
        if label is None or not 0 <= label < len(names):
            return None
        text = CLASS_TEXT.format(names[label])
        return self._text(text), self._text(f"{text} {self.pair.phrase(shift)}")

    def _encoded_text(self, text: str) -> Features:
        with self._texts_lock:
            return self.encoder.texts([text])
