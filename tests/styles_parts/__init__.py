"""Correct definitions in other styles, one or two at a time: the cases must accept them."""
