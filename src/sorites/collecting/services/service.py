"""The parts that all image searches share: pages of results, asked one after the other, and results made plain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sorites.collecting.client import Client, Failed
from sorites.collecting.found import Found, Licence, address, number, plain

Params = dict[str, str]


@dataclass(frozen=True)
class Page:
    """One page of results: what was found, and how to ask for the next page (None at the end)."""

    found: tuple[Found, ...]
    next: Params | None


class Service(ABC):
    """A search at an address, asked through a polite client. An answer of another shape is an error that names the service."""

    name: ClassVar[str]
    public: ClassVar[str]

    def __init__(self, client: Client, width: int, base: str | None = None) -> None:
        self.client, self.width, self.base = client, width, base or self.public

    @abstractmethod
    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Return what is asked for the first page of a query; nothing secret is in it."""

    @abstractmethod
    def ask(self, params: Params) -> Any:
        """Return the service's answer to a question, with whatever key it needs."""

    @abstractmethod
    def read(self, params: Params, answer: Any) -> Page:
        """Return the page that an answer holds; an answer of another shape raises nearly anything."""

    def page(self, params: Params) -> Page:
        """Ask for a page of results."""
        answer = self.ask(params)
        try:
            return self.read(params, answer)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Failed(f"{self.name} answered in an unknown shape: {type(error).__name__} {error}") from error


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; entries of other kinds are skipped."""
    if not isinstance(value, list):
        raise TypeError(f"wanted a list of results, got {type(value).__name__}")
    return [entry for entry in value if isinstance(entry, dict)]


def result(
    service: str, id_: Any, *, url: Any, page: Any, title: Any, author: Any, licence: Licence | None, stated: str, size: Any
) -> Found | None:
    """Return a result with its texts made plain; None where it has no id, no file or no page."""
    key, file, seen = plain(id_), address(url), address(page)
    if not key or not file or not seen:
        return None
    return Found(service, key, file, seen, plain(title), plain(author), licence, stated or "none", *map(number, size))


def next_numbered(params: Params, pages: Any) -> Params | None:
    """Return how to ask for the page after this one, of a service that numbers its pages."""
    page = int(params["page"])
    return {**params, "page": str(page + 1)} if page < (number(pages) or 0) else None
