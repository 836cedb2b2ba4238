"""Write the text of ``sorites studio check``: the devices, how much of the grid they can take, and what to do first."""

from __future__ import annotations

from collections.abc import Iterator

from sorites.errors import SoritesError
from sorites.es_grid import Grid
from sorites.studio.cameras import Camera
from sorites.studio.devices import Wanted, open_camera, open_lamps
from sorites.studio.discovery import CANON, ROOT, access_url, answers, bridges, cameras
from sorites.studio.values import KEYS, in_words, nearest, parsed
from sorites.studio.virtual.studio import VirtualStudio


def found_devices(seconds: float = 3.0) -> Iterator[str]:
    """Say which devices are in the network and on USB."""
    said = answers((CANON, ROOT), seconds)
    for place in cameras(said):
        yield f"camera (CCAPI): {_base(place)}  --camera ccapi:{_base(place)}"
    for host in bridges(said):
        yield f"Hue bridge: {host}  --lamps hue:{host}"
    try:
        from sorites.studio.ptp import cameras_on_usb

        for model in cameras_on_usb():
            yield f"camera (USB): {model}  --camera ptp"
    except SoritesError as error:
        yield f"USB was not searched: {error}"


def _base(place: str) -> str:
    """Return the address of a camera from its description, or that of the description itself if it cannot be read."""
    import httpx

    try:
        text = httpx.get(place, timeout=5.0, trust_env=False).text
    except httpx.HTTPError:
        text = ""
    return (access_url(text) or place.rpartition("/upnp/")[0] or place).removesuffix("/ccapi")


def camera_lines(camera: Camera, grid: Grid) -> Iterator[str]:
    """Say which camera it is and how much of the grid it can take."""
    about = camera.about()
    facts = {"model": about.model, "lens": about.lens, "battery": about.battery, "card": about.card, "mode": about.mode}
    yield from (f"  {key:<9}{value or 'not reported'}" for key, value in facts.items())
    ability = dict(about.ability)
    for key in KEYS:
        spelled = [text for text in ability.get(key, ()) if parsed(key, text)]
        if spelled:
            yield f"  {KEYS[key]:<9}{len(spelled)} values, {spelled[0]} to {spelled[-1]}"
        else:
            yield f"  {KEYS[key]:<9}cannot be set now. {_remedy(key, about.mode)}"
    wrong = [
        params for params in grid.manual if any(nearest(key, float(params[key]), ability.get(key, ())) is None for key in KEYS)
    ]
    yield f"  grid     {len(grid.manual) - len(wrong)} of {len(grid.manual)} settings can be taken" + (
        f"; not {in_words({**wrong[0], 'mode': 'manual'})}{' and more' if len(wrong) > 1 else ''}" if wrong else ""
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
    yield f"camera {wanted.camera.partition('@')[0] if '@' not in wanted.camera else wanted.camera.split(':')[0]}"
    camera = open_camera(wanted.camera, wanted.fingerprint, virtual)
    try:
        yield from camera_lines(camera, grid)
    finally:
        camera.close()
    if wanted.lamps != "none":
        yield f"lamps {wanted.lamps}"
        yield from lamp_lines(wanted, virtual)
