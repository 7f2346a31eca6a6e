"""Grading cases, what they are measured against, and the tests of the course tool itself."""
