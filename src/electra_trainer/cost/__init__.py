"""Parameters, FLOPs and memory from the settings alone."""
