"""References to the image of a sample: a file, a part of a file, an array, or a function.

A reference is a small value that can be pickled. It decodes the image on request, and names the data that the
image is made from, so that a run can detect changed images without decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import BadImage, as_utf8
from sorites.io.paths import is_file, is_inside, reason
from sorites.io.stores import is_on_store, read_span, to_path


@dataclass(frozen=True, slots=True)
class FileRef:
    """An image file, or the part of a file that contains an image, such as a member of a tar.

    Attributes:
        path: The file; local, or on a store (``s3://BUCKET/FILE``).
        offset: The first byte of the image.
        size: The number of bytes of the image; None means the whole file.
        name: The name of the image in messages; default: the path.
        within: The folder that the file must be in after following links; None allows any.
        digest: The digest of the bytes (``sorites.io.digests``, or SHA-256), which are compared with it
            before they are decoded; empty if unknown.

    Example:
        >>> FileRef("photos/cat.jpg").offset
        0
    """

    path: str | Path
    offset: int = 0
    size: int | None = None
    name: str = ""
    within: Path | None = None
    digest: str = ""

    def load(self) -> NDArray[np.uint8]:
        """Decode the image: upright, RGB, 8 bits.

        Raises:
            BadImage: The file cannot be read as an image, does not match its digest, or is a link that leaves
                ``within``.
        """
        from sorites.io.decode import decode

        if self.within is not None and not is_inside(to_path(self.path), self.within):
            raise BadImage(f"{self.path} is a link that leaves the dataset folder and is not followed")
        if self.digest and (is_on_store(self.path) or is_file(self.path)):
            return decode(self._verified(), self.name or as_utf8(str(self.path)))
        return decode(self.path if self.size is None else self.read(), self.name)

    def _verified(self) -> bytes:
        from sorites.io.digests import MISMATCH, matches

        data = self.read()
        if not matches(data, self.digest):
            raise BadImage(f"{self.name or self.path}: {MISMATCH if data else 'the file is empty'}")
        return data

    def read(self) -> bytes:
        """Return the bytes of the image.

        Raises:
            BadImage: The bytes cannot be read, or the file has become shorter.
        """
        path, called = to_path(self.path), self.name or self.path
        try:
            if self.size is None:
                return path.read_bytes()
            data = read_span(path, self.offset, self.size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise BadImage(f"{called}: {reason(error)}") from error
        if len(data) != self.size:
            raise BadImage(f"{called}: {path.name} has changed since it was indexed")
        return data


@dataclass(frozen=True, slots=True)
class BytesRef:
    """An encoded image (JPEG, PNG, ...) in memory; ``name`` is its name in messages."""

    data: bytes
    name: str = ""

    def load(self) -> NDArray[np.uint8]:
        """Decode the image: upright, RGB, 8 bits.

        Raises:
            BadImage: The bytes cannot be read as an image.
        """
        from sorites.io.decode import decode

        return decode(self.data, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRef:
    """An image in memory: H x W x 3, RGB, 8 bits.

    Example:
        >>> ArrayRef(np.zeros((2, 3, 3), np.uint8)).load().shape
        (2, 3, 3)
    """

    array: NDArray[np.uint8]

    def load(self) -> NDArray[np.uint8]:
        """Return a view of the array that cannot be written to."""
        view = self.array.view()
        view.flags.writeable = False
        return view


@dataclass(frozen=True, slots=True)
class Generated:
    """An image that a function makes: drawn, rendered, or computed from other data.

    References among the arguments are passed on unchanged; they are the data that the image is made from. The
    content of an image without such arguments and without a version is unknown and counts as unchanged.

    Attributes:
        make: Returns the image (H x W x 3, RGB, 8 bits) for the arguments. A function of a module, so that
            samples can be pickled.
        args: The arguments; with texts, numbers and references, millions of samples fit into memory.
        version: Changes whenever the pixels of ``make`` change; None means unknown.

    Example:
        >>> def grey(value):
        ...     return np.full((2, 2, 3), value, np.uint8)
        >>> int(Generated(grey, (7,)).load().max())
        7
    """

    make: Callable[..., NDArray[np.uint8]]
    args: tuple[Any, ...] = ()
    version: int | str | None = None

    def load(self) -> NDArray[np.uint8]:
        """Make the image."""
        return self.make(*self.args)


ImageRef = FileRef | BytesRef | ArrayRef | Generated
REFS = (FileRef, Generated, ArrayRef, BytesRef)


def data_of(ref: ImageRef) -> Iterator[FileRef | BytesRef | ArrayRef]:
    """Yield the files, bytes and arrays that an image is made from.

    Args:
        ref: The image.

    Returns:
        The reference itself, or the data of a generated image: its version and the references among its
        arguments.

    Example:
        >>> list(data_of(Generated(len, (BytesRef(b"ab"), 3), version=2)))
        [BytesRef(data=b'2', name=''), BytesRef(data=b'ab', name='')]
    """
    if not isinstance(ref, Generated):
        yield ref
        return
    if ref.version is not None:
        yield BytesRef(str(ref.version).encode())
    for value in ref.args:
        if isinstance(value, REFS):
            yield from data_of(value)
