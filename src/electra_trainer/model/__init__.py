"""The networks, under transformers' parameter names."""
