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

    given = {name.removeprefix("sorites_"): pytestconfig.getini(name) for name in SETTINGS}
    defaults: dict[str, Any] = {name: value for name, value in given.items() if value}
    if "limit" in defaults:
        defaults["limit"] = int(defaults["limit"])
    return functools.partial(check, **defaults)
