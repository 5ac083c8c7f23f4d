"""A run on disk and as a process: folder, metrics, checkpoints, signals, status."""
