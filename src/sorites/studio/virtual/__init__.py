"""The virtual studio: camera, lamps and television on the loopback address, for trying all out without a dark room."""
