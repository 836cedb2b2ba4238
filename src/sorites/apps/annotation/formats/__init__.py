"""Export and import labellings: tables, FOCUS's database, files of Label Studio and VIA, COCO
boxes, facts of a run.
"""

from sorites.apps.annotation.formats.convert import read_into, write

__all__ = ["read_into", "write"]
