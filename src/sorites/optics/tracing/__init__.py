"""Ray tracing of lens prescriptions, from a Zemax file to point spread functions and kernels in physical
units.

Only this package imports the ray tracer. It does not know suites, shifts or the store of traced lenses.
"""
