"""Open, find and describe devices: cameras ``virtual``, ``ccapi:URL``, ``ptp``, ``uvc:PLACE``,
``libcamera:NUMBER``, and lamps ``hue:IP``, ``hue1:IP`` (``hue:IP/3,desk`` for some of its lamps), ``none``.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sorites.apps.serving import LOOPBACK
from sorites.apps.studio.cameras import KEYS, Camera, format_setting, nearest, parse_value
from sorites.apps.studio.ccapi import Calls, CcapiCamera, plain_url
from sorites.apps.studio.lamps import Lamps, Look, NoLamps
from sorites.apps.studio.screen.server import Screen
from sorites.apps.studio.virtual.studio import MEGAPIXELS, VirtualStudio, build
from sorites.core.camera_grid import Grid
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import command, option

CAMERAS = ("ccapi:URL", "ptp", "uvc:PLACE", "libcamera:NUMBER", "virtual")
CAMERA_KINDS = ("ccapi", "ptp", "uvc", "libcamera", "virtual")
LAMPS = ("hue:IP", "hue1:IP", "hue:IP/LAMP,LAMP", "virtual", "none")


@dataclass(frozen=True)
class DeviceOptions:
    """The devices to open, and their settings."""

    camera: str = "virtual"
    lamps: str = "virtual"
    browser: bool = False
    """True if a browser opens the screen's page although the camera is virtual."""
    place: str = "centre"
    bind: str = LOOPBACK
    fingerprint: str | None = None
    look: Look = field(default_factory=Look)
    settle_s: float = 2.0
    megapixels: float = MEGAPIXELS
    seed: int = 0


@dataclass(frozen=True)
class LampSpec:
    """Parsed lamps: kind, address of the bridge, and ids or names of its lamps (all if empty)."""

    kind: str
    host: str = ""
    only: tuple[str, ...] = ()


def lamp_spec(text: str) -> LampSpec:
    """Parse the lamps of an option, such as ``hue1:192.168.1.30/3,desk``.

    Raises:
        SoritesError: The address is missing, or there is a slash without lamps.
    """
    kind, _, rest = text.partition(":")
    if kind not in ("hue", "hue1"):
        return LampSpec(text)
    host, slash, names = rest.partition("/")
    only = tuple(name.strip() for name in names.split(",") if name.strip())
    if not host or (slash and not only) or host in ("http:", "https:"):
        raise SoritesError(
            f"{option('lamps', None)}: expected the bridge's address, such as {kind}:192.168.1.30, or with"
            f" some of its lamps {kind}:192.168.1.30/3,desk, got {text!r}"
        )
    return LampSpec(kind, host, only)


@dataclass
class Devices:
    """The open devices of a capture."""

    screen: Screen
    lamps: Lamps | NoLamps
    camera: Camera
    virtual: VirtualStudio | None = None

    def close(self) -> None:
        self.camera.close()
        self.lamps.close()
        self.screen.stop()
        if self.virtual is not None:
            self.virtual.stop()


def open_devices(
    options: DeviceOptions, stage: tuple[int, int], token: str | None = None, port: int = 0
) -> Devices:
    """Open screen, lamps and camera, and start virtual devices.

    Args:
        options: The devices and their options.
        stage: Width and height of the area for images, in pixels of the screen.
        token: Secret of the screen's link; a new one by default.
        port: Port of the screen; any free one by default.
    """
    check_specs(options)
    check_mixture(options)
    screen = Screen(options.place, options.bind, port, token)
    virtual: VirtualStudio | None = None
    lamps: Lamps | NoLamps = NoLamps()
    try:
        if "virtual" in (options.camera, options.lamps):
            virtual = build(
                screen,
                stage,
                options.browser or options.camera != "virtual",
                options.megapixels,
                seed=options.seed,
            )
        lamps = open_lamps(options, virtual)
        return Devices(screen, lamps, open_camera(options.camera, options.fingerprint, virtual), virtual)
    except BaseException:
        lamps.close()
        screen.stop()
        if virtual is not None:
            virtual.stop()
        raise


