"""Many processes, one run."""
