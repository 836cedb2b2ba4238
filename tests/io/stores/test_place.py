"""Places by what was typed, before any store is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.io.stores import StorePath, to_path


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("s3://", "s3://BUCKET/PATH"),
        (Path("gs://"), "gs:// names no bucket"),
        ("x\0y", "a null character"),
    ],
)
def test_what_is_no_place_is_said(typed: str | Path, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        to_path(typed)


def test_a_scheme_makes_a_place_on_a_store() -> None:
    assert str(to_path(Path("s3://bucket/run"))) == "s3://bucket/run"
    assert isinstance(to_path("s3://bucket"), StorePath)
    assert to_path("runs/a") == Path("runs/a")
    assert not isinstance(to_path("runs/s3:/a"), StorePath)
