"""Functions that drive live objects beside the code under test and report what happened."""
