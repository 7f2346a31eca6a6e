"""Wrong versions that people really write, one module a chapter."""
