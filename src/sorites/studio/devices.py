"""Open devices by the words typed for them: ``virtual``, ``ccapi:URL``, ``ptp``, ``hue:IP``, ``hue1:IP``, ``none``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sorites.errors import SoritesError, UnknownName
from sorites.studio.cameras import Camera
from sorites.studio.lamps import Lamps, Look, NoLamps
from sorites.studio.screen.server import Screen
from sorites.studio.serving import LOOPBACK
from sorites.studio.virtual.studio import MEGAPIXELS, VirtualStudio, build

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
            virtual = build(screen, stage, wanted.browser or wanted.camera != "virtual", wanted.megapixels, seed=wanted.seed)
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
            "camera", wanted.camera.partition(":")[0], ("ccapi", "ptp", "virtual"), f"There are {', '.join(CAMERAS)}."
        )
    if wanted.lamps not in ("virtual", "none") and wanted.lamps.partition(":")[0] not in ("hue", "hue1"):
        raise UnknownName(
            "lamps", wanted.lamps.partition(":")[0], ("hue", "hue1", "virtual", "none"), f"There are {', '.join(LAMPS)}."
        )


def open_camera(spec: str, fingerprint: str | None = None, virtual: VirtualStudio | None = None) -> Camera:
    """Connect to a camera."""
    if spec == "ptp":
        from sorites.studio.ptp import PtpCamera

        return PtpCamera()
    from sorites.studio.ccapi.calls import Calls
    from sorites.studio.ccapi.camera import CcapiCamera

    if spec == "virtual" and virtual is None:
        raise SoritesError("the virtual camera needs the virtual studio")
    url = virtual.camera.url if spec == "virtual" and virtual is not None else spec.partition(":")[2]
    return CcapiCamera(Calls(url, fingerprint=fingerprint))


def open_lamps(wanted: Wanted, virtual: VirtualStudio | None = None) -> Lamps | NoLamps:
    """Connect to the lamps."""
    kind, _, host = wanted.lamps.partition(":")
    if kind == "none":
        return NoLamps()
    from sorites.studio.hue.bridges import HueV1, HueV2
    from sorites.studio.hue.calls import client, kept_key

    if kind == "virtual":
        if virtual is None:
            raise SoritesError("the virtual lamps need the virtual studio")
        return Lamps(HueV1(client(virtual.bridge.host, False)[0], virtual.bridge.new_key()), wanted.look, 0.0, wanted.only)
    kept = kept_key(host)
    if "key" not in kept:
        raise SoritesError(f"the bridge at {host} does not know us yet. Type: sorites studio check --lamps {wanted.lamps} --pair")
    http, _ = client(host, kind == "hue", wanted.fingerprint or kept.get("fingerprint"))
    try:
        bridge = HueV2(http, kept["key"]) if kind == "hue" else HueV1(http, kept["key"])
        return Lamps(bridge, wanted.look, wanted.settle_s, wanted.only)
    except BaseException:
        http.close()
        raise


def paired(lamps: str, say: Callable[[str], None], wait: float = 30.0) -> str:
    """Pair with a bridge by its link button, keep the key, and return the fingerprint of its certificate ("" without one)."""
    from sorites.studio.hue.calls import client, keep_key, pair

    kind, _, host = lamps.partition(":")
    http, found = client(host, kind == "hue")
    try:
        keep_key(host, pair(http, wait, say), found)
    finally:
        http.close()
    return found or ""