def check_specs(options: DeviceOptions) -> None:
    """Raise an error for unknown kinds of devices and missing addresses; to check lamps alone, the camera is
    "none".
    """
    kind, colon, place = options.camera.partition(":")
    if kind not in (*CAMERA_KINDS, "none"):
        raise UnknownName("camera", kind, CAMERA_KINDS, f"There are {', '.join(CAMERAS)}.")
    if kind == "ccapi":
        plain_url(place)
    elif colon and kind in ("ptp", "virtual", "none"):
        raise SoritesError(f"{option('camera', kind)} takes no address, got {place!r}")
    kind = lamp_spec(options.lamps).kind
    if kind not in ("virtual", "none", "hue", "hue1"):
        raise UnknownName(
            "lamps",
            kind.partition(":")[0],
            ("hue", "hue1", "virtual", "none"),
            f"There are {', '.join(LAMPS)}.",
        )


def check_mixture(options: DeviceOptions) -> None:
    """Refuse a virtual camera with real lamps, and a real camera with virtual ones: neither sees the other,
    so that photographs would be labelled with a light that they do not show.
    """
    if options.lamps != "none" and (options.camera == "virtual") != (options.lamps == "virtual"):
        kind = options.camera.partition(":")[0]  # the address may contain a password
        raise SoritesError(
            f"{option('camera', kind)} cannot see the light of {option('lamps', options.lamps)}:"
            f" use virtual devices for both, real ones for both, or {option('lamps', 'none')}"
        )


def open_camera(spec: str, fingerprint: str | None = None, virtual: VirtualStudio | None = None) -> Camera:
    if spec == "ptp":
        from sorites.apps.studio.ptp import PtpCamera

        return PtpCamera()
    if spec.startswith("uvc"):
        from sorites.apps.studio.webcams.video import VideoCamera

        return VideoCamera(spec)
    if spec.startswith("libcamera"):
        from sorites.apps.studio.webcams.libcamera import LibcameraCamera

        return LibcameraCamera(spec)
    if spec == "virtual" and virtual is None:
        raise SoritesError("the virtual camera needs the virtual studio")
    url = virtual.camera.url if spec == "virtual" and virtual is not None else spec.partition(":")[2]
    return CcapiCamera(Calls(url, fingerprint=fingerprint))


def open_lamps(options: DeviceOptions, virtual: VirtualStudio | None = None) -> Lamps | NoLamps:
    wanted = lamp_spec(options.lamps)
    if wanted.kind == "none":
        return NoLamps()
    from sorites.apps.studio.hue import HueV1, HueV2, client, load_key

    if wanted.kind == "virtual":
        if virtual is None:
            raise SoritesError("the virtual lamps need the virtual studio")
        return Lamps(
            HueV1(client(virtual.bridge.host, False)[0], virtual.bridge.new_key()),
            options.look,
            0.0,
        )
    stored = load_key(wanted.host)
    if "key" not in stored:
        pairing = command("studio check", lamps=options.lamps, pair=True)
        raise SoritesError(f"the bridge at {wanted.host} is not paired yet. Run: {pairing}")
    secure = wanted.kind == "hue"
    http, _ = client(wanted.host, secure, options.fingerprint or stored.get("fingerprint"))
    try:
        bridge = HueV2(http, stored["key"]) if secure else HueV1(http, stored["key"])
        return Lamps(bridge, options.look, options.settle_s, wanted.only)
    except BaseException:
        http.close()
        raise


def pair_bridge(lamps: str, say: Callable[[str], None], wait: float = 30.0) -> str:
    """Pair with a bridge by its link button and store the key.

    Returns:
        The fingerprint of its certificate, empty without one.
    """
    from sorites.apps.studio.hue import client, pair, store_key

    wanted = lamp_spec(lamps)
    if wanted.kind not in ("hue", "hue1"):
        raise SoritesError(f"{option('pair')} needs a bridge, such as {option('lamps', 'hue:192.168.1.30')}")
    http, fingerprint = client(wanted.host, wanted.kind == "hue")
    try:
        store_key(wanted.host, pair(http, wait, say), fingerprint)
    finally:
        http.close()
    return fingerprint or ""


# Discovery in the local network by SSDP

GROUP = ("239.255.255.250", 1900)
CANON = "urn:schemas-canon-com:service:ICPO-CameraControlAPIService:1"
ROOT = "ssdp:all"
_LOCATION = re.compile(r"^location:\s*(\S+)", re.I | re.M)
MAX_ANSWERS = 200


def _search_request(target: str, seconds: int) -> bytes:
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
    """Send a multicast search to the network and return the answers that arrive in time."""
    texts: list[str] = []
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
        for target in targets:
            sock.sendto(_search_request(target, max(1, int(seconds))), group)
        while (remaining := end - time.monotonic()) > 0 and len(texts) < MAX_ANSWERS:
            sock.settimeout(remaining)
            texts.append(sock.recv(4096).decode("latin-1"))
    return texts


