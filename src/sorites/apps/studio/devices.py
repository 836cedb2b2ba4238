"""Open devices by the words typed for them: ``virtual``, ``ccapi:URL``, ``ptp``, ``hue:IP``,
``hue1:IP``, ``none``.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sorites.apps.studio.cameras import KEYS, Camera, in_words, nearest, parsed
from sorites.apps.studio.lamps import Lamps, Look, NoLamps
from sorites.apps.studio.screen.server import Screen
from sorites.apps.studio.serving import LOOPBACK
from sorites.apps.studio.virtual.studio import MEGAPIXELS, VirtualStudio, build
from sorites.core.camera_grid import Grid
from sorites.core.errors import SoritesError, UnknownName

CAMERAS, LAMPS = ("ccapi:URL", "ptp", "virtual"), ("hue:IP", "hue1:IP", "virtual", "none")


@dataclass(frozen=True)
class Wanted:
    """The arguments about the devices, as typed."""

    camera: str = "virtual"
    lamps: str = "virtual"
    browser: bool = False
    """True where a browser opens the screen's page even if the camera is virtual."""
    place: str = "centre"
    bind: str = LOOPBACK
    fingerprint: str | None = None
    look: Look = field(default_factory=Look)
    settle_s: float = 2.0
    only: tuple[str, ...] = ()
    megapixels: float = MEGAPIXELS
    seed: int = 0


@dataclass
class Devices:
    """The devices of a capture, opened."""

    screen: Screen
    lamps: Lamps | NoLamps
    camera: Camera
    virtual: VirtualStudio | None = None

    def close(self) -> None:
        """Release all devices."""
        self.camera.close()
        self.lamps.close()
        self.screen.stop()
        if self.virtual is not None:
            self.virtual.stop()


def open_devices(wanted: Wanted, stage: tuple[int, int], token: str | None = None, port: int = 0) -> Devices:
    """Open screen, lamps and camera; what is virtual is started."""
    check_specs(wanted)
    screen = Screen(wanted.place, wanted.bind, port, token)
    virtual: VirtualStudio | None = None
    lamps: Lamps | NoLamps = NoLamps()
    try:
        if "virtual" in (wanted.camera, wanted.lamps):
            virtual = build(
                screen,
                stage,
                wanted.browser or wanted.camera != "virtual",
                wanted.megapixels,
                seed=wanted.seed,
            )
        lamps = open_lamps(wanted, virtual)
        return Devices(screen, lamps, open_camera(wanted.camera, wanted.fingerprint, virtual), virtual)
    except BaseException:
        lamps.close()
        screen.stop()
        if virtual is not None:
            virtual.stop()
        raise


def check_specs(wanted: Wanted) -> None:
    """Refuse devices of unknown kinds before anything is opened."""
    if wanted.camera not in ("ptp", "virtual") and not wanted.camera.startswith("ccapi:"):
        raise UnknownName(
            "camera",
            wanted.camera.partition(":")[0],
            ("ccapi", "ptp", "virtual"),
            f"There are {', '.join(CAMERAS)}.",
        )
    if wanted.lamps not in ("virtual", "none") and wanted.lamps.partition(":")[0] not in ("hue", "hue1"):
        raise UnknownName(
            "lamps",
            wanted.lamps.partition(":")[0],
            ("hue", "hue1", "virtual", "none"),
            f"There are {', '.join(LAMPS)}.",
        )


def open_camera(spec: str, fingerprint: str | None = None, virtual: VirtualStudio | None = None) -> Camera:
    """Connect to a camera."""
    if spec == "ptp":
        from sorites.apps.studio.ptp import PtpCamera

        return PtpCamera()
    from sorites.apps.studio.ccapi import Calls, CcapiCamera

    if spec == "virtual" and virtual is None:
        raise SoritesError("the virtual camera needs the virtual studio")
    url = virtual.camera.url if spec == "virtual" and virtual is not None else spec.partition(":")[2]
    return CcapiCamera(Calls(url, fingerprint=fingerprint))


def open_lamps(wanted: Wanted, virtual: VirtualStudio | None = None) -> Lamps | NoLamps:
    """Connect to the lamps."""
    kind, _, host = wanted.lamps.partition(":")
    if kind == "none":
        return NoLamps()
    from sorites.apps.studio.hue import HueV1, HueV2, client, kept_key

    if kind == "virtual":
        if virtual is None:
            raise SoritesError("the virtual lamps need the virtual studio")
        return Lamps(
            HueV1(client(virtual.bridge.host, False)[0], virtual.bridge.new_key()),
            wanted.look,
            0.0,
            wanted.only,
        )
    kept = kept_key(host)
    if "key" not in kept:
        raise SoritesError(
            f"the bridge at {host} does not know us yet. Type: sorites studio check --lamps {wanted.lamps}"
            " --pair"
        )
    http, _ = client(host, kind == "hue", wanted.fingerprint or kept.get("fingerprint"))
    try:
        bridge = HueV2(http, kept["key"]) if kind == "hue" else HueV1(http, kept["key"])
        return Lamps(bridge, wanted.look, wanted.settle_s, wanted.only)
    except BaseException:
        http.close()
        raise


def paired(lamps: str, say: Callable[[str], None], wait: float = 30.0) -> str:
    """Pair with a bridge by its link button, keep the key, and return the fingerprint of its
    certificate ("" without one).
    """
    from sorites.apps.studio.hue import client, keep_key, pair

    kind, _, host = lamps.partition(":")
    http, found = client(host, kind == "hue")
    try:
        keep_key(host, pair(http, wait, say), found)
    finally:
        http.close()
    return found or ""


# Devices found in the local network: SSDP asks all for cameras that speak CCAPI, and for Hue bridges.


