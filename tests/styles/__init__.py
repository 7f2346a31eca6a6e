"""Correct answers in other styles than the engine: the cases must accept them."""
