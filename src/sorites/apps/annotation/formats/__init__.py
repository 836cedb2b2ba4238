"""Export and import labellings: tables, FOCUS's database, Label Studio, VIA, COCO boxes, and run facts."""

from sorites.apps.annotation.formats.convert import read_into, write

__all__ = ["read_into", "write"]
