"""The image searches that can be asked, by name.

None of them was reached while this was written: the shapes of their answers follow from their documentation.
"""

from __future__ import annotations

from sorites.collecting.services.commons import Commons
from sorites.collecting.services.flickr import Flickr
from sorites.collecting.services.openverse import Openverse
from sorites.collecting.services.service import Page, Params, Service
from sorites.errors import UnknownName

SERVICES: dict[str, type[Service]] = {"openverse": Openverse, "commons": Commons, "flickr": Flickr}


def service(name: str) -> type[Service]:
    """Return a service by name."""
    if name not in SERVICES:
        raise UnknownName("image search", name, SERVICES, f"It is one of {', '.join(SERVICES)}.")
    return SERVICES[name]


__all__ = ["SERVICES", "Page", "Params", "Service", "service"]
