"""Which addresses are asked, with look-ups that say what the test says."""

from __future__ import annotations

import pytest

from sorites.apps.collecting.client import Gate, Refused, host_of

BOOK = {
    "public.example": ["93.184.216.34"],
    "inside.example": ["192.168.1.4"],
    "both.example": ["93.184.216.34", "127.0.0.1"],
}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.getproxies", dict)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://localhost/x",
        "http://[::1]/x",
        "http://10.1.2.3/x",
        "http://192.168.1.4:80/x",
        "http://169.254.169.254/",
        "http://0.0.0.0/",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://100.64.0.1/",
        "http://inside.example/x",
        "http://both.example/x",
        "file:///etc/passwd",
        "ftp://public.example/",
        "gopher://public.example/",
        "data:image/png;base64,xx",
        "javascript:alert(1)",
        "http://name:word@public.example/",
        "http://",
        "//public.example/x",
        "",
    ],
)
def test_refused(url: str) -> None:
    """With a public base, nothing private is asked, whether by its number or by a name that leads there."""
    look_up = {**BOOK, "localhost": ["127.0.0.1"]}
    with pytest.raises(Refused):
        Gate("https://api.example/v1", look_up.__getitem__).check(url)


def test_allowed() -> None:
    """Public machines are asked; with a base on loopback, loopback too, and still nothing else that
    is private.
    """
    Gate("https://api.example/v1", BOOK.__getitem__).check("https://public.example/a.jpg")
    near = Gate("http://127.0.0.1:8000/v1", BOOK.__getitem__)
    near.check("http://127.0.0.1:9000/a.jpg")
    with pytest.raises(Refused):
        near.check("http://inside.example/a.jpg")
    with pytest.raises(Refused):
        near.check("http://10.0.0.1/a.jpg")
    own = Gate("http://192.168.1.4/v1", BOOK.__getitem__)
    own.check("http://192.168.1.4/a.jpg")
    with pytest.raises(Refused):
        own.check("http://192.168.1.5/a.jpg")


def test_machine_that_answers() -> None:
    """A machine is judged by its address alone, whatever name led to it."""
    gate = Gate("https://api.example", BOOK.__getitem__)
    gate.check_machine("93.184.216.34")
    with pytest.raises(Refused, match="fe80::1"):
        gate.check_machine("fe80::1%eth0")


def test_host() -> None:
    """Hosts are compared in one spelling."""
    assert host_of("https://API.Example./v1") == "api.example"
