"""A plug-in of pytest: the fixture ``assert_robust``, with the project's images as its defaults.

pytest loads it by its entry point, for every session, so that it imports Sorites only when it is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sorites.analysis.comparison.verdicts import Verdict

SETTINGS = {
    "sorites_source": "the source of images of assert_robust, such as folder:tests/images",
    "sorites_labels": "the file of class names of assert_robust",
    "sorites_limit": "the number of samples that assert_robust uses",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings."""
    for name, text in SETTINGS.items():
        parser.addini(name, text, default=None)


@pytest.fixture(scope="session")
def assert_robust(pytestconfig: pytest.Config) -> Callable[..., Verdict]:
    """Return ``sorites.assert_robust`` with the settings of the project as defaults."""
    from sorites.analysis.robust import assert_robust as check

    return functools.partial(check, **defaults(pytestconfig))


def defaults(config: pytest.Config) -> dict[str, Any]:
    """Return the settings of the project as arguments; paths are relative to the file of the settings.

    Raises:
        pytest.UsageError: The limit is not a whole number.
    """
    from sorites.core.specs import split_spec

    home = config.rootpath if config.inipath is None else config.inipath.parent
    given = {name.removeprefix("sorites_"): config.getini(name) for name in SETTINGS}
    found: dict[str, Any] = {name: value for name, value in given.items() if value}
    if "limit" in found:
        if not found["limit"].strip().isdecimal():
            raise pytest.UsageError(f"sorites_limit: expected a whole number, got {found['limit']!r}")
        found["limit"] = int(found["limit"])
    if "labels" in found and (home / found["labels"]).is_file():
        found["labels"] = str(home / found["labels"])
    if "source" in found:
        name, place = split_spec(found["source"])
        if place and (home / place.partition("?")[0]).exists():
            found["source"] = f"{name}:{home / place}"
    return found
