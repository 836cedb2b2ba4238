"""The store of traced lenses: prescriptions become blur kernels on disk, here and nowhere else.

It builds on ``optics.tracing``; shifts, datasets and drawings may import it. It knows nothing of models, plans or tables.
"""
