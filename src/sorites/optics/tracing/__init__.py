"""Ray tracing of lens prescriptions: from a Zemax file to point spread functions and kernels, in
physical units.

Only this room imports the ray tracer. It knows nothing of suites, shifts or the store of traced lenses.
"""
