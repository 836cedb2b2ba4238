"""Tasks as data: built-in ones, and what is said about mistakes in one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.apps.annotation.task import load, names, parse
from sorites.core.errors import SoritesError
from sorites.sources.papers.focus import WORDS

OWN = """
name = "own"
title = "Mine"
instructions = "Look."
[[questions]]
id = "q"
ask = "What?"
choices = [{ value = "a" }, { value = "b" }]
"""


def test_built_in_tasks_can_be_read() -> None:
    assert names() == ["boxes", "context", "in_class", "visible"]
    for name in names():
        assert load(name)[0].name == name


def test_keys_of_a_task_lead_to_one_choice() -> None:
    for name in names():
        keys = [choice.key for question in load(name)[0].questions for choice in question.choices]
        assert len(set(keys)) == len(keys)
        assert all(keys)


def test_context_has_the_words_of_focus() -> None:
    task = load("context")[0]
    assert {"time": task.question("time").values, "weather": task.question("weather").values,
            "location": task.question("locations").values} == dict(WORDS)  # fmt: skip
    assert task.question("category").values[-1] == "none"
    assert (task.batch.size, task.batch.known, task.qualification.images) == (25, 2, 10)


def test_in_class_has_the_rule_of_its_paper() -> None:
    task = load("in_class")[0]
    assert task.rule == "at_least_one"
    assert task.questions[0].first == ("not class", "class", "partly")


def test_own_tasks_take_every_kind(tmp_path: Path) -> None:
    more = "".join(
        f'[[questions]]\nid = "{kind}"\nask = "?"\nkind = "{kind}"\n' for kind in ("scale", "text")
    )
    path = tmp_path / "own.toml"
    path.write_text(OWN + more)
    assert [question.kind for question in load(str(path))[0].questions] == ["single", "scale", "text"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("choices = [{ value = \"a\" }, { value = \"b\" }]", ""), "needs choices"),
        (('value = "b"', 'value = "a"'), "same value"),
        (("ask =", 'kind = "many"\nask ='), "kind: .*got 'many'"),
        (("title", "tilte"), "tilte"),
        (("[[questions]]", 'rule = "at_least_one"\n[[questions]]'), "needs first"),
        (("[[questions]]", "[batch]\nsize = 2\nknown = 2\n[[questions]]"), "known must be"),
        (('id = "q"', 'id = "no spaces"'), "id"),
        (("name =", "name = = "), "not valid TOML"),
    ],
)  # fmt: skip
def test_mistakes_are_named(change: tuple[str, str], said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        parse(OWN.replace(*change))


def test_an_unknown_task_suggests_others() -> None:
    with pytest.raises(SoritesError, match="in_class"):
        load("in_clas")
    with pytest.raises(SoritesError, match="not found"):
        load("nowhere.toml")
