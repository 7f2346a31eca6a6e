"""Grading cases, one module a chapter."""
