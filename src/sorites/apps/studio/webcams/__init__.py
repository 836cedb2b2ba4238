"""Cameras without a shutter button: webcams (V4L2, network streams) and camera modules (libcamera)."""
