"""A model's passport as data: the battery of suites and the numbers."""
