"""A trained network as a thing to load, score, fill, export or begin with."""
