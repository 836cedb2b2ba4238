"""Collect images and their licences from image search services; the only package that searches the web."""
