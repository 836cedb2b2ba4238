"""Hue clients: both versions against our own bridge, the first against npm's hue-simulator too,
which nobody here wrote.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sorites.apps.studio.devices import (
    DeviceOptions,
    LampSpec,
    lamp_lines,
    lamp_spec,
    open_lamps,
    pair_bridge,
)
from sorites.apps.studio.hue import HueV1, HueV2, client, load_key, pair, store_key
from sorites.apps.studio.lamps import LampError, Lamps, Look
from sorites.apps.studio.tls import own_context
from sorites.apps.studio.virtual.bridge import VirtualBridge
from sorites.core.errors import SoritesError


@pytest.fixture
def bridge() -> Iterator[VirtualBridge]:
    made = VirtualBridge()
    yield made
    made.stop()


@pytest.fixture
def secure() -> Iterator[tuple[VirtualBridge, str]]:
    context, fingerprint = own_context("127.0.0.1")
    made = VirtualBridge(tls=context)
    yield made, fingerprint
    made.stop()


@pytest.fixture
def to() -> Iterator[Callable[..., httpx.Client]]:
    """Connects to bridges, and ends all connections."""
    made: list[httpx.Client] = []

    def connected(*how: Any) -> httpx.Client:
        made.append(client(*how)[0])
        return made[-1]

    yield connected
    for http in made:
        http.close()


def test_version_1_switches_and_reads_back(bridge: VirtualBridge, to: Callable[..., httpx.Client]) -> None:
    lamps = Lamps(HueV1(to(bridge.host, False), bridge.new_key()), Look(60), 0.0)
    states = lamps.set("on")
    assert bridge.light() == pytest.approx(0.6, abs=0.01)
    assert [state.on for state in states.values()] == [True, True]
    assert not any(state.on for state in lamps.set("off").values())
    assert bridge.light() == 0


def test_version_2_over_https_with_a_pinned_certificate(
    secure: tuple[VirtualBridge, str], to: Callable[..., httpx.Client]
) -> None:
    bridge, fingerprint = secure
    http = to(bridge.host, True, fingerprint)
    lamps = Lamps(HueV2(http, bridge.new_key()), Look(40), 0.0)
    state = next(iter(lamps.set("on").values()))
    assert state.brightness == pytest.approx(39.76, abs=0.01)
    assert not any(state.on for state in lamps.set("off").values())
    with pytest.raises(SoritesError, match="key"):
        HueV2(http, "wrong").states()
    with pytest.raises(SoritesError, match="another certificate"):
        client(bridge.host, True, "11" * 32)


def test_pairing_waits_for_the_button_and_keeps_the_key(
    secure: tuple[VirtualBridge, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge, fingerprint = secure
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path))
    wanted = DeviceOptions(lamps=f"hue:{bridge.host}", settle_s=0)
    with pytest.raises(SoritesError, match="not paired"):
        open_lamps(wanted)
    with pytest.raises(SoritesError, match="link button"):
        pair_bridge(wanted.lamps, lambda text: None, wait=0)
    said: list[str] = []
    bridge.press()
    assert pair_bridge(wanted.lamps, said.append) == fingerprint
    kept = tmp_path / "studio" / "bridges.json"
    assert kept.stat().st_mode & 0o077 == 0
    lamps = open_lamps(wanted)
    assert lamps.set("on")
    lamps.close()
    store_key(bridge.host, load_key(bridge.host)["key"], "22" * 32)
    with pytest.raises(SoritesError, match="another certificate"):
        open_lamps(wanted)


@pytest.mark.slow
def test_a_stuck_lamp_is_asked_again_and_then_named(
    bridge: VirtualBridge, to: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sorites.apps.studio.lamps.READ_BACK_S", 0.2)
    lamps = Lamps(HueV1(to(bridge.host, False), bridge.new_key()), Look(), 0.0)
    bridge.faults.add("stuck", 2)
    lamps.set("on")
    assert bridge.light() == 1
    bridge.faults.add("stuck", 100)
    with pytest.raises(LampError, match="off: lamp 1, lamp 2"):
        lamps.set("off")


def test_an_unknown_lamp_and_an_unknown_key_are_said(
    bridge: VirtualBridge, to: Callable[..., httpx.Client]
) -> None:
    http = to(bridge.host, False)
    with pytest.raises(SoritesError, match="no lamp named kitchen"):
        Lamps(HueV1(http, bridge.new_key()), Look(), 0.0, ("kitchen",))
    with pytest.raises(SoritesError, match="unauthorized user"):
        HueV1(http, "nobody").states()
    assert Lamps(HueV1(http, bridge.new_key()), Look(), 0.0, ("lamp 2",)).ids == ("2",)
    with pytest.raises(SoritesError, match="no lamp named 7;"):
        Lamps(HueV1(http, bridge.new_key()), Look(), 0.0, ("1", "7"))


def test_lamps_of_a_bridge_are_named_after_its_address(
    bridge: VirtualBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORITES_HUE_KEY", bridge.new_key())
    for named, light, ids in (("/2", 0.5, ("2",)), ("/lamp 1, 2", 1.0, ("1", "2")), ("", 1.0, ("1", "2"))):
        lamps = open_lamps(DeviceOptions(lamps=f"hue1:{bridge.host}{named}", settle_s=0))
        assert isinstance(lamps, Lamps)
        assert tuple(lamps.set("on")) == lamps.ids == ids
        assert bridge.light() == light
        lamps.set("off")
        assert bridge.light() == 0
        lamps.close()
    wanted = DeviceOptions(lamps=f"hue1:{bridge.host}/lamp 2", settle_s=0)
    assert [line.strip() for line in lamp_lines(wanted, None)] == [
        "2 lamp 2: on, 100 %, read back",
        "2 lamp 2: off, 100 %, read back",
        "1 lamp 1: not used",
    ]
    assert lamp_spec("hue:[::1]:443/desk") == LampSpec("hue", "[::1]:443", ("desk",))
    assert lamp_spec("virtual") == LampSpec("virtual")
    for wrong in ("hue:", "hue1:192.168.1.30/", "hue:192.168.1.30/ ,", "hue:http://192.168.1.30"):
        with pytest.raises(SoritesError, match="bridge's address"):
            lamp_spec(wrong)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """npm's hue-simulator 0.0.11 on the loopback address; a machine that cannot have it fails here."""
    assert shutil.which("npm"), "the test against hue-simulator needs node and npm"
    root = tmp_path_factory.mktemp("simulator")
    install = ["npm", "install", "--prefix", str(root), "--no-audit", "--no-fund", "hue-simulator@0.0.11"]
    subprocess.run(install, check=True, capture_output=True, timeout=180)
    script = root / "node_modules" / "hue-simulator" / "bin" / "hue-simulator"
    running, port = _started(["node", str(script), "--hostname", "127.0.0.1"], root)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(20)


