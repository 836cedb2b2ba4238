"""Compare two models on the same images, test the differences, and gate on them."""
