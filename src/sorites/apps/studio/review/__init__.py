"""The review of a capture: sheets served to several reviewers, each with their own link."""
