"""The physics of lenses, sensors and cameras, in physical units.

This room imports only NumPy and SciPy (Pillow for JPEG files, the optional ray tracer in
``tracing``). It knows nothing of severities, suites or tables.
"""
