"""Numpy in float64, written differently from the engine: what the expected values come from."""
