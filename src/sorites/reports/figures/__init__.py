"""Images for people apart from the report: strips along a dial, kernel sheets, lens sheets.

A drawing takes data and returns a Pillow image; it evaluates nothing and prints nothing.
"""
