"""One verb of the command line a file: its `Arguments`, and `run`."""
