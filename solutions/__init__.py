"""The engine: one module a layer, each importing only from the layers before it."""
