"""Switch lamps on or off and verify it by reading their states back, with retries."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from sorites.core.errors import SoritesError

TRIES = 3
# Seconds until the bridge must report the new state.
READ_BACK_S = 3.0
# Tolerance of the brightness read back, in percent points; bridges round to 254 levels.
BRIGHTNESS_TOLERANCE = 2.0


class LampError(SoritesError):
    """The lamps did not follow a request."""


@dataclass(frozen=True)
class Look:
    """Brightness in percent and colour temperature in kelvin of lamps that are on."""

    brightness: float = 100.0
    kelvin: float = 4000.0

    @property
    def mired(self) -> int:
        """The colour temperature in mired."""
        return round(min(500.0, max(153.0, 1e6 / self.kelvin)))


@dataclass(frozen=True)
class LampState:
    """State of one lamp as reported by a bridge."""

    name: str
    on: bool
    brightness: float
    reachable: bool = True


class Bridge(Protocol):
    """Contract of a bridge of lamps."""

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by id."""

    def put(self, lamp: str, on: bool, look: Look) -> None:
        """Switch one lamp on or off."""

    def close(self) -> None:
        """End the connection."""


class Lamps:
    """All lamps of a bridge, or the named ones, as one light.

    Args:
        bridge: The bridge.
        look: Brightness and colour of lamps that are on.
        settle_s: Seconds until their light is steady.
        only: Ids or names of the lamps to use; all by default.

    Attributes:
        ids: Ids of the lamps that are used.
        unused: Names of the other lamps of the bridge, by id; they are never switched.

    Raises:
        SoritesError: The bridge has no lamps, or not all of the named ones.
    """

    def __init__(self, bridge: Bridge, look: Look, settle_s: float = 2.0, only: tuple[str, ...] = ()) -> None:
        self._bridge, self._look, self._settle_s = bridge, look, settle_s
        states = bridge.states()
        known = {name for id_, state in states.items() for name in (id_, state.name)}
        missing = [name for name in only if name not in known]
        if missing or not states:
            available = ", ".join(f"{id_} ({state.name})" for id_, state in states.items()) or "none"
            raise SoritesError(
                f"the bridge has no lamp named {', '.join(missing) or 'anything'}; its lamps are {available}"
            )
        self.ids = tuple(id_ for id_, state in states.items() if not only or {id_, state.name} & set(only))
        self.unused = {id_: state.name for id_, state in states.items() if id_ not in self.ids}
        self._light = ""

    def set(self, light: str) -> Mapping[str, LampState]:
        """Switch the lamps "on" or "off", wait until the bridge reports it and the light is steady, and
        return their states.
        """
        changed = light != self._light
        for _ in range(TRIES if changed else 1):
            if changed:
                for id_ in self.ids:
                    self._bridge.put(id_, light == "on", self._look)
            states = self._read_back(light)
            if states is not None:
                if changed:
                    time.sleep(self._settle_s)
                self._light = light
                return states
            changed = True
        self._light = ""
        failing = ", ".join(
            state.name for id_, state in self._bridge.states().items() if not self._follows(id_, state, light)
        )
        raise LampError(
            f"these lamps did not switch {light}: {failing}. Check their wall switch and distance to the"
            " bridge"
        )

    def _read_back(self, light: str) -> Mapping[str, LampState] | None:
        end = time.monotonic() + READ_BACK_S
        while True:
            states = self._bridge.states()
            if all(id_ in states and self._follows(id_, states[id_], light) for id_ in self.ids):
                return {id_: states[id_] for id_ in self.ids}
            if time.monotonic() > end or light == self._light:
                return None
            time.sleep(0.1)

    def _follows(self, id_: str, state: LampState, light: str) -> bool:
        if id_ not in self.ids:
            return True
        bright = abs(state.brightness - self._look.brightness) <= BRIGHTNESS_TOLERANCE
        return state.reachable and (state.on and bright if light == "on" else not state.on)

    def close(self) -> None:
        """End the connection."""
        self._bridge.close()


class NoLamps:
    """A room without controllable lamps; states are empty."""

    unused: Mapping[str, str] = MappingProxyType({})

    def set(self, light: str) -> Mapping[str, LampState]:
        """Do nothing."""
        return {}

    def close(self) -> None:
        """Do nothing."""
