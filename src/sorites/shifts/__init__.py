"""What severity means: one dial a way the world can shift, by family."""

from sorites.shifts import blur, camera, digital, exposure, frost, geometry, glass, light, motion, noise, spatter, weather
from sorites.shifts import style as style

__all__ = ["blur", "camera", "digital", "exposure", "frost", "geometry", "glass", "light", "motion", "noise", "spatter", "weather"]
