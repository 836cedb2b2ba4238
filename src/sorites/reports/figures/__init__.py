"""Images outside the report: strips along a shift, kernel sheets and lens sheets.

A drawing takes data and returns a Pillow image; it evaluates nothing and prints nothing.
"""
