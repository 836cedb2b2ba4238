"""Import predictions made elsewhere as a run folder: ``read`` and ``published`` read files, ``rows`` and
``write`` make the run.
"""
