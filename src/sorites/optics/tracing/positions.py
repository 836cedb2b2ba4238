"""The positions in its picture at which a lens is traced: five field heights, three azimuths."""

from __future__ import annotations

FIELDS = (0.0, 0.3, 0.5, 0.7, 0.9)
"""Parts of the half field of view."""
PERCENT = tuple(round(100 * field) for field in FIELDS)
"""The same, as they are written."""
AZIMUTHS = (0, 45, 90)
"""Degrees from x."""
POSITIONS = tuple((field, azimuth) for field in FIELDS for azimuth in AZIMUTHS if field or azimuth == 90)
"""The thirteen places of a lens, in the order of its kernels; on the axis all azimuths are one."""