GROUP = ("239.255.255.250", 1900)
CANON = "urn:schemas-canon-com:service:ICPO-CameraControlAPIService:1"
ROOT = "ssdp:all"
_LOCATION = re.compile(r"^location:\s*(\S+)", re.I | re.M)
# The most answers that are read.
MOST = 200


def _question(target: str, seconds: int) -> bytes:
    lines = (
        "M-SEARCH * HTTP/1.1",
        f"HOST: {GROUP[0]}:{GROUP[1]}",
        'MAN: "ssdp:discover"',
        f"MX: {seconds}",
        f"ST: {target}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def answers(targets: Iterable[str], seconds: float = 3.0, group: tuple[str, int] = GROUP) -> list[str]:
    """Ask all devices of the network, and return what they answer within the time."""
    found: list[str] = []
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
        for target in targets:
            asking.sendto(_question(target, max(1, int(seconds))), group)
        while (left := end - time.monotonic()) > 0 and len(found) < MOST:
            asking.settimeout(left)
            found.append(asking.recv(4096).decode("latin-1"))
    return found


def cameras(said: Iterable[str]) -> list[str]:
    """Return the addresses of descriptions of cameras that speak CCAPI."""
    return _places(text for text in said if "cameracontrolapi" in text.lower())


def bridges(said: Iterable[str]) -> list[str]:
    """Return the addresses of Hue bridges."""
    places = _places(text for text in said if "hue-bridgeid" in text.lower() or "ipbridge" in text.lower())
    return sorted({re.sub(r"^\w+://([^/:]+).*$", r"\1", place) for place in places})


def _places(said: Iterable[str]) -> list[str]:
    return sorted({place[1] for text in said if (place := _LOCATION.search(text))})


def access_url(description: str) -> str | None:
    """Return the base address of a camera from its description (XML), read without an XML parser:
    only one element is needed.
    """
    found = re.search(r"X_accessURL[^>]*>\s*(https?://[^<\s]+)", description)
    return found[1] if found else None


# Write the text of ``sorites studio check``: the devices, how much of the grid they can take, and what to
# do first.


def found_devices(seconds: float = 3.0) -> Iterator[str]:
    """Say which devices are in the network and on USB."""
    said = answers((CANON, ROOT), seconds)
    for place in cameras(said):
        yield f"camera (CCAPI): {_base(place)}  --camera ccapi:{_base(place)}"
    for host in bridges(said):
        yield f"Hue bridge: {host}  --lamps hue:{host}"
    try:
        from sorites.apps.studio.ptp import cameras_on_usb

        for model in cameras_on_usb():
            yield f"camera (USB): {model}  --camera ptp"
    except SoritesError as error:
        yield f"USB was not searched: {error}"


def _base(place: str) -> str:
    """Return the address of a camera from its description, or that of the description itself if it
    cannot be read.
    """
    import httpx

    try:
        text = httpx.get(place, timeout=5.0, trust_env=False).text
    except httpx.HTTPError:
        text = ""
    return (access_url(text) or place.rpartition("/upnp/")[0] or place).removesuffix("/ccapi")


def camera_lines(camera: Camera, grid: Grid) -> Iterator[str]:
    """Say which camera it is and how much of the grid it can take."""
    about = camera.about()
    facts = {
        "model": about.model,
        "lens": about.lens,
        "battery": about.battery,
        "card": about.card,
        "mode": about.mode,
    }
    yield from (f"  {key:<9}{value or 'not reported'}" for key, value in facts.items())
    ability = dict(about.ability)
    for key in KEYS:
        spelled = [text for text in ability.get(key, ()) if parsed(key, text)]
        if spelled:
            yield f"  {KEYS[key]:<9}{len(spelled)} values, {spelled[0]} to {spelled[-1]}"
        else:
            yield f"  {KEYS[key]:<9}cannot be set now. {_remedy(key, about.mode)}"
    wrong = [
        params
        for params in grid.manual
        if any(nearest(key, float(params[key]), ability.get(key, ())) is None for key in KEYS)
    ]
    yield f"  grid     {len(grid.manual) - len(wrong)} of {len(grid.manual)} settings can be taken" + (
        f"; not {in_words({**wrong[0], 'mode': 'manual'})}{' and more' if len(wrong) > 1 else ''}"
        if wrong
        else ""
    )


def _remedy(key: str, mode: str) -> str:
    if key in ("shutter", "aperture") and mode.lower() not in ("m", "manual", ""):
        return f"The mode is {mode!r}: turn the mode dial to M"
    return "Is the lens mounted, is the mode dial at M, is a menu open on the camera?"


def lamp_lines(wanted: Wanted, virtual: VirtualStudio | None) -> Iterator[str]:
    """Switch the lamps on and off, and say what they answered."""
    lamps = open_lamps(wanted, virtual)
    try:
        for light in ("on", "off"):
            for state in lamps.set(light).values():
                yield f"  {state.name}: {'on' if state.on else 'off'}, {state.brightness:.0f} %, read back"
    finally:
        lamps.close()


def check(wanted: Wanted, grid: Grid, virtual: VirtualStudio | None) -> Iterator[str]:
    """Describe the named camera and lamps, and what they can do."""
    yield (
        "camera"
        f" {wanted.camera.partition('@')[0] if '@' not in wanted.camera else wanted.camera.split(':')[0]}"
    )
    camera = open_camera(wanted.camera, wanted.fingerprint, virtual)
    try:
        yield from camera_lines(camera, grid)
    finally:
        camera.close()
    if wanted.lamps != "none":
        yield f"lamps {wanted.lamps}"
        yield from lamp_lines(wanted, virtual)
