"""Traced lenses: turn prescriptions into blur kernels on disk, and load them.

The package builds on ``optics.tracing``; shifts, datasets and drawings import it. It does not know models,
plans or tables.
"""
