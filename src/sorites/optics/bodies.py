"""Cameras as data. Add one here, or derive one with ``dataclasses.replace``."""

from __future__ import annotations

from sorites.optics.camera import Body

EOS_RP = Body(
    name="eos_rp",
    pixel_um=5.75,
    full_well_e=50_000,
    read_e=2.2,
    late_e=26.0,
    balance=(2.0, 1.0, 1.5),
    bits=14,
    black_dn=512,
    iso=(100, 40_000),
    shutter=(1 / 4000, 30),
    aperture=(4.0, 22),
    shoulder=1.5,
    contrast=0.62,
    denoise_iso=6000,
)
"""A full-frame body in the class of the Canon EOS RP with its 24-105 mm f/4-7.1 lens. Ranges and pixel pitch are from the data
sheet. Full well, read noise and white balance are typical of such a sensor. The developing curve is a plain one."""

BODIES = {body.name: body for body in (EOS_RP,)}
