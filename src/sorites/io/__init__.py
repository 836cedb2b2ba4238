"""Files, readers, object stores and locks."""
