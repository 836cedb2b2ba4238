"""Sorites: how far can the world shift before a vision model fails, and does the model know?"""

__version__ = "0.1.0"
