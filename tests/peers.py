"""Libraries of the extra ``peers``, which ``make slow`` installs."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest


def peer(name: str) -> Any:
    """Import a library of the extra, whatever warnings it raises, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name.partition(".")[0]):
                raise
    pytest.skip(f"{name} is not installed: pip install -e '.[peers]'")
