"""The virtual studio: camera, lamps and television on the loopback address, to try everything
without a dark room.
"""