def _started(command: list[str], root: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server, and return it with its port once it listens.

    Another process may take a port that was free, so that the server ends; it is started again with another one.
    """
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        running = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=root,
        )
        while running.poll() is None and time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0 and running.poll() is None:
                    return running, port
            time.sleep(0.1)
        running.kill()
        running.wait(20)
    raise TimeoutError("hue-simulator does not listen")


@pytest.mark.slow
def test_against_hue_simulator(simulator: str, to: Callable[..., httpx.Client]) -> None:
    http = to(simulator, False)
    with pytest.raises(SoritesError, match="link button"):
        pair(http, wait=0)
    httpx.get(f"http://{simulator}/linkbutton")
    key = pair(http, wait=10)
    one = Lamps(HueV1(http, key), Look(80), 0.0, ("2",))
    assert (one.ids, one.set("on")["2"].on) == (("2",), True)
    assert http.get(f"/api/{key}/lights/2").json()["state"]["on"]
    others = [http.get(f"/api/{key}/lights/{id_}").json()["state"] for id_ in one.unused]
    assert others
    one.set("off")
    assert [http.get(f"/api/{key}/lights/{id_}").json()["state"] for id_ in one.unused] == others
    lamps = Lamps(HueV1(http, key), Look(50, 2700), 0.0)
    assert len(lamps.ids) >= 1
    on = lamps.set("on")
    assert all(state.on and abs(state.brightness - 50) < 1 for state in on.values())
    assert http.get(f"/api/{key}/lights/1").json()["state"]["ct"] == 370
    assert not any(state.on for state in lamps.set("off").values())
