"""Wrong definitions that once passed: the cases that catch them are there to stay."""
