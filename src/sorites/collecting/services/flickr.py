"""Flickr: its search, with a key of the user's own, and its numbers of licences as it states them at the time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sorites.collecting.client import Failed
from sorites.collecting.found import Found, Licence, address, licence_of, plain
from sorites.collecting.services.service import Page, Params, Service, next_numbered, objects, result
from sorites.errors import SoritesError


class Flickr(Service):
    """Asks ``flickr.photos.search``; the key comes from FLICKR_API_KEY and is neither kept nor shown."""

    name = "flickr"
    public = "https://api.flickr.com/services/rest/"
    _licences: Mapping[str, Licence] | None = None

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Ask for photographs under the licences, which are numbers only when they are sent."""
        return {
            "method": "flickr.photos.search", "text": query, "licences": ",".join(codes), "media": "photos", "content_type": "1",
            "safe_search": "1", "sort": "relevance", "extras": "license,owner_name,url_l,url_c,url_o", "per_page": "250",
            "page": "1",
        }  # fmt: skip

    def ask(self, params: Params) -> Any:
        """Ask for a page; the first time also which number stands for which licence."""
        codes = params["licences"].split(",")
        numbers = [number for number, licence in self._known().items() if licence.code in codes]
        if not numbers:
            raise SoritesError(f"flickr has no pictures under {params['licences']}")
        sent = {key: value for key, value in params.items() if key != "licences"}
        return self._called({**sent, "license": ",".join(numbers)})

    def read(self, params: Params, answer: Any) -> Page:
        """Read ``photos``."""
        photos = answer["photos"]
        found = [_found(entry, self._known(), self.width) for entry in objects(photos["photo"])]
        return Page(tuple(filter(None, found)), next_numbered(params, photos.get("pages")))

    def _known(self) -> Mapping[str, Licence]:
        if self._licences is None:
            answer = self._called({"method": "flickr.photos.licenses.getInfo"})
            try:
                entries = objects(answer["licenses"]["license"])
            except (KeyError, TypeError) as error:
                raise Failed(f"flickr listed its licences in an unknown shape: {error}") from error
            found = {str(entry.get("id")): licence_of(address(entry.get("url"))) for entry in entries}
            self._licences = {number: licence for number, licence in found.items() if licence is not None}
        return self._licences

    def _called(self, params: Params) -> Any:
        key = os.environ.get("FLICKR_API_KEY")
        if not key:
            raise SoritesError("flickr needs a key of your own: set the environment variable FLICKR_API_KEY")
        answer = self.client.json(self.base, {**params, "api_key": key, "format": "json", "nojsoncallback": "1"})
        if not isinstance(answer, dict) or answer.get("stat") != "ok":
            said = plain(answer.get("message")) if isinstance(answer, dict) else ""
            raise Failed(f"flickr answered with an error: {said.replace(key, 'KEY') or 'no reason given'}")
        return answer


def _found(entry: Mapping[str, Any], licences: Mapping[str, Licence], width: int) -> Found | None:
    sizes = ("l", "c", "o") if width <= 1024 else ("o", "l", "c")
    size = next((name for name in sizes if entry.get(f"url_{name}")), "l")
    licence, owner, id_ = plain(entry.get("license")), plain(entry.get("owner")), plain(entry.get("id"))
    page = f"https://www.flickr.com/photos/{owner}/{id_}/"
    return result(
        "flickr", id_, url=entry.get(f"url_{size}"), page=page, title=entry.get("title"), 
        author=entry.get("ownername"), licence=licences.get(licence), stated=f"licence number {licence[:20] or 'none'}",
        size=(entry.get(f"width_{size}"), entry.get(f"height_{size}")),
    )  # fmt: skip
