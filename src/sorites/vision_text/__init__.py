"""Image-text encoders of other libraries, loaded for whoever needs one: a referee judges by them, a zero-shot model predicts."""
