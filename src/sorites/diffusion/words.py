"""Learnt words: vectors that a text encoder reads in the place of a class's name (textual
inversion, Gal et al., ICLR 2023).

A folder of words holds one folder per class, ``022_bald eagle``, with
``learned_embeds.safetensors`` in the layout of diffusers (``pipe.load_textual_inversion`` reads it
as well) and ``word.json`` with everything that it was learnt by. Published embeddings are read too,
named by their file: safetensors (one token, ``emb_params``, or ``clip_l`` and ``clip_g``), and
torch files that hold only weights (one token, or ``string_to_param``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.diffusion.pipeline import BY_WORDS, Pipe, load, quiet
from sorites.io.files import write_bytes
from sorites.io.paths import reason
from sorites.io.readers import json_file

WEIGHTS, FACTS = "learned_embeds.safetensors", "word.json"
PICKLES = (".bin", ".pt", ".pth")
ENCODERS = {"sd": ("text_encoder",), "sdxl": ("text_encoder", "text_encoder_2")}
# The number of the end token in settings of old, which is wrong: an encoder that has it takes the
# highest number for the end.
OLD_END = 2
WANTED = (
    f'a folder of "sorites generate words" (NUMBER_CLASS/{WEIGHTS}), or files CLASS.safetensors, .bin, .pt'
    " with embeddings"
)


@dataclass(frozen=True, eq=False)
class Word:
    """The vectors of one class, one array (vectors x width) per text encoder of the pipeline."""

    name: str
    vectors: tuple[Any, ...] = field(repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """Return what stands for the word in a prompt."""
        return f"<{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}>"

    @property
    def version(self) -> str:
        """Return a hash of its vectors."""
        return digest(
            *(part.detach().float().cpu().numpy().tobytes().hex() for part in self.vectors), size=8
        ).hex()


def save(word: Word, folder: Path) -> None:
    """Write a word; its facts come last, and a folder without them is not read as finished."""
    from safetensors.torch import save as packed

    parts = [part.detach().float().cpu().contiguous() for part in word.vectors]
    names = ("clip_l", "clip_g") if len(parts) == 2 else (word.token,)
    write_bytes(packed(dict(zip(names, parts, strict=True)), metadata={"format": "pt"}), folder / WEIGHTS)
    facts = {**word.facts, "class": word.name, "token": word.token, "version": word.version}
    write_bytes((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode(), folder / FACTS)


def words(folder: str | Path) -> list[Word]:
    """Read all words of a folder, ours and published ones; a folder of ours without its facts is
    unfinished and left out.
    """
    root = Path(folder)
    if not root.is_dir():
        raise SoritesError(f"{root} is not a folder. Wanted {WANTED}")
    ours = [path for path in sorted(root.glob(f"*/{WEIGHTS}")) if (path.parent / FACTS).is_file()]
    others = sorted(
        path for path in root.iterdir() if path.suffix in (".safetensors", *PICKLES) and path.is_file()
    )
    found = [_ours(path) for path in ours] + [
        Word(path.stem.replace("_", " "), _vectors(path)) for path in others
    ]
    if not found:
        raise SoritesError(f"{root} holds no finished words. Wanted {WANTED}")
    return found


def _ours(path: Path) -> Word:
    facts = json_file(path.parent / FACTS, "the facts of a word")
    if not isinstance(facts, dict) or not isinstance(facts.get("class"), str):
        raise SoritesError(f"{path.parent / FACTS}: wanted an object with the class of the word")
    word = Word(facts["class"], _vectors(path), facts)
    if facts.get("version") != word.version:
        raise SoritesError(
            f"{path} is not what {FACTS} beside it describes: it was changed or cut short. Learn that word"
            " again"
        )
    return word


def _vectors(file: Path) -> tuple[Any, ...]:
    """Return the vectors of a file, one array per text encoder."""
    found = _tables(file)
    if isinstance(found.get("string_to_param"), dict):
        found = found["string_to_param"]
    if "clip_l" in found and "clip_g" in found:
        parts = [found["clip_l"], found["clip_g"]]
    else:
        parts = [part for part in found.values() if hasattr(part, "shape")][:2]
    if len(parts) not in (1, 2) or any(part.ndim not in (1, 2) for part in parts):
        raise SoritesError(
            f"{file}: wanted the vectors of one word, got {', '.join(map(str, found))[:80] or 'nothing'}."
            f" Wanted {WANTED}"
        )
    return tuple(part.float().reshape(-1, part.shape[-1]) for part in parts)


def _tables(file: Path) -> dict[str, Any]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(file))
        import torch

        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file makes the readers raise nearly anything
        said = reason(error)
        why = (
            "it holds more than weights, and reading it could run any code"
            if "weights only" in said.lower()
            else said
        )
        raise SoritesError(f"cannot read {file}: {why}. Wanted {WANTED}") from error
    if not isinstance(found, dict):
        raise SoritesError(
            f"{file}: wanted a table of embeddings, got {type(found).__name__}. Wanted {WANTED}"
        )
    return found


def with_words(pipe: Pipe, folder: str | Path) -> Pipe:
    """Return a pipeline of its own that knows the words of a folder; prompts for those classes then
    use them.
    """
    return taught(pipe, words(folder))


def taught(pipe: Pipe, known: list[Word]) -> Pipe:
    """Return a pipeline of its own that knows some words."""
    if pipe.kind not in BY_WORDS:
        raise SoritesError("wanted a pipeline that draws by words: learnt words mean nothing to a DiT")
    number = str(pipe.network.dtype).removeprefix("torch.")
    made = load(pipe.path, pipe.device, number, fresh=True)
    for word in known:
        _add(made, word)
    version = digest(
        pipe.version, *(part for word in known for part in (word.name, word.version)), size=8
    ).hex()
    return replace(made, version=version, words={word.name: word.token for word in known})


def _add(pipe: Pipe, word: Word) -> None:
    import torch

    encoders = ENCODERS[pipe.kind]
    if len(word.vectors) != len(encoders):
        raise SoritesError(
            f"the word for {word.name} is for another pipeline: it has {len(word.vectors)} parts, not"
            f" {len(encoders)}"
        )
    for name, vectors in zip(encoders, word.vectors, strict=True):
        encoder = getattr(pipe.parts, name)
        tokenizer = getattr(pipe.parts, name.replace("text_encoder", "tokenizer"))
        width = encoder.get_input_embeddings().weight.shape[1]
        if vectors.shape[1] != width:
            raise SoritesError(
                f"the word for {word.name} is for another pipeline: its vectors have {vectors.shape[1]}"
                f" numbers, not {width}"
            )
        with torch.no_grad(), quiet():
            pipe.parts.load_textual_inversion(
                vectors.to(encoder.dtype), token=word.token, text_encoder=encoder, tokenizer=tokenizer
            )
        _end_by_number(encoder, tokenizer)


def _end_by_number(encoder: Any, tokenizer: Any) -> None:
    """Let an encoder find the end of a text by the end's own number: the highest is that of a
    learnt word now.
    """
    for part in encoder.modules():
        if getattr(part, "eos_token_id", None) == OLD_END:
            part.eos_token_id = tokenizer.eos_token_id
