"""Measurements of the devices: the sensor of a camera, the light of a screen."""
