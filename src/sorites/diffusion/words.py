"""Learnt words: embeddings that replace a class name in prompts (textual inversion, Gal et al., ICLR 2023).

A folder of words has one folder per class, ``022_bald eagle``, with ``learned_embeds.safetensors`` in the
diffusers layout (``pipe.load_textual_inversion`` reads it too) and ``word.json`` with the training
parameters. Published embeddings are read too, named by their file: safetensors (one token, ``emb_params``, or
``clip_l`` and ``clip_g``) and weights-only torch files (one token, or ``string_to_param``). So are
released text encoders with added tokens (``published.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sorites.core.errors import Damaged, SoritesError
from sorites.core.labels import imagenet
from sorites.core.messages import command, option
from sorites.core.rng import digest
from sorites.diffusion.pipeline import Pipe, load, silence_libraries, why_unreadable
from sorites.diffusion.published import is_published_encoder, read_encoder
from sorites.diffusion.records import WordRecord
from sorites.io.digests import digest_of, write_sealed
from sorites.io.files import write_bytes
from sorites.io.listed import digests_of, read_verified
from sorites.io.validation import read_typed

WEIGHTS, RECORD = "learned_embeds.safetensors", "word.json"
LEARN_AGAIN = "Restore it from a backup, or delete its folder and learn the word again."
PICKLES = (".bin", ".pt", ".pth")
ENCODERS = {"sd": ("text_encoder",), "sdxl": ("text_encoder", "text_encoder_2")}
# Wrong end-token number in old CLIP configurations. An encoder that has it takes the highest token number as
# the end.
LEGACY_EOS = 2
EXPECTED = (
    f"a folder written by {command('generate words')} (NUMBER_CLASS/{WEIGHTS}), or embeddings as"
    " CLASS.safetensors, .bin, .pt"
)


@dataclass(frozen=True, eq=False)
class Word:
    """The embeddings of one class, one array (vectors x width) per text encoder of the pipeline."""

    name: str
    vectors: tuple[Any, ...] = field(repr=False)
    record: WordRecord = field(default_factory=WordRecord)

    @property
    def token(self) -> str:
        """The placeholder token of the word in prompts."""
        return f"<{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}>"

    @property
    def version(self) -> str:
        """A hash of its vectors."""
        return digest(
            *(part.detach().float().cpu().numpy().tobytes().hex() for part in self.vectors), size=8
        ).hex()


def save(word: Word, folder: Path) -> None:
    """Write a word. Its metadata is written last; a folder without it counts as unfinished."""
    from safetensors.torch import save as packed

    parts = [part.detach().float().cpu().contiguous() for part in word.vectors]
    names = ("clip_l", "clip_g") if len(parts) == 2 else (word.token,)
    (folder / RECORD).unlink(missing_ok=True)
    data = packed(dict(zip(names, parts, strict=True)), metadata={"format": "pt"})
    write_bytes(data, folder / WEIGHTS)
    files = {WEIGHTS: digest_of(data)}
    record = word.record.having(concept=word.name, token=word.token, version=word.version, files=files)
    write_sealed(record.as_json(), folder / RECORD)


def words(folder: str | Path) -> list[Word]:
    """Read all words of a folder, our own and published ones; unfinished folders are skipped."""
    root = Path(folder)
    if not root.is_dir():
        raise SoritesError(f"{root} is not a folder. Expected {EXPECTED}")
    ours = [path for path in sorted(root.glob(f"*/{WEIGHTS}")) if (path.parent / RECORD).is_file()]
    others = sorted(
        path for path in root.iterdir() if path.suffix in (".safetensors", *PICKLES) and path.is_file()
    )
    words_ = [_read_own(path) for path in ours] + [
        Word(path.stem.replace("_", " "), _vectors(path)) for path in others
    ]
    if not words_:
        raise SoritesError(f"{root} contains no finished words. Expected {EXPECTED}")
    return words_


def require_words(folder: str | Path) -> None:
    """Raise an error unless a folder has learnt words or a released text encoder; needs no pipeline."""
    if not is_published_encoder(Path(folder)):
        words(folder)


def _read_own(path: Path) -> Word:
    record = read_record(path.parent)
    if not record.concept:
        raise Damaged(path.parent / RECORD, "class: expected the name of a class", LEARN_AGAIN)
    read_verified(path, digests_of(record.files, WEIGHTS), LEARN_AGAIN)
    return Word(record.concept, _vectors(path), record)


def read_record(folder: Path) -> WordRecord:
    """Read how the word in a folder was learnt.

    Raises:
        Damaged: The record is damaged, or a field is missing, unknown or of another type.
    """
    return read_typed(folder / RECORD, WordRecord, LEARN_AGAIN)


def _vectors(file: Path) -> tuple[Any, ...]:
    """Return the vectors of a file, one array per text encoder."""
    tensors = _tables(file)
    if isinstance(tensors.get("string_to_param"), dict):
        tensors = tensors["string_to_param"]
    if "clip_l" in tensors and "clip_g" in tensors:
        parts = [tensors["clip_l"], tensors["clip_g"]]
    else:
        parts = [part for part in tensors.values() if hasattr(part, "shape")][:2]
    if len(parts) not in (1, 2) or any(part.ndim not in (1, 2) for part in parts):
        raise SoritesError(
            f"{file}: expected the vectors of one word, got {', '.join(map(str, tensors))[:80] or 'nothing'}."
            f" Expected {EXPECTED}"
        )
    return tuple(part.float().reshape(-1, part.shape[-1]) for part in parts)


def _tables(file: Path) -> dict[str, Any]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(file))
        import torch

        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file can make the readers raise anything
        raise SoritesError(f"cannot read {file}: {why_unreadable(error)}. Expected {EXPECTED}") from error
    if not isinstance(content, dict):
        raise SoritesError(
            f"{file}: expected a table of embeddings, got {type(content).__name__}. Expected {EXPECTED}"
        )
    return content


def encoders_of(pipe: Pipe) -> tuple[str, ...]:
    """Return the text encoders of a pipeline that words are learnt for.

    Raises:
        SoritesError: Words cannot be learnt for this kind of pipeline.
    """
    if pipe.kind not in ENCODERS:
        raise SoritesError(
            f"learnt words need a pipeline of Stable Diffusion 1, 2 or XL, got {type(pipe.parts).__name__}"
        )
    return ENCODERS[pipe.kind]


def with_words(pipe: Pipe, folder: str | Path, names: Mapping[int, str] | None = None) -> Pipe:
    """Return a separate pipeline that uses the learnt words of a folder in prompts.

    Args:
        pipe: The pipeline.
        folder: A folder of words, or a released text encoder (IN*) with its ``tokens.pt``.
        names: Class names by number, for a released encoder, whose tokens are numbered; they replace
            ImageNet's.
    """
    root = Path(folder)
    if not is_published_encoder(root):
        return with_learnt_words(pipe, words(root))
    if pipe.kind != "sd":
        raise SoritesError(
            f"{root} has a text encoder of Stable Diffusion 1 or 2, and the pipeline is a"
            f" {type(pipe.parts).__name__}"
        )
    number = str(pipe.network.dtype).removeprefix("torch.")
    read = read_encoder(root, number, pipe.device)
    width = int(pipe.network.config.cross_attention_dim)
    if int(read.encoder.config.hidden_size) != width:
        raise SoritesError(
            f"the text encoder in {root} is for another pipeline: expected width {width}, got"
            f" {read.encoder.config.hidden_size}"
        )
    taught_pipe = _copy_of(pipe, number)
    taught_pipe.parts.text_encoder, taught_pipe.parts.tokenizer = read.encoder, read.tokenizer
    named = read.by_name({**dict(enumerate(imagenet().names)), **(names or {})})
    version = digest(pipe.version, read.version, size=8).hex()
    versions = {name: digest(read.version, token, size=8).hex() for name, token in named.items()}
    return replace(taught_pipe, version=version, words=named, word_versions=versions, base=pipe.version)


def _copy_of(pipe: Pipe, number: str) -> Pipe:
    """Return a separate copy of a pipeline, to which words are added."""
    if pipe.saving.offload == "sequential":
        raise SoritesError(
            f"learnt words replace layers, which cannot wait on the CPU; use {option('offload', 'model')}"
        )
    return load(pipe.path, pipe.device, number, fresh=True, saving=pipe.saving)


def with_learnt_words(pipe: Pipe, words: list[Word]) -> Pipe:
    """Return a separate pipeline that uses these learnt words in prompts."""
    encoders_of(pipe)
    number = str(pipe.network.dtype).removeprefix("torch.")
    taught_pipe = _copy_of(pipe, number)
    for word in words:
        _add(taught_pipe, word)
    version = digest(
        pipe.version, *(part for word in words for part in (word.name, word.version)), size=8
    ).hex()
    return replace(
        taught_pipe,
        version=version,
        words={word.name: word.token for word in words},
        word_versions={word.name: word.version for word in words},
        base=pipe.version,
    )


def _add(pipe: Pipe, word: Word) -> None:
    import torch

    encoders = encoders_of(pipe)
    if len(word.vectors) != len(encoders):
        raise SoritesError(
            f"the word for {word.name} is for another pipeline: expected {len(encoders)} text encoders, got"
            f" {len(word.vectors)}"
        )
    for name, vectors in zip(encoders, word.vectors, strict=True):
        encoder = getattr(pipe.parts, name)
        tokenizer = getattr(pipe.parts, name.replace("text_encoder", "tokenizer"))
        width = encoder.get_input_embeddings().weight.shape[1]
        if vectors.shape[1] != width:
            raise SoritesError(
                f"the word for {word.name} is for another pipeline: expected vectors of width {width}, got"
                f" {vectors.shape[1]}"
            )
        with torch.no_grad(), silence_libraries():
            pipe.parts.load_textual_inversion(
                vectors.to(encoder.dtype), token=word.token, text_encoder=encoder, tokenizer=tokenizer
            )
        _fix_eos(encoder, tokenizer)


def _fix_eos(encoder: Any, tokenizer: Any) -> None:
    """Make an encoder find the end of a text by the real end token, since a learnt word now has the
    highest number.
    """
    for part in encoder.modules():
        if getattr(part, "eos_token_id", None) == LEGACY_EOS:
            part.eos_token_id = tokenizer.eos_token_id
