"""Start a run again when it dies."""
