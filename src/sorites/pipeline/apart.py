"""Models of one name in several runs: told apart by their versions where these differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHORT = 6
"""Characters of a version that are shown, unless two versions begin with the same ones."""


def short_version(version: str, others: Sequence[str] = ()) -> str:
    """Return the beginning of a version that tells it from others, or a word where there is none."""
    length = next((n for n in range(SHORT, len(version)) if all(other[:n] != version[:n] for other in others)), len(version))
    return version[:length] or "no version"


def distinct_names(infos: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return, for each ``run.json``, the models that other runs hold in another version, with a name that says the version."""
    held: dict[str, list[str]] = {}
    for info in infos:
        for name, version in (info.get("models") or {}).items():
            held.setdefault(name, []).append(str(version or ""))

    def told(name: str, version: str) -> str:
        return f"{name} ({short_version(version, [other for other in set(held[name]) if other != version])})"

    differ = {name for name, versions in held.items() if len(set(versions)) > 1}
    return [{n: told(n, str(v or "")) for n, v in (info.get("models") or {}).items() if n in differ} for info in infos]


def renamed(info: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``run.json`` says with other names of some models."""

    def keyed(part: Mapping[str, Any] | None) -> dict[str, Any]:
        return {names.get(key, key): value for key, value in (part or {}).items()}

    suite = dict(info.get("suite") or {})
    if suite.get("reference") in names:
        suite["reference"] = names[suite["reference"]]
    mapped = {key: keyed(info[key]) for key in ("models", "parameters", "chosen") if info.get(key)}
    listed = [names.get(name, name) for name in info.get("not_repeating") or ()]
    return {**info, **mapped, "suite": suite, **({"not_repeating": listed} if listed else {})}
