"""Checks that a run is complete and undamaged, and the evidence of results."""
