"""Physics of lenses, sensors and cameras in physical units.

The package imports only NumPy and SciPy (plus Pillow for JPEG files and the optional ray tracer in
``tracing``). It does not know severities, suites or tables.
"""
