"""Export a run in the formats of other tools: ``write`` dispatches by format, ``coco`` writes boxes,
``tables`` the table itself, ``fiftyone`` images with answers.
"""
