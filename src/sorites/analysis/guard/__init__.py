"""Choose the threshold of a guard, write it, and check it on new images."""
