"""The store of traced lenses: only this room turns prescriptions into blur kernels on disk.

It builds on ``optics.tracing``; shifts, datasets and drawings may import it. It knows nothing of
models, plans or tables.
"""
