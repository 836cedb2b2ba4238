"""Decide which web addresses may be asked: public ones, and those of the service's own machine where a user named one."""

from __future__ import annotations

import ipaddress
import socket
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from sorites.errors import SoritesError

Resolve = Callable[[str], list[str]]
"""From the name of a host to its addresses."""


class Refused(SoritesError):
    """An address that a page or a redirect names and that is not asked."""


def resolve(host: str) -> list[str]:
    """Return the addresses of a host by the system's look-up."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"the name {host[:80]} cannot be looked up: {error}") from error


class Gate:
    """Lets addresses through: http and https, to public machines only; with a base on loopback, to loopback only as well."""

    def __init__(self, base: str, look_up: Resolve = resolve) -> None:
        self.host = host_of(base)
        self.look_up = look_up
        self.loopback = any(_is_loopback(address) for address in self._addresses(self.host, literal=True))
        self.proxied = bool(urllib.request.getproxies()) and not self.loopback

    def check(self, url: str) -> None:
        """Refuse an address of another scheme, with a password in it, or of a machine that is not public."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise Refused(f"an address with the scheme {parts.scheme[:20]!r} is not asked, only http and https")
        if parts.username or parts.password:
            raise Refused("an address with a name and password in it is not asked")
        host = host_of(url)
        if host == self.host:
            return
        for found in self._addresses(host, literal=self.proxied):
            self.check_machine(found)

    def check_machine(self, found: str) -> None:
        """Refuse the address of a machine that is not public, unless both it and the service are on loopback."""
        if not ipaddress.ip_address(found.partition("%")[0]).is_global and not (self.loopback and _is_loopback(found)):
            raise Refused(f"{found} is not a public address, so it is not asked")

    def _addresses(self, host: str, literal: bool) -> list[str]:
        """Return the addresses of a host; with ``literal`` only what its name says, since a proxy looks names up."""
        try:
            return [str(ipaddress.ip_address(host.partition("%")[0]))]
        except ValueError:
            if literal:
                return ["127.0.0.1"] if host == "localhost" else []
            return self.look_up(host)


def host_of(url: str) -> str:
    """Return the host that an address names, in lower case."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise Refused(f"wanted an address such as https://example.org, got {url[:80]!r}")
    return host.lower().rstrip(".")


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    return found.is_loopback
