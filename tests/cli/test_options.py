"""Options that several verbs share, read from the words typed."""

from __future__ import annotations

import pytest

from sorites.cli.options import further_sources
from sorites.core.errors import SoritesError


def test_further_sources_are_read_from_the_words_typed() -> None:
    found = further_sources(
        ["imagenet_es:DIR", "focus=focus:DB"], ["far:textures=folder:a=b", "ninco=folder:c"]
    )
    assert (found["source"], found["source_name"]) == ("imagenet_es:DIR", None)
    assert [(e["role"], e["group"], e["name"], e["spec"]) for e in found["sources"]] == [
        ("id", None, "focus", "focus:DB"),
        ("ood", "far", "textures", "folder:a=b"),
        ("ood", None, "ninco", "folder:c"),
    ]
    assert further_sources(["es=folder:x"], None) == {
        "source": "folder:x",
        "source_name": "es",
        "sources": (),
    }
    assert further_sources(["cns_bench:x,annotations=y"], None)["source"] == "cns_bench:x,annotations=y"
    assert further_sources(None, None) == {"source": None, "source_name": None, "sources": ()}
    with pytest.raises(SoritesError, match="expected --ood GROUP:NAME=SPEC"):
        further_sources(None, ["folder:x"])
