"""Models that survive: augmentations, recipes, the training loop, and what changed in a model by training it."""
