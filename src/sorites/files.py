"""Where fetched pictures and exported models are kept between runs: ``SORITES_CACHE`` or the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache(*parts: str) -> Path:
    root = os.environ.get("SORITES_CACHE") or platformdirs.user_cache_path("sorites")
    return Path(root).joinpath(*parts)
