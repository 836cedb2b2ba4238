"""What severity means: one dial a way the world can shift, by family."""

from sorites.shifts import blur, digital, frost, geometry, glass, light, motion, noise, spatter, weather

__all__ = ["blur", "digital", "frost", "geometry", "glass", "light", "motion", "noise", "spatter", "weather"]
