"""Transforms of other libraries as shifts: ``transform:module:object?…`` and ``nrtk:FILE.json``."""
