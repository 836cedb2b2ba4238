"""What has another name since the hashes were taken (``renames.toml``), and the comparison that
allows for it.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FILE = Path(__file__).with_name("renames.toml")
TABLES = ("columns", "keys", "flags", "names", "values")
Held = Mapping[str, "str | list[str]"]
Renames = Mapping[str, Mapping[str, str]]
WORDS = "words/"
"""The beginning of the names of texts and drawings, which may change."""
RAISED = "(raised)"


@functools.cache
def renames() -> Renames:
    """The tables of ``renames.toml``."""
    held = tomllib.loads(FILE.read_text(encoding="utf-8"))
    if unknown := held.keys() - set(TABLES):
        raise ValueError(
            f"{FILE}: no table is named {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}"
        )
    return {table: held.get(table, {}) for table in TABLES}


def now(table: str, *there: str) -> Callable[[str], str]:
    """A function that gives the name that something has today: its old name if it is there, else
    its new one.
    """

    def name(old: str) -> str:
        return old if old in there else renames()[table].get(old, old)

    return name


def words_now(words: Sequence[str]) -> list[str]:
    """A typed command with the verbs and flags of today."""
    flags, verbs = renames()["flags"], list(words)
    for n in (2, 1):
        if new := flags.get(" ".join(words[:n])):
            verbs = [*new.split(), *words[n:]]
            break
    return [flags.get(word, word) if word.startswith("-") else word for word in verbs]


def compare(before: Held, found: Held, with_words: bool = False) -> int:
    """Print every entry that differs, is new or is gone after renaming; return 1 if there is one that counts.

    Texts and drawings (``words/``) are counted apart, and count only if ``with_words``.
    """
    matched = _matched(before, found)
    told = {new: _difference(new, before[old], found[new]) for old, new in matched.items()}
    told |= dict.fromkeys(found.keys() - set(matched.values()), "is new")
    told |= dict.fromkeys(before.keys() - matched.keys(), "is gone")
    changed = {name: how for name, how in told.items() if how}
    counted = {name: how for name, how in changed.items() if with_words or not name.startswith(WORDS)}
    for name, how in sorted(counted.items()):
        print(f"{name}: {how}" + (f" ({found[name]})" if name.endswith(RAISED) and name in found else ""))
    if words := len(changed) - len(counted):
        print(f"{words} texts and drawings (words/) differ, which is allowed; --words names them")
    failed = sum(name.endswith(RAISED) for name in found)
    print(f"{len(counted)} of {len(told)} entries differ" if counted else f"{len(told)} entries, all equal")
    return int(bool(counted) or bool(failed))


def _matched(before: Held, found: Held) -> dict[str, str]:
    """The name of today for each old name that is still there, under its new name first and then
    under its old one.
    """
    pairs: dict[str, str] = {}
    for old in before:
        for name in (_renamed(old), old):
            if name in found:
                pairs[old] = name
                break
    taken: dict[str, str] = {}
    for old, name in pairs.items():
        if name not in taken or old != name:
            taken[name] = old
    return {old: name for name, old in taken.items()}


def _renamed(name: str) -> str:
    """A hash's name with every part of it renamed; names with slashes are its beginning, and go first."""
    held = renames()
    for old, new in held["names"].items():
        if "/" in old and (name == old or name.startswith(f"{old}/")):
            name = new + name[len(old) :]
    parts: dict[str, str] = {**held["keys"], **held["columns"], **held["names"], **held["flags"]}
    return "/".join(parts.get(part, part) for part in name.split("/"))


def _difference(name: str, old: str | list[str], new: str | list[str]) -> str:
    """What differs in words, or nothing."""
    if isinstance(old, str) or isinstance(new, str):
        return "" if old == new else "differs"
    held = renames()
    every = {**held["keys"], **held["columns"], **held["names"], **held["flags"], **held["values"]}
    same = [
        word if word in new and every.get(word, word) not in new else every.get(word, word) for word in old
    ]
    # a sorted list has another order when words in it are renamed
    if old == sorted(old) and not name.endswith("(values)"):
        same, new = sorted(same), sorted(new)
    if same == new:
        return ""
    lost, added = [word for word in same if word not in new], [word for word in new if word not in same]
    told = [f"lost {', '.join(lost)}"] * bool(lost) + [f"new {', '.join(added)}"] * bool(added)
    return "; ".join(told) or "is in another order"
