"""Learnt words on disk: ours, those of public trainers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tools.toy_world import WIDTH

from sorites.core.errors import Damaged, SoritesError
from sorites.diffusion.conditions import encode_prompt
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.records import WordRecord
from sorites.diffusion.words import RECORD, WEIGHTS, Word, save, with_learnt_words, with_words, words

VECTOR = torch.linspace(-1, 1, WIDTH)[None]


def _hidden(pipe: Pipe, text: str) -> Any:
    return encode_prompt(pipe, text, "", 16).prompt


def test_a_word_comes_back_as_it_was_written(tmp_path: Path) -> None:
    save(Word("bald eagle", (VECTOR,), WordRecord(number=22)), tmp_path / "022_bald eagle")
    [found] = words(tmp_path)
    assert (found.name, found.token, found.record.number) == ("bald eagle", "<bald-eagle>", 22)
    torch.testing.assert_close(found.vectors[0], VECTOR)


def test_a_word_changes_what_the_encoder_reads_and_only_in_a_pipeline_of_its_own(
    tiny: Pipe, tmp_path: Path
) -> None:
    save(Word("disc", (VECTOR,)), tmp_path / "000_disc")
    made = with_words(tiny, tmp_path)
    assert made.word("disc") == "<disc>"
    assert made.word("cross") == "cross"
    assert made.version != tiny.version
    plain = "a picture of a disc"
    torch.testing.assert_close(_hidden(made, plain), _hidden(tiny, plain))
    assert not torch.allclose(_hidden(made, "a picture of a <disc>"), _hidden(tiny, plain))


def test_a_word_with_the_vector_of_its_name_reads_like_the_name(tiny: Pipe) -> None:
    place = tiny.parts.tokenizer("disc", add_special_tokens=False).input_ids
    own = tiny.parts.text_encoder.get_input_embeddings().weight[place].detach()
    made = with_learnt_words(tiny, [Word("disc", (own,))])
    torch.testing.assert_close(_hidden(made, "a picture of a <disc>"), _hidden(tiny, "a picture of a disc"))


def test_both_encoders_of_stable_diffusion_xl_read_a_word_to_the_end_of_its_sentence(large: Pipe) -> None:
    """A word with the vectors of its name must read like the name, also in what is pooled at the
    end of the sentence.
    """
    own = []
    for encoder, tokenizer in (("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")):
        ids = getattr(large.parts, tokenizer)("disc", add_special_tokens=False).input_ids
        own.append(getattr(large.parts, encoder).get_input_embeddings().weight[ids].detach())
    made = with_learnt_words(large, [Word("disc", tuple(own))])
    found, wanted = (
        encode_prompt(pipe, f"a picture of a {text}", "", 16)
        for pipe, text in ((made, "<disc>"), (large, "disc"))
    )
    torch.testing.assert_close(found.prompt, wanted.prompt)
    torch.testing.assert_close(found.pooled, wanted.pooled)
    other = with_learnt_words(large, [Word("disc", (own[0], -own[1]))])
    assert not torch.allclose(encode_prompt(other, "a picture of a <disc>", "", 16).pooled, wanted.pooled)


def test_plain_diffusers_reads_ours(tiny: Pipe, tmp_path: Path) -> None:
    import diffusers

    save(Word("disc", (VECTOR,)), tmp_path / "000_disc")
    theirs = diffusers.StableDiffusionPipeline.from_pretrained(tiny.path, safety_checker=None)
    theirs.load_textual_inversion(tmp_path / "000_disc", weight_name=WEIGHTS)
    hidden = theirs.encode_prompt("a picture of a <disc>", "cpu", 1, False)[0]
    torch.testing.assert_close(hidden, _hidden(with_words(tiny, tmp_path), "a picture of a <disc>"))


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("disc.safetensors", {"emb_params": VECTOR}),
        ("disc.safetensors", {"<anything>": VECTOR[0]}),
        ("disc.bin", {"<anything>": VECTOR[0]}),
        ("disc.pt", {"string_to_param": {"*": VECTOR}, "name": "disc", "step": 3}),
    ],
)
def test_published_embeddings_load(tiny: Pipe, tmp_path: Path, name: str, table: dict[str, Any]) -> None:
    (save_file if name.endswith("safetensors") else torch.save)(table, tmp_path / name)
    [found] = words(tmp_path)
    assert found.name == "disc"
    torch.testing.assert_close(found.vectors[0], VECTOR)
    assert with_words(tiny, tmp_path).word("disc") == "<disc>"


def test_several_vectors_stand_for_one_word(tiny: Pipe) -> None:
    made = with_learnt_words(tiny, [Word("disc", (torch.cat([VECTOR, -VECTOR]),))])
    one = with_learnt_words(tiny, [Word("disc", (VECTOR,))])
    assert not torch.allclose(_hidden(made, "a <disc>"), _hidden(one, "a <disc>"))


def test_two_encoders_take_a_word_of_two_parts(large: Pipe, tmp_path: Path) -> None:
    save_file({"clip_l": torch.ones(1, 32), "clip_g": -torch.ones(1, 32)}, tmp_path / "disc.safetensors")
    made = with_words(large, tmp_path)
    assert not torch.allclose(_hidden(made, "a <disc>"), _hidden(large, "a disc"))


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("ran",)


def test_a_pickle_that_holds_more_than_weights_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"*": _Hostile()}, tmp_path / "disc.pt")
    with pytest.raises(SoritesError, match="more than weights"):
        words(tmp_path)
    assert "ran" not in capsys.readouterr().out


def test_what_is_no_word_is_refused(tiny: Pipe, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="is not a folder"):
        words(tmp_path / "nowhere")
    with pytest.raises(SoritesError, match="no finished words"):
        words(tmp_path)
    with pytest.raises(SoritesError, match="width 48, got 7"):
        with_learnt_words(tiny, [Word("disc", (torch.zeros(1, 7),))])
    with pytest.raises(SoritesError, match="expected 1 .*, got 2"):
        with_learnt_words(tiny, [Word("disc", (VECTOR, VECTOR))])
    save(Word("disc", (VECTOR,)), tmp_path / "000_disc")
    save_file({"<disc>": VECTOR + 1}, tmp_path / "000_disc" / WEIGHTS)
    with pytest.raises(Damaged, match=WEIGHTS):
        words(tmp_path)
    (tmp_path / "000_disc" / RECORD).unlink()
    with pytest.raises(SoritesError, match="no finished words"):
        words(tmp_path)
