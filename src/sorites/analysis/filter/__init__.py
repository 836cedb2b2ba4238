"""The out-of-class filter, which marks images that no longer show their class."""
