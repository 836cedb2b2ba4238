"""Wikimedia Commons: its search, with the facts of each file. It needs no key and cannot filter by licence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sorites.collecting.client import Failed
from sorites.collecting.found import Found, address, licence_of, number, plain
from sorites.collecting.services.service import Page, Params, Service, objects, result


class Commons(Service):
    """Asks ``api.php`` for files by words; the width of their scaled copies is ours to choose."""

    name = "commons"
    public = "https://commons.wikimedia.org/w/api.php"

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Ask for bitmaps, fifty a page, with the facts that tell their licence."""
        return {
            "action": "query", "format": "json", "formatversion": "2", "generator": "search", "gsrnamespace": "6",
            "gsrsearch": f"{query} filetype:bitmap", "gsrlimit": "50", "prop": "imageinfo", "iiprop": "url|size|mime|extmetadata",
            "iiurlwidth": str(self.width), "iiextmetadatafilter": "Artist|LicenseShortName|LicenseUrl|ObjectName",
        }  # fmt: skip

    def ask(self, params: Params) -> Any:
        """Ask for a page."""
        return self.client.json(self.base, params)

    def read(self, params: Params, answer: Any) -> Page:
        """Read ``query.pages`` in the order of their index, and ``continue``."""
        if "error" in answer:
            raise Failed(f"commons answered with an error: {plain(answer['error'].get('info'))}")
        pages = objects(answer.get("query", {}).get("pages", []))
        ordered = sorted(pages, key=lambda page: number(page.get("index")) or 0)
        onward = answer.get("continue") or {}
        more = {key: plain(onward[key]) for key in ("gsroffset", "continue") if key in onward}
        return Page(tuple(filter(None, map(_found, ordered))), {**params, **more} if more else None)


def _found(page: Mapping[str, Any]) -> Found | None:
    info = next(iter(objects(page.get("imageinfo", []))), None)
    if info is None:
        return None
    stated = plain(_fact(info, "LicenseShortName"))
    return result(
        "commons", page.get("pageid"), url=info.get("thumburl") or info.get("url"), page=info.get("descriptionurl"),
        title=_fact(info, "ObjectName") or plain(page.get("title")).removeprefix("File:"), author=_fact(info, "Artist"),
        licence=licence_of(address(_fact(info, "LicenseUrl")), stated), stated=stated,
        size=(info.get("thumbwidth") or info.get("width"), info.get("thumbheight") or info.get("height")),
    )  # fmt: skip


def _fact(info: Mapping[str, Any], name: str) -> Any:
    facts = info.get("extmetadata")
    entry = facts.get(name) if isinstance(facts, dict) else None
    return entry.get("value") if isinstance(entry, dict) else None
