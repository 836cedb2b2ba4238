"""Read what CNS-Bench released: its sliders, as folders or as the whole archive, and its text encoder (IN*).

    cartoon_style_class_002_alpha1.0_rank4_noxattn/..._last.pt     a slider, also as .safetensors
    lora_adapters.zip                                              all of them, unpacked when needed
    DIR/text_encoder, DIR/tokenizer, DIR/tokens.pt                 an encoder with one added token per class

Torch files are read with weights only.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.diffusion.pipeline import silence_libraries, version_of, why_unreadable
from sorites.io.digests import digest_of_file
from sorites.io.files import cache, make_once

# The folder of a released slider.
_NAMED = re.compile(
    r"(?P<shift>[A-Za-z][\w-]*?)_class_(?P<number>\d{1,3})(?:_alpha[\d.]+)?(?:_rank\d+)?(?:_\w+)?"
)
_SUFFIXES = (".pt", ".safetensors")
# The largest file of a slider in an archive, in bytes.
MAX_MEMBER_BYTES = 2**30
TOKENS = "tokens.pt"


@dataclass(frozen=True)
class Packed:
    """A slider in an archive.

    Attributes:
        archive: The archive.
        member: Its name in the archive.
        crc: The archive's checksum of the member.
        size: Its size in bytes.
    """

    archive: Path
    member: str
    crc: int
    size: int

    def unpack(self) -> Path:
        """Return the member as a file in the cache."""
        key = digest(str(self.archive.resolve()), self.member, self.crc, self.size, size=16).hex()
        path = cache("sliders", key[:2], key, PurePosixPath(self.member).name)
        make_once(path, self._read)
        return path

    def _read(self) -> bytes:
        if self.size > MAX_MEMBER_BYTES:
            raise SoritesError(
                f"{self.archive}: {self.member} has {self.size:,} bytes, more than a slider can have"
            )
        try:
            with zipfile.ZipFile(self.archive) as opened:
                return opened.read(self.member)
        except (OSError, zipfile.BadZipFile, RuntimeError) as error:
            raise SoritesError(f"cannot read {self.member} in {self.archive}: {error}") from error


def find_sliders(root: Path) -> dict[tuple[str, int], Path | Packed]:
    """Return the released sliders of a folder or an archive, by shift and class number; none if it has none.

    Of several files of a slider the last by name counts, as in the released code: ``..._last`` if there is
    one.

    Raises:
        SoritesError: The archive cannot be read, or two folders are of the same shift and class.
    """
    files: list[tuple[PurePosixPath, Path | Packed]]
    if root.is_file():
        files = [(PurePosixPath(packed.member), packed) for packed in _members(root)]
    else:
        found = (path for suffix in _SUFFIXES for path in root.rglob(f"*_class_[0-9]*/*{suffix}"))
        files = [(PurePosixPath(path.relative_to(root).as_posix()), path) for path in found if path.is_file()]
    return _by_slider(sorted(files, key=lambda pair: str(pair[0])), root)


def _members(archive: Path) -> Iterable[Packed]:
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = [info for info in opened.infolist() if info.filename.endswith(_SUFFIXES)]
    except (OSError, zipfile.BadZipFile) as error:
        raise SoritesError(
            f"cannot read {archive}: {error}. Expected an archive of sliders (.zip)"
        ) from error
    return [Packed(archive, info.filename, info.CRC, info.file_size) for info in infos]


def _by_slider(
    files: Iterable[tuple[PurePosixPath, Path | Packed]], root: Path
) -> dict[tuple[str, int], Path | Packed]:
    places: dict[tuple[str, int], Path | Packed] = {}
    folders: dict[tuple[str, int], PurePosixPath] = {}
    for name, place in files:
        named = _NAMED.fullmatch(name.parent.name)
        if not named:
            continue
        key = named["shift"].lower(), int(named["number"])
        if folders.setdefault(key, name.parent) != name.parent:
            raise SoritesError(
                f"{root} has two sliders {key[0]} for the class {key[1]}: {folders[key]} and"
                f" {name.parent}. Keep one"
            )
        places[key] = place
    return places


@dataclass(frozen=True, eq=False)
class PublishedWords:
    """A released text encoder with one added token per class.

    Attributes:
        encoder: The text encoder.
        tokenizer: Its tokenizer.
        tokens: The tokens by class number.
        version: A hash of all its files.
    """

    encoder: Any
    tokenizer: Any
    tokens: tuple[str, ...]
    version: str

    def by_name(self, names: Mapping[int, str]) -> dict[str, str]:
        """Return the tokens by class name; a name of two classes has none."""
        listed = list(names.values())
        return {
            name: self.tokens[number]
            for number, name in names.items()
            if number < len(self.tokens) and listed.count(name) == 1
        }


def is_published_encoder(folder: Path) -> bool:
    """Return whether a folder has a released text encoder."""
    return (folder / TOKENS).is_file()


def read_encoder(folder: Path, dtype: str, device: str) -> PublishedWords:
    """Read a released text encoder.

    Args:
        folder: The folder with ``text_encoder``, ``tokenizer`` and ``tokens.pt``.
        dtype: The number format to load it in.
        device: The torch device that computes.

    Raises:
        SoritesError: The folder is not complete, or its tokens are not those of its tokenizer.
    """
    import torch
    from transformers import CLIPTextModel, CLIPTokenizer

    tokens = _tokens(folder / TOKENS)
    if not list((folder / "text_encoder").glob("*.safetensors")):
        raise SoritesError(f"{folder / 'text_encoder'}: expected weights as .safetensors")
    try:
        with silence_libraries():
            tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True)
            encoder = CLIPTextModel.from_pretrained(
                folder / "text_encoder",
                local_files_only=True,
                use_safetensors=True,
                dtype=getattr(torch, dtype),
            )
    except Exception as error:  # a damaged or partial folder can make the library raise anything
        raise SoritesError(f"cannot load the text encoder in {folder}: {error}") from error
    known = len(encoder.get_input_embeddings().weight)
    ids = tokenizer.convert_tokens_to_ids(list(tokens))
    for token, number in zip(tokens, ids, strict=True):
        if number is None or number == tokenizer.unk_token_id or not 0 <= number < known:
            raise SoritesError(f"{folder}: the tokenizer does not know the token {token[:80]!r} of {TOKENS}")
    version = digest(version_of(folder), digest_of_file(folder / TOKENS), size=8).hex()
    return PublishedWords(encoder.to(device).requires_grad_(False).eval(), tokenizer, tokens, version)


def _tokens(file: Path) -> tuple[str, ...]:
    import torch

    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file can make the reader raise anything
        raise SoritesError(f"cannot read {file}: {why_unreadable(error)}") from error
    tokens = content.get("tokens") if isinstance(content, dict) else None
    if (
        not isinstance(tokens, list | tuple)
        or not tokens
        or not all(isinstance(token, str) for token in tokens)
    ):
        raise SoritesError(f'{file}: expected a table with the key "tokens", a list with one token per class')
    return tuple(tokens)
