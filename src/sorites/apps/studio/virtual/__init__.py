"""Virtual studio: camera, lamps and screen on the loopback address, to run everything without hardware."""
