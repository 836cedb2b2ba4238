"""The screen: a page that any browser on a television opens, and a television of our own for trying out."""
