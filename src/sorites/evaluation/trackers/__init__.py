"""Experiment trackers: ``base`` has what is logged and opens them, ``live`` logs while a run works."""
