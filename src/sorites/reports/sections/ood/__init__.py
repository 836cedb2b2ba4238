"""Sections on OOD detection: separation by definition of OOD, by level, and the scores themselves."""
