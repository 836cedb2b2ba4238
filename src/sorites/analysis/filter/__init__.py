"""The out-of-class filter: images that no longer show their class."""
