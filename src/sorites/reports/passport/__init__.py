"""A model's passport: one page and one JSON file about a fixed, versioned battery of suites."""
