"""Scenes: places, cut-outs set into them with exact boxes, and the fields and the light that
images are drawn with.

A low room: sources compose images with it when they are asked for, shifts draw weather with its fields.
"""
