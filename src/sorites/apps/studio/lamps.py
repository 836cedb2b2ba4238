"""Switch lamps on or off and read back that they followed.

A lamp that does not is asked again, then a person is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sorites.core.errors import SoritesError

TRIES = 3
# The seconds that a lamp may take until the bridge says that it followed.
READ_BACK_S = 3.0
# The most by which a brightness read back may differ from the one asked for, in percent: bridges
# round to 254 steps.
NEAR = 2.0


class LampError(SoritesError):
    """The lamps do not do what they were asked."""


@dataclass(frozen=True)
class Look:
    """The look of lamps that are on: brightness in percent, colour temperature in kelvin."""

    brightness: float = 100.0
    kelvin: float = 4000.0

    @property
    def mired(self) -> int:
        """The colour temperature in mired, as bridges take it."""
        return round(min(500.0, max(153.0, 1e6 / self.kelvin)))


@dataclass(frozen=True)
class LampState:
    """The state of one lamp as a bridge reports it."""

    name: str
    on: bool
    brightness: float
    reachable: bool = True


class Bridge(Protocol):
    """A bridge of lamps."""

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by its id."""

    def put(self, lamp: str, on: bool, look: Look) -> None:
        """Ask one lamp to be on or off."""

    def close(self) -> None:
        """End the connection."""


class Lamps:
    """All lamps of a bridge, or those named, as one light.

    ``settle_s`` is how long their light takes to become steady.
    """

    def __init__(self, bridge: Bridge, look: Look, settle_s: float = 2.0, only: tuple[str, ...] = ()) -> None:
        self._bridge, self._look, self._settle_s = bridge, look, settle_s
        known = bridge.states()
        self.ids = tuple(id_ for id_, state in known.items() if not only or {id_, state.name} & set(only))
        if not self.ids:
            named = ", ".join(state.name for state in known.values()) or "none"
            raise SoritesError(
                f"the bridge has no lamp named {', '.join(only) or 'anything'}; it has {named}"
            )
        self._light = ""

    def set(self, light: str) -> Mapping[str, LampState]:
        """Bring the lamps to "on" or "off", wait until the bridge says so and their light is
        steady, and return their states.
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
        lost = ", ".join(
            state.name for id_, state in self._bridge.states().items() if not self._follows(id_, state, light)
        )
        raise LampError(
            f"the lamps do not go {light}: {lost}. Is their wall switch on, are they in reach of the bridge?"
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
        bright = abs(state.brightness - self._look.brightness) <= NEAR
        return state.reachable and (state.on and bright if light == "on" else not state.on)

    def close(self) -> None:
        """End the connection."""
        self._bridge.close()


class NoLamps:
    """A room without lamps to switch: the states are empty."""

    def set(self, light: str) -> Mapping[str, LampState]:
        """Do nothing."""
        return {}

    def close(self) -> None:
        """Do nothing."""
