"""What is learnt about images after a run: similarity, distance, levels."""
