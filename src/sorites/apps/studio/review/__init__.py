"""Review of a capture by several reviewers, each with a personal link."""
