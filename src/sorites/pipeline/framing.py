"""The frame of each sample: it is laid on the picture, and moves the true boxes with it."""

from __future__ import annotations

import functools

from sorites.core import Box, Picture, Sample, read_only
from sorites.frame import Frame
from sorites.suite import Suite
from sorites.types.packed import ById, PackedSamples

Truth = tuple[Box, ...] | None


def frame_of(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame for a sample: that of its captured shift, else of its source, else of the suite."""
    own = next((entry.frame for entry in suite.sources if entry.name == sample.source), None) if sample.source else None
    return suite.frames.get(sample.shift) or own or suite.frame


def laid_frame(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame that is laid on the sample's picture; none is laid on one that came framed."""
    return None if sample.framed else frame_of(suite, sample)


def framed_sample(suite: Suite, sample: Sample) -> tuple[Picture, Truth]:
    """Decode a sample and lay its frame on it, unless it came framed; its true boxes are in pixels of what is returned.

    Nobody can write into the picture: others look at it too.
    """
    picture, frame = sample.load(), laid_frame(suite, sample)
    if frame is None:
        return read_only(picture), sample.truth
    truth = None if sample.truth is None else frame.moved(sample.truth, *picture.shape[:2])
    return read_only(frame(picture)), truth


def framed_picture(suite: Suite, sample: Sample) -> Picture:
    """Decode a sample and lay its frame on it, unless it came framed."""
    return framed_sample(suite, sample)[0]


class CleanPictures:
    """The clean pictures of a suite with their frames laid on, by the sample's id; the last ``kept`` of them stay in memory."""

    def __init__(self, suite: Suite, clean: PackedSamples, kept: int) -> None:
        self._samples = ById(clean)
        self._suite = suite
        self._laid = functools.lru_cache(maxsize=kept)(lambda id_: framed_sample(suite, self._samples[id_]))

    def __call__(self, id_: str) -> Picture:
        return self._laid(id_)[0]

    def truth(self, id_: str) -> Truth:
        """Return the true boxes in pixels of the framed picture, or None where nothing is known of them."""
        sample = self._samples[id_]
        return sample.truth if sample.truth is None or laid_frame(self._suite, sample) is None else self._laid(id_)[1]
