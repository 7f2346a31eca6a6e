"""Expected values made elsewhere, the scripts that make them, and a manifest of both."""
