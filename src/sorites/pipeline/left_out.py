"""Pictures that cannot be read and are therefore left out: counted, with the reason of the first, so that it can be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sorites.core import Picture, Sample
from sorites.pipeline.pictures import reason


@dataclass
class LeftOut:
    """The number of pictures of a kind that were left out, and why the first was."""

    kind: str = "pictures"
    count: int = 0
    first: str = ""

    def add(self, what: str, why: str) -> None:
        """Count one more."""
        self.count += 1
        self.first = self.first or f"{what}: {why}"

    def join(self, count: int, first: str) -> None:
        """Count those that were left out elsewhere as well."""
        self.count += count
        self.first = self.first or first

    def say(self) -> str:
        """Return one sentence about them; empty where there are none."""
        return f"{self.count} {self.kind} could not be read and are left out; the first, {self.first}" if self.count else ""


def readable(samples: Iterable[Sample], left: LeftOut) -> Iterator[tuple[Sample, Picture]]:
    """Yield the samples that can be read with their pictures; the others are counted."""
    for sample in samples:
        try:
            picture = sample.load()
        except (Exception, SystemExit) as error:
            left.add(sample.id, reason(error, "reading the picture"))
            continue
        yield sample, picture
