"""What severity means: one dial a way the world can shift, by family."""

from sorites.shifts import blur, digital, light, noise

__all__ = ["blur", "digital", "light", "noise"]
