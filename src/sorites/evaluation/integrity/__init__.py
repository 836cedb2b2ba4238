"""Whether a run is complete and undamaged, and what results rest on."""
