"""A web on loopback, and a collection that asks it without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.apps.collecting.web import Web, served

from sorites.apps.collecting.collect import Collected, collect
from sorites.apps.collecting.options import Criteria
from sorites.apps.collecting.plan import queries_from_texts

Gather = Callable[..., Collected]


def reasons(found: Collected) -> dict[str, str]:
    """What became of each image, by the service's id."""
    return {row.found.id: row.outcome.reason or "kept" for row in found.rows}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("OPENVERSE_CLIENT_ID", "OPENVERSE_CLIENT_SECRET", "FLICKR_API_KEY", "SORITES_CONTACT"):
        monkeypatch.delenv(name, raising=False)
    with served() as web:
        yield web


@pytest.fixture
def gather(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gather:
    """Collect one query from services on loopback, with requests that follow one another at once."""
    monkeypatch.setattr("sorites.apps.collecting.client.pause", lambda seconds: None)
    bases = {
        "openverse": f"{web.url}/v1/images/",
        "commons": f"{web.url}/w/api.php",
        "flickr": f"{web.url}/services/rest/",
    }

    def run(*services: str, queries: tuple[str, ...] = ("ship on grass",), **wanted: object) -> Collected:
        asked = Criteria(gap=0, **wanted)  # type: ignore[arg-type]
        names = services or ("openverse",)
        return collect(
            queries_from_texts(queries),
            tmp_path / "out",
            services=names,
            contact="me@example.org",
            options=asked,
            bases=bases,
        )

    return run
