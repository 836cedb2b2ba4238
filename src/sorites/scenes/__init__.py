"""Scenes: places, cut-outs composed into them with exact boxes, and the noise fields used for drawing.

Sources compose images with this package; shifts draw weather with its fields.
"""
