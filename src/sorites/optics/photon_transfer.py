"""Photon transfer: gain, read noise and full well of a sensor from flat pairs and dark frames.

The variance of a flat frame, in digital numbers (DN), is gain x signal + the variance of dark frames, because
photon counts follow Poisson's law. The difference of two equal frames removes what is the same in both: dust,
vignetting and the pattern of the sensor. Janesick, "Photon Transfer", SPIE 2007; EMVA 1288.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

# Planes of pixels with the same filter: sites x height x width.
Planes = NDArray[np.uint16]
Array = NDArray[np.float64]
# The frame is divided into TILES x TILES parts, and the interval is a jackknife over them.
TILES = 6
# Flats above this share of saturation are not used for the gain: their highlights may be clipped.
MAX_SHARE = 0.9
# A flat is saturated if at least this share of its pixels has its greatest value.
SATURATED_SHARE = 0.5
# Variance of rounding to whole numbers.
ROUNDING = 1 / 12
# 97.5 % quantile of the normal distribution.
_Z = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Transfer:
    """A sensor at one ISO.

    Attributes:
        iso: ISO speed.
        gain: Digital numbers per electron.
        read_e: Read noise in rms electrons, without rounding.
        full_e: Electrons at which values saturate.
        black_dn: Mean of dark frames.
        saturation_dn: Digital number at which values saturate.
        saturation_seen: Whether a flat was saturated; otherwise the white level of the files is used.
        gains: Gain of each place of the mosaic.
        nonlinearity: Largest relative deviation of a flat's noise variance from the line.
        pairs: Number of flat pairs used for the gain.
    """

    iso: float
    gain: Estimate
    read_e: Estimate
    full_e: Estimate
    black_dn: float
    saturation_dn: float
    saturation_seen: bool
    gains: tuple[float, ...]
    nonlinearity: float
    pairs: int


@dataclass(frozen=True)
class _Moments:
    """Signal and noise variance per pair or dark, site and tile."""

    signal: Array
    variance: Array
    pixels: Array
    dark: Array
    black: Array

    def without(self, tile: int) -> _Moments:
        kept = [
            np.delete(part, tile, axis=-1) for part in (self.signal, self.variance, self.dark, self.black)
        ]
        return _Moments(kept[0], kept[1], np.delete(self.pixels, tile), kept[2], kept[3])

    def gain(self, site: int | None = None) -> float:
        """Return the slope of the photon-transfer line, weighted by the precision of each variance."""
        sites = slice(None) if site is None else slice(site, site + 1)
        dark = _mean(self.dark[sites], self.pixels)
        signal = _mean(self.signal[:, sites], self.pixels) - _mean(self.black[sites], self.pixels)
        variance = _mean(self.variance[:, sites], self.pixels)
        weights = 1 / variance**2
        return float((weights * signal * (variance - dark)).sum() / (weights * signal**2).sum())

    def read_dn(self) -> float:
        """Return the read noise in digital numbers, without rounding."""
        return math.sqrt(max(float(_mean(self.dark, self.pixels).mean()) - ROUNDING, 0.0))


def _mean(values: Array, pixels: Array) -> Array:
    return np.asarray((values * pixels).sum(-1) / pixels.sum(), np.float64)


def measure_transfer(
    pairs: Sequence[tuple[Planes, Planes]], darks: Sequence[Planes], white_dn: float, iso: float
) -> Transfer:
    """Return gain, read noise and full well from frames of one ISO.

    Args:
        pairs: Two frames of the same evenly lit surface at the same exposure, for several exposures; sites x
            height x width, a site being a place of the mosaic.
        darks: At least two frames without light.
        white_dn: Digital number at which the files say that values saturate.
        iso: ISO speed of all frames.

    Raises:
        SoritesError: There are too few frames, or none of the flats is usable.
    """
    if len(darks) < 2 or not pairs:
        raise SoritesError(
            f"ISO {iso:g}: expected at least one pair of flats and two dark frames, got {len(pairs)} and"
            f" {len(darks)}"
        )
    saturation = [level for pair in pairs if (level := _saturation(pair)) is not None]
    limit = min(saturation, default=white_dn)
    black = float(np.mean([dark.mean(dtype=np.float64) for dark in darks]))
    usable = [pair for pair in pairs if _usable(pair, black, limit)]
    if not usable:
        raise SoritesError(
            f"ISO {iso:g}: no pair of flats is between black ({black:.0f}) and {MAX_SHARE:.0%} of saturation"
            f" ({limit:.0f}); take flats at other exposures"
        )
    moments = _moments(usable, darks)
    if float((moments.variance.mean(-1) / moments.dark.mean(-1)).max()) < 2:
        raise SoritesError(
            f"ISO {iso:g}: the flats are too dark: their noise is that of dark frames. Take brighter ones"
        )
    gain = _jackknife(moments, _Moments.gain)
    sites = moments.signal.shape[1]
    return Transfer(
        iso,
        gain,
        _jackknife(moments, lambda part: part.read_dn() / part.gain()),
        _jackknife(moments, lambda part: (limit - black) / part.gain()),
        black,
        limit,
        bool(saturation),
        tuple(moments.gain(site) for site in range(sites)),
        _nonlinearity(moments, gain.value),
        len(usable),
    )


def _saturation(pair: tuple[Planes, Planes]) -> float | None:
    """Return the level of a saturated pair, else None."""
    top = float(max(frame.max() for frame in pair))
    full = min(float((frame >= frame.max() - 1).mean()) for frame in pair)
    return top if full >= SATURATED_SHARE and top > 0 else None


def _usable(pair: tuple[Planes, Planes], black: float, limit: float) -> bool:
    bright = max(float(np.quantile(frame, 0.999)) for frame in pair)
    mean = float(np.mean([frame.mean(dtype=np.float64) for frame in pair]))
    return mean > black and bright - black < MAX_SHARE * (limit - black)


def _moments(pairs: Sequence[tuple[Planes, Planes]], darks: Sequence[Planes]) -> _Moments:
    measured = [_of_frames(pair) for pair in pairs]
    black, dark, pixels = _of_frames(darks)
    return _Moments(
        np.stack([m[0] for m in measured]), np.stack([m[1] for m in measured]), pixels, dark, black
    )


def _of_frames(frames: Sequence[Planes]) -> tuple[Array, Array, Array]:
    """Return the mean and the variance between equal frames per site and tile, and the pixels of the tiles.

    The mean of each frame and tile is subtracted first, so that a lamp that drifts between frames does not
    count as noise.
    """
    means, variances, pixels = [], [], []
    height, width = frames[0].shape[1:]
    rows, columns = (np.linspace(0, side, TILES + 1).astype(int) for side in (height, width))
    for row, column in np.ndindex(TILES, TILES):
        part = (slice(None), slice(rows[row], rows[row + 1]), slice(columns[column], columns[column + 1]))
        stack = np.stack([frame[part] for frame in frames]).astype(np.float64)
        count = stack.shape[2] * stack.shape[3]
        level = stack.mean((2, 3), keepdims=True)
        spread = (stack - level).var(0, ddof=1)
        means.append(level.mean((0, 2, 3)))
        variances.append(spread.mean((1, 2)) * count / (count - 1))
        pixels.append(count)
    return np.stack(means, -1), np.stack(variances, -1), np.array(pixels, np.float64)


def _jackknife(moments: _Moments, statistic: Callable[[_Moments], float]) -> Estimate:
    value, tiles = statistic(moments), TILES**2
    left = np.array([statistic(moments.without(tile)) for tile in range(tiles)])
    error = math.sqrt((tiles - 1) / tiles * float(((left - left.mean()) ** 2).sum()))
    return Estimate(value, value - _Z * error, value + _Z * error)


def _nonlinearity(moments: _Moments, gain: float) -> float:
    signal = _mean(moments.signal, moments.pixels) - _mean(moments.black, moments.pixels)
    expected = gain * signal + _mean(moments.dark, moments.pixels)
    return float(np.abs(_mean(moments.variance, moments.pixels) / expected - 1).max())


@dataclass(frozen=True)
class Sensor:
    """The values of a simulated camera body that photon transfer determines.

    Attributes:
        base_iso: Lowest measured ISO, to which electrons refer.
        full_well_e: Electrons at which values saturate at the base ISO.
        read_e: Read noise before the gain, rms electrons.
        late_e: Read noise after the gain, rms electrons at the base ISO; None if one ISO was measured, and
            ``read_e`` is then all of the read noise.
        black_dn: Black level.
        bits: Bits of the converter.
        gain_error: Largest relative deviation of a measured gain from proportionality to the ISO.
    """

    base_iso: float
    full_well_e: float
    read_e: float
    late_e: float | None
    black_dn: int
    bits: int
    gain_error: float


def fit_sensor(transfers: Sequence[Transfer], white_dn: float) -> Sensor:
    """Return the values of a body from measurements at one or more ISO speeds.

    A simulated body saturates at base ISO / ISO x its full well; the full well is the mean over the ISO
    speeds on a logarithmic scale.
    """
    ordered = sorted(transfers, key=lambda transfer: transfer.iso)
    base = ordered[0].iso
    wells = np.array([transfer.full_e.value * transfer.iso / base for transfer in ordered])
    full = float(np.exp(np.log(wells).mean()))
    noise = np.array([transfer.read_e.value for transfer in ordered])
    read, late = _read_noise(noise, np.array([base / transfer.iso for transfer in ordered]))
    return Sensor(
        base,
        full,
        read,
        late,
        round(float(np.mean([transfer.black_dn for transfer in ordered]))),
        math.ceil(math.log2(white_dn + 1)),
        float(np.abs(full / wells - 1).max()),
    )


def _read_noise(noise: Array, share: Array) -> tuple[float, float | None]:
    """Divide noise^2 = read^2 + (late x base ISO / ISO)^2 into its parts by non-negative least squares."""
    if len(noise) < 2:
        return float(noise[0]), None
    from scipy.optimize import nnls

    # Relative errors are alike at all speeds, so that each equation is divided by its measured variance.
    design = np.stack([np.ones(len(noise)), share**2], axis=1) / noise[:, None] ** 2
    early, late = nnls(design, np.ones(len(noise)))[0]
    return math.sqrt(early), math.sqrt(late)
