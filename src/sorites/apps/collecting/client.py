"""Polite HTTP client: identifies itself, keeps a gap between requests, obeys rate limits, and limits what
it reads.
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

# Allowed addresses

# Maps a host name to its IP addresses.
Resolve = Callable[[str], list[str]]


class Refused(SoritesError):
    """A URL from a page or redirect that must not be requested."""


def resolve(host: str) -> list[str]:
    """Resolve a host name with the system's resolver."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"the host {host[:80]} cannot be resolved: {error}") from error


class Gate:
    """Allows http and https URLs of public machines; with a base URL on loopback, of loopback as well.

    This protects against server-side request forgery by URLs in search results.
    """

    def __init__(self, base: str, look_up: Resolve = resolve) -> None:
        self.host = host_of(base)
        self.look_up = look_up
        self.loopback = any(_is_loopback(address) for address in self._addresses(self.host, literal=True))
        self.proxied = bool(urllib.request.getproxies()) and not self.loopback

    def check(self, url: str) -> None:
        """Refuse URLs with another scheme, with credentials, or of a machine that is not public."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise Refused(f"the scheme {parts.scheme[:20]!r} is not allowed, only http and https")
        if parts.username or parts.password:
            raise Refused("URLs with user and password are not allowed")
        host = host_of(url)
        if host == self.host:
            return
        for ip in self._addresses(host, literal=self.proxied):
            self.check_machine(ip)

    def check_machine(self, ip: str) -> None:
        """Refuse an IP address that is not public, unless it and the service are on loopback."""
        if not ipaddress.ip_address(ip.partition("%")[0]).is_global and not (
            self.loopback and _is_loopback(ip)
        ):
            raise Refused(f"{ip} is not a public address")

    def _addresses(self, host: str, literal: bool) -> list[str]:
        """Return the addresses of a host; with ``literal`` without a look-up, since a proxy resolves
        names.
        """
        try:
            return [str(ipaddress.ip_address(host.partition("%")[0]))]
        except ValueError:
            if literal:
                return ["127.0.0.1"] if host == "localhost" else []
            return self.look_up(host)


def host_of(url: str) -> str:
    """Return the lower-case host of a URL."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise Refused(f"expected a URL such as https://example.org, got {url[:80]!r}")
    return host.lower().rstrip(".")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


