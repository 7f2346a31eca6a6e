"""This engine beside its peers, in one run on one machine: `python -m course bench`."""
