"""A polite client: it says who asks, keeps one connection per host and a gap between requests,
heeds rates, and limits how much it reads.
"""

from __future__ import annotations

import contextlib
import email.utils
import ipaddress
import re
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from sorites.core.errors import MissingExtra, SoritesError
from sorites.io.readers import json_value

if TYPE_CHECKING:
    import httpx

# Decide which web addresses may be asked: public ones, and those of the service's own machine where a
# user named one.


# From the name of a host to its addresses.
Resolve = Callable[[str], list[str]]


class Refused(SoritesError):
    """An address that a page or a redirect names and that is not asked."""


def resolve(host: str) -> list[str]:
    """Return the addresses of a host by the system's look-up."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"the name {host[:80]} cannot be looked up: {error}") from error


class Gate:
    """Lets addresses through: http and https, to public machines only; with a base on loopback, to
    loopback only as well.
    """

    def __init__(self, base: str, look_up: Resolve = resolve) -> None:
        self.host = host_of(base)
        self.look_up = look_up
        self.loopback = any(_is_loopback(address) for address in self._addresses(self.host, literal=True))
        self.proxied = bool(urllib.request.getproxies()) and not self.loopback

    def check(self, url: str) -> None:
        """Refuse an address of another scheme, with a password in it, or of a machine that is not public."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise Refused(
                f"an address with the scheme {parts.scheme[:20]!r} is not asked, only http and https"
            )
        if parts.username or parts.password:
            raise Refused("an address with a name and password in it is not asked")
        host = host_of(url)
        if host == self.host:
            return
        for found in self._addresses(host, literal=self.proxied):
            self.check_machine(found)

    def check_machine(self, found: str) -> None:
        """Refuse the address of a machine that is not public, unless both it and the service are on
        loopback.
        """
        if not ipaddress.ip_address(found.partition("%")[0]).is_global and not (
            self.loopback and _is_loopback(found)
        ):
            raise Refused(f"{found} is not a public address, so it is not asked")

    def _addresses(self, host: str, literal: bool) -> list[str]:
        """Return the addresses of a host; with ``literal`` only what its name says, since a proxy
        looks names up.
        """
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
        raise Refused(f"expected an address such as https://example.org, got {url[:80]!r}")
    return host.lower().rstrip(".")


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    return found.is_loopback


# Read from the headers of an answer how long a service asks to wait.


_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LIMIT = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{0,6})\s*([smhd])", re.I)
# Numbers above this are seconds since 1970, those below seconds from now.
_EPOCH = 1e9