def cameras(texts: Iterable[str]) -> list[str]:
    """Return the description URLs of CCAPI cameras."""
    return _locations(text for text in texts if "cameracontrolapi" in text.lower())


def bridges(texts: Iterable[str]) -> list[str]:
    """Return the addresses of Hue bridges."""
    locations = _locations(
        text for text in texts if "hue-bridgeid" in text.lower() or "ipbridge" in text.lower()
    )
    return sorted({re.sub(r"^\w+://([^/:]+).*$", r"\1", location) for location in locations})


def _locations(texts: Iterable[str]) -> list[str]:
    return sorted({match[1] for text in texts if (match := _LOCATION.search(text))})


def access_url(description: str) -> str | None:
    """Return the base address of a camera from its XML description."""
    match = re.search(r"X_accessURL[^>]*>\s*(https?://[^<\s]+)", description)
    return match[1] if match else None


# Descriptions of devices
def find_devices(seconds: float = 3.0) -> Iterator[str]:
    """Yield lines about the devices in the network and on USB."""
    texts = answers((CANON, ROOT), seconds)
    for location in cameras(texts):
        url = _base(location)
        yield f"camera (CCAPI): {url}  {option('camera', f'ccapi:{url}')}"
    for host in bridges(texts):
        yield f"Hue bridge: {host}  {option('lamps', f'hue:{host}')}"
    try:
        from sorites.apps.studio.ptp import cameras_on_usb

        for model in cameras_on_usb():
            yield f"camera (USB): {model}  {option('camera', 'ptp')}"
    except SoritesError as error:
        yield f"USB was not searched: {error}"


def _base(location: str) -> str:
    """Return the address of a camera from its description, or the description's own address if it cannot
    be read.
    """
    import httpx

    try:
        text = httpx.get(location, timeout=5.0, trust_env=False).text
    except httpx.HTTPError:
        text = ""
    return (access_url(text) or location.rpartition("/upnp/")[0] or location).removesuffix("/ccapi")


def camera_lines(camera: Camera, grid: Grid) -> Iterator[str]:
    """Yield lines about the camera and how many settings of the grid it supports."""
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
        values = [text for text in ability.get(key, ()) if parse_value(key, text)]
        if values:
            yield f"  {KEYS[key]:<9}{len(values)} values, {values[0]} to {values[-1]}"
        else:
            yield f"  {KEYS[key]:<9}cannot be set now. {_remedy(key, about.mode)}"
    unsupported = [
        params
        for params in grid.manual
        if any(nearest(key, float(params[key]), ability.get(key, ())) is None for key in KEYS)
    ]
    supported = f"{len(grid.manual) - len(unsupported)} of {len(grid.manual)} settings are supported"
    if not grid.manual:
        supported = "automatic shots only"
    if unsupported:
        example = format_setting({**unsupported[0], "mode": "manual"})
        supported += f"; not {example}{' and more' if len(unsupported) > 1 else ''}"
    yield f"  grid     {supported}"


def _remedy(key: str, mode: str) -> str:
    if key in ("shutter", "aperture") and mode.lower() not in ("m", "manual", ""):
        return f"The mode is {mode!r}: turn the mode dial to M"
    return "Check that the lens is mounted, the mode dial is at M, and no menu is open"


def lamp_lines(options: DeviceOptions, virtual: VirtualStudio | None) -> Iterator[str]:
    """Switch the lamps on and off, and yield lines about the states read back."""
    lamps = open_lamps(options, virtual)
    try:
        for light in ("on", "off"):
            for id_, state in lamps.set(light).items():
                now = "on" if state.on else "off"
                yield f"  {id_} {state.name}: {now}, {state.brightness:.0f} %, read back"
        yield from (f"  {id_} {name}: not used" for id_, name in lamps.unused.items())
    finally:
        lamps.close()


def check(options: DeviceOptions, grid: Grid, virtual: VirtualStudio | None) -> Iterator[str]:
    """Yield lines about the camera, the lamps or both, and what they support; "none" leaves one out."""
    if options.camera != "none":
        # The address may contain a password.
        yield f"camera {options.camera.split(':')[0] if '@' in options.camera else options.camera}"
        camera = open_camera(options.camera, options.fingerprint, virtual)
        try:
            yield from camera_lines(camera, grid)
        finally:
            camera.close()
    if options.lamps != "none":
        yield f"lamps {options.lamps}"
        yield from lamp_lines(options, virtual)
