"""Philips Hue lamps, by the first and the second version of their bridge's interface."""
