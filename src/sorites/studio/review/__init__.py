"""The review of a capture: sheets served to several reviewers, each with a link of an own."""
