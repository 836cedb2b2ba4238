"""Products on top of the library: studio, annotation, collecting, generation."""
