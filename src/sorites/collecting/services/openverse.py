"""Openverse: a search over openly licensed pictures of many providers. It works without a key, at a lower rate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sorites.collecting.client import Failed
from sorites.collecting.found import Found, licence_of, licence_page, plain
from sorites.collecting.services.service import Page, Params, Service, next_numbered, objects, result
from sorites.errors import SoritesError


class Openverse(Service):
    """Asks ``/v1/images/``; with OPENVERSE_CLIENT_ID and OPENVERSE_CLIENT_SECRET it asks for a token first."""

    name = "openverse"
    public = "https://api.openverse.org/v1/images/"
    _token = ""

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Ask for pictures under the licences; twenty a page, which is the most without a key."""
        asked = ",".join(code for code in codes if code != "pd")
        if not asked:
            raise SoritesError("openverse knows the licences of Creative Commons, cc0 and pdm; --licence pd is for commons alone")
        return {"q": query, "license": asked, "page": "1", "page_size": "20"}

    def ask(self, params: Params) -> Any:
        """Ask for a page, with a token where the environment has a client's id and secret; both stay in memory."""
        name, secret = os.environ.get("OPENVERSE_CLIENT_ID"), os.environ.get("OPENVERSE_CLIENT_SECRET")
        if name and secret and not self._token:
            self._token = self._asked_token(name, secret)
        return self.client.json(self.base, params, {"Authorization": f"Bearer {self._token}"} if self._token else {})

    def _asked_token(self, name: str, secret: str) -> str:
        where = self.base.replace("/images/", "/auth_tokens/token/")
        asked = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = self.client.json(where, asked, post=True)
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Failed("openverse gave no token for OPENVERSE_CLIENT_ID and OPENVERSE_CLIENT_SECRET")
        return token

    def read(self, params: Params, answer: Any) -> Page:
        """Read ``results`` and ``page_count``."""
        found = [_found(entry) for entry in objects(answer["results"])]
        return Page(tuple(filter(None, found)), next_numbered(params, answer.get("page_count")))


def _found(entry: Mapping[str, Any]) -> Found | None:
    """Read a result; where the licence's code and its page disagree, the licence is unknown."""
    code, version, page = plain(entry.get("license")).lower(), plain(entry.get("license_version")), entry.get("license_url")
    licence = licence_of(page if isinstance(page, str) and page else licence_page(code, version))
    agree = licence is not None and licence.code == code
    stated = f"{code} {version}".strip()
    return result(
        "openverse", entry.get("id"), url=entry.get("url"), page=entry.get("foreign_landing_url"), title=entry.get("title"),
        author=entry.get("creator"), licence=licence if agree else None, stated=stated if agree or not licence else f"{stated} "
        f"or {licence}", size=(entry.get("width"), entry.get("height")),
    )  # fmt: skip
