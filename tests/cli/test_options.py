"""Options that several verbs share, read from the words typed."""

from __future__ import annotations

import pytest

from sorites.core.errors import SoritesError
from sorites.evaluation.options import named_sources


def test_further_sources_are_read_from_the_words_typed() -> None:
    found = named_sources(["far:textures=folder:a=b", "ninco=folder:c"], "ood")
    assert found == {"far:textures": "folder:a=b", "ninco": "folder:c"}
    assert named_sources([], "ood") == {}


@pytest.mark.parametrize("text", ["folder:x", "=folder:x", "far:=folder:x", "far:textures="])
def test_a_source_without_name_or_spec_is_refused(text: str) -> None:
    with pytest.raises(SoritesError, match=r"GROUP:\]NAME=SPEC"):
        named_sources([text], "ood")
