"""Train detectors: ground-truth boxes that follow crops and flips, targets, losses and steps."""
