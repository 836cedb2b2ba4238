"""Import predictions made elsewhere as a run folder: ``cells`` and ``published`` read files, ``rows`` and
``write`` make the run.
"""