def wait_asked(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before the next request; None where the service says nothing of it.

    ``Retry-After`` is seconds or a date. ``X-RateLimit-Available-*`` and ``-Remaining`` of 0 mean
    that the allowance is used up: until ``-Reset``, or for the period that ``X-RateLimit-Limit-*``
    names (``20/min``). ``Retry-After`` comes first.
    """
    low = {name.lower(): value for name, value in headers.items()}
    asked = _after(low["retry-after"]) if "retry-after" in low else None
    if asked is not None:
        return asked
    waits = [_until(low, name) for name, value in low.items() if _is_left(name) and value.strip() == "0"]
    found = [seconds for seconds in waits if seconds is not None]
    return max(found) if found else None


def _is_left(name: str) -> bool:
    return name.startswith(("x-ratelimit-", "ratelimit-")) and ("available" in name or "remaining" in name)


def _until(headers: Mapping[str, str], name: str) -> float | None:
    word = "available" if "available" in name else "remaining"
    reset = headers.get(name.replace(word, "reset"))
    if reset is not None and (seconds := _after(reset)) is not None:
        return seconds
    period = _LIMIT.match(headers.get(name.replace(word, "limit"), ""))
    return float(period[2] or 1) * _PERIODS[period[3].lower()] if period else None


def _after(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp()
        except (TypeError, ValueError):
            return None
    if seconds != seconds or abs(seconds) == float("inf"):
        return None
    return max(0.0, seconds - time.time() if seconds > _EPOCH else seconds)


TRIES = 5
REDIRECTS = 5
# The most seconds that a service may ask to wait; beyond that the verb ends, and the same command
# goes on later.
PATIENCE = 300.0

# The most bytes of an answer to a search.
LARGEST_ANSWER = 16 << 20

# The most seconds that one answer may take to arrive.
SECONDS = 120.0


# The function by which the client waits; tests wait less.
pause = time.sleep


class Failed(SoritesError):
    """A request that failed for good; the message names the host and never the words after it,
    which may hold a key.
    """


class Later(SoritesError):
    """A request that may succeed another time: the service is busy, out of reach, or asks to wait
    for long.
    """


@dataclass(frozen=True)
class Answer:
    """The bytes that came, the address that they came from in the end, and the headers beside them."""

    data: bytes
    url: str
    headers: Mapping[str, str]


class Client:
    """Requests to one service and to the machines that its images lie on."""

    def __init__(self, gate: Gate, contact: str, gap: float = 1.0) -> None:
        self.gate, self.gap = gate, gap
        self.requests = 0
        self._next: dict[str, float] = {}
        self._http = _opened(contact)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def json(
        self,
        url: str,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        post: bool = False,
    ) -> Any:
        """Return the JSON answer of a service; a redirect may not leave its host, so that no key does."""
        answer = self._asked(url, LARGEST_ANSWER, params, headers or {}, post, own=True)
        try:
            return json_value(answer.data)
        except ValueError as error:
            raise Failed(f"{_called(url)} did not answer in JSON: {error}") from error

    def image(self, url: str, most: int) -> Answer:
        """Return a file of at most ``most`` bytes; a longer one is cut off and refused."""
        return self._asked(url, most, {}, {}, False, own=False)

    def _asked(
        self,
        url: str,
        most: int,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        post: bool,
        own: bool,
    ) -> Answer:
        for tried in range(TRIES):
            try:
                return self._followed(url, most, params, headers, post, own)
            except _Busy as busy:
                if tried == TRIES - 1:
                    raise Later(f"{_called(url)} {busy}; it was asked {TRIES} times") from busy
                self._pause(url, busy.seconds or 2.0**tried)
        raise AssertionError("the loop returns or raises")

    def _followed(
        self,
        url: str,
        most: int,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        post: bool,
        own: bool,
    ) -> Answer:
        at, rest = url, dict(params)
        for _ in range(REDIRECTS + 1):
            self._check(at)
            with self._sent(at, rest, headers, post) as response:
                if response.status_code not in (301, 302, 303, 307, 308):
                    return Answer(self._read(response, most), at, response.headers)
                onward, rest = _onward(at, response.headers.get("location", "")), {}
            if own and (
                host_of(onward) != host_of(at)
                or (at.startswith("https:") and not onward.startswith("https:"))
            ):
                raise Failed(f"{_called(url)} redirects searches to another host, which is not followed")
            at = onward
        raise Failed(f"{_called(url)} redirects more than {REDIRECTS} times")

    def _check(self, url: str) -> None:
        try:
            self.gate.check(url)
        except ConnectionError as error:
            raise _Busy(f"is out of reach: {error}") from error

    @contextlib.contextmanager
    def _sent(
        self, url: str, params: Mapping[str, str], headers: Mapping[str, str], post: bool
    ) -> Iterator[httpx.Response]:
        """Send one request, after the gap, and check who answers before anything of the answer is read."""
        import httpx

        host = host_of(url)
        pause(self._bearable(host, max(0.0, self._next.get(host, 0.0) - time.monotonic())))
        self.requests += 1
        method, asked = ("POST", None) if post else ("GET", dict(params) or None)
        try:
            with self._http.stream(
                method, url, headers=dict(headers), params=asked, data=dict(params) if post else None
            ) as response:
                self._check_peer(response, host)
                self._heed(response, host)
                yield response
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _Busy(f"is out of reach ({type(error).__name__})") from error
        except (httpx.InvalidURL, ValueError) as error:
            raise Failed(f"{host} was given with an address that cannot be asked") from error
        finally:
            self._next[host] = max(self._next.get(host, 0.0), time.monotonic() + self.gap)

    def _check_peer(self, response: httpx.Response, host: str) -> None:
        """Check the machine that answered: a name may lead elsewhere at the second look-up."""
        if self.gate.proxied or host == self.gate.host:
            return
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream else None
        if peer:
            self.gate.check_machine(str(peer[0]))

    def _heed(self, response: httpx.Response, host: str) -> None:
        """Note how long the headers ask to wait before the next request; raise where this one has
        to be sent again.
        """
        status = response.status_code
        seconds = wait_asked(response.headers)
        if status == 429 or status >= 500:
            raise _Busy(f"answered {status}", seconds)
        if status >= 400:
            raise Failed(f"{host} answered {status}")
        if seconds:
            self._next[host] = time.monotonic() + seconds

    def _pause(self, url: str, seconds: float) -> None:
        pause(self._bearable(_called(url), seconds))

    def _bearable(self, host: str, seconds: float) -> float:
        if seconds > PATIENCE:
            raise Later(f"{host} asks to wait {seconds / 60:.0f} minutes")
        return seconds

    def _read(self, response: httpx.Response, most: int) -> bytes:
        """Read an answer piece by piece, and stop once it is too long or takes too long."""
        told = response.headers.get("content-length", "")
        if told.isdecimal() and int(told[:15]) > most:
            raise TooLarge(f"it has {int(told[:15]):,} bytes, more than the {most:,} allowed")
        data, end = bytearray(), time.monotonic() + SECONDS
        for piece in response.iter_bytes(1 << 16):
            data += piece
            if len(data) > most:
                raise TooLarge(f"it has more than the {most:,} bytes allowed")
            if time.monotonic() > end:
                raise _Busy(f"took more than {SECONDS:.0f} seconds for one answer")
        return bytes(data)


class TooLarge(Failed):
    """An answer of more bytes than are allowed."""


class _Busy(Exception):
    """A request that is worth another try, after as many seconds as the service says."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


def _opened(contact: str) -> httpx.Client:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("collecting images", "collect") from error
    from sorites import __version__

    limits = httpx.Limits(max_connections=8, max_keepalive_connections=8)
    agent = f"Sorites/{__version__} (image collection for research; contact: {contact})"
    timeout = httpx.Timeout(30.0, connect=15.0)
    return httpx.Client(limits=limits, timeout=timeout, headers={"User-Agent": agent}, follow_redirects=False)


def _onward(at: str, location: str) -> str:
    try:
        return urljoin(at, location)
    except ValueError as error:
        raise Failed(f"{_called(at)} redirects to something that is no address") from error


def _called(url: str) -> str:
    return urlsplit(url).hostname or "the service"


__all__ = ["Answer", "Client", "Failed", "Later", "Refused", "TooLarge"]
