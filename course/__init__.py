"""The course tool: set-up, checks, hints, the model, and the layers put together."""