# Rate limits
_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LIMIT = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{0,6})\s*([smhd])", re.I)
# Larger numbers are seconds since 1970, smaller ones are seconds from now.
_MIN_TIMESTAMP = 1e9


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before the next request, or None if the headers do not say.

    ``Retry-After`` (seconds or a date) has precedence. ``X-RateLimit-Available-*`` or ``-Remaining`` of 0
    means that the quota is used up until ``-Reset``, or for the period in ``X-RateLimit-Limit-*``
    (``20/min``).
    """
    lower = {name.lower(): value for name, value in headers.items()}
    retry_after = _parse_seconds(lower["retry-after"]) if "retry-after" in lower else None
    if retry_after is not None:
        return retry_after
    waits = [
        _seconds_until_reset(lower, name)
        for name, value in lower.items()
        if _is_quota(name) and value.strip() == "0"
    ]
    known_waits = [seconds for seconds in waits if seconds is not None]
    return max(known_waits) if known_waits else None


def _is_quota(name: str) -> bool:
    return name.startswith(("x-ratelimit-", "ratelimit-")) and ("available" in name or "remaining" in name)


def _seconds_until_reset(headers: Mapping[str, str], name: str) -> float | None:
    word = "available" if "available" in name else "remaining"
    reset = headers.get(name.replace(word, "reset"))
    if reset is not None and (seconds := _parse_seconds(reset)) is not None:
        return seconds
    period = _LIMIT.match(headers.get(name.replace(word, "limit"), ""))
    return float(period[2] or 1) * _PERIODS[period[3].lower()] if period else None


def _parse_seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp()
        except (TypeError, ValueError):
            return None
    if seconds != seconds or abs(seconds) == float("inf"):
        return None
    return max(0.0, seconds - time.time() if seconds > _MIN_TIMESTAMP else seconds)


TRIES = 5
MAX_REDIRECTS = 5
# Longest wait that a service may request; beyond it the collection stops and can be resumed later.
MAX_WAIT_S = 300.0
# Maximum size of a search response.
MAX_RESPONSE_BYTES = 16 << 20
# Longest time for one response.
MAX_RESPONSE_S = 120.0

# How the client waits; replaced in tests.
pause = time.sleep


class Failed(SoritesError):
    """A request that failed permanently.

    The message names only the host, because the rest of the URL may contain a key.
    """


class Rejected(Failed):
    """A request that the service rejects as such, while others may succeed: a status of 4xx, but not that a
    key or permission is missing.
    """


class Later(SoritesError):
    """A request that may succeed later: the service is busy, unreachable, or requests a long wait.

    Args:
        text: The message.
        host_wide: Whether the host itself asks to wait, so that no other request is worth a try.
    """

    def __init__(self, text: str, host_wide: bool = False) -> None:
        super().__init__(text)
        self.host_wide = host_wide


@dataclass(frozen=True)
class Answer:
    """The content, the final URL and the headers of a response."""

    data: bytes
    url: str
    headers: Mapping[str, str]


class Client:
    """Requests to one service and to the hosts of its images.

    Args:
        gate: Decides which URLs are allowed.
        contact: E-mail or web address in the User-Agent.
        gap: Seconds between requests to a host.
    """

    def __init__(self, gate: Gate, contact: str, gap: float = 1.0) -> None:
        self.gate, self.gap = gate, gap
        self.requests = 0
        self._next: dict[str, float] = {}
        self._http = _open_client(contact)

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
        """Return the JSON response of a service; redirects to other hosts are refused, so that keys do not
        leak.
        """
        answer = self._request(url, MAX_RESPONSE_BYTES, params, headers or {}, post, own=True)
        try:
            return json_value(answer.data)
        except ValueError as error:
            raise Failed(f"{_host_name(url)} did not answer in JSON: {error}") from error

    def image(self, url: str, most: int) -> Answer:
        """Return a file; one with more than ``most`` bytes is refused."""
        return self._request(url, most, {}, {}, False, own=False)

    def _request(
        self,
        url: str,
        most: int,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        post: bool,
        own: bool,
    ) -> Answer:
        for attempt in range(TRIES):
            try:
                return self._follow(url, most, params, headers, post, own)
            except _Busy as busy:
                if attempt == TRIES - 1:
                    text = f"{_host_name(url)} {busy}; gave up after {TRIES} attempts"
                    raise Later(text, host_wide=busy.host_wide) from busy
                pause(self._limited_wait(_host_name(url), busy.seconds or 2.0**attempt))
        raise AssertionError("the loop returns or raises")

    def _follow(
        self,
        url: str,
        most: int,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        post: bool,
        own: bool,
    ) -> Answer:
        at, rest = url, dict(params)
        for _ in range(MAX_REDIRECTS + 1):
            self._check(at)
            with self._send(at, rest, headers, post) as response:
                if response.status_code not in (301, 302, 303, 307, 308):
                    return Answer(self._read(response, most), at, response.headers)
                onward, rest = _redirect_target(at, response.headers.get("location", "")), {}
            if own and (
                host_of(onward) != host_of(at)
                or (at.startswith("https:") and not onward.startswith("https:"))
            ):
                raise Failed(f"{_host_name(url)} redirects searches to another host")
            at = onward
        raise Failed(f"{_host_name(url)} redirects more than {MAX_REDIRECTS} times")

    def _check(self, url: str) -> None:
        try:
            self.gate.check(url)
        except ConnectionError as error:
            raise _Busy(f"is unreachable: {error}") from error

    @contextlib.contextmanager
    def _send(
        self, url: str, params: Mapping[str, str], headers: Mapping[str, str], post: bool
    ) -> Iterator[httpx.Response]:
        """Send one request after the gap, and check the responding machine before reading anything."""
        import httpx

        host = host_of(url)
        pause(self._limited_wait(host, max(0.0, self._next.get(host, 0.0) - time.monotonic())))
        self.requests += 1
        method, query = ("POST", None) if post else ("GET", dict(params) or None)
        try:
            with self._http.stream(
                method, url, headers=dict(headers), params=query, data=dict(params) if post else None
            ) as response:
                self._check_peer(response, host)
                self._check_status(response, host)
                yield response
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _Busy(f"is unreachable ({type(error).__name__})") from error
        except (httpx.InvalidURL, ValueError) as error:
            raise Failed(f"a URL of {host} is not valid") from error
        finally:
            self._next[host] = max(self._next.get(host, 0.0), time.monotonic() + self.gap)

    def _check_peer(self, response: httpx.Response, host: str) -> None:
        """Check the machine that responded: a name may resolve differently the second time (DNS
        rebinding).
        """
        if self.gate.proxied or host == self.gate.host:
            return
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream else None
        if peer:
            self.gate.check_machine(str(peer[0]))

    def _check_status(self, response: httpx.Response, host: str) -> None:
        """Record the requested wait, and raise an error for failures."""
        status = response.status_code
        seconds = requested_wait(response.headers)
        if status == 429 or status >= 500:
            raise _Busy(f"answered {status}", seconds, host_wide=status == 429)
        if status >= 400:
            kind = Failed if status in (401, 403, 407) else Rejected
            raise kind(f"{host} answered {status}")
        if seconds:
            self._next[host] = time.monotonic() + seconds

    def _limited_wait(self, host: str, seconds: float) -> float:
        if seconds > MAX_WAIT_S:
            raise Later(f"{host} requests a wait of {seconds / 60:.0f} minutes", host_wide=True)
        return seconds

    def _read(self, response: httpx.Response, most: int) -> bytes:
        """Read a response in chunks, and stop if it is too long or too slow."""
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:15]) > most:
            raise TooLarge(f"it has {int(declared[:15]):,} bytes, more than the {most:,} allowed")
        data, end = bytearray(), time.monotonic() + MAX_RESPONSE_S
        for piece in response.iter_bytes(1 << 16):
            data += piece
            if len(data) > most:
                raise TooLarge(f"it has more than the {most:,} bytes allowed")
            if time.monotonic() > end:
                raise _Busy(f"took more than {MAX_RESPONSE_S:.0f} seconds to respond")
        return bytes(data)


class TooLarge(Failed):
    """A response with more bytes than allowed."""


class _Busy(Exception):
    """A request worth retrying, after the given seconds if the service says so."""

    def __init__(self, why: str, seconds: float | None = None, host_wide: bool = False) -> None:
        super().__init__(why)
        self.seconds, self.host_wide = seconds, host_wide


def _open_client(contact: str) -> httpx.Client:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("collecting images", "collect") from error
    from sorites import __version__

    limits = httpx.Limits(max_connections=8, max_keepalive_connections=8)
    agent = f"Sorites/{__version__} (image collection for research; contact: {contact})"
    timeout = httpx.Timeout(30.0, connect=15.0)
    return httpx.Client(limits=limits, timeout=timeout, headers={"User-Agent": agent}, follow_redirects=False)


def _redirect_target(at: str, location: str) -> str:
    try:
        return urljoin(at, location)
    except ValueError as error:
        raise Failed(f"{_host_name(at)} redirects to an invalid URL") from error


def _host_name(url: str) -> str:
    return urlsplit(url).hostname or "the service"


__all__ = ["Answer", "Client", "Failed", "Later", "Refused", "Rejected", "TooLarge"]
