"""What a GPU computes faster by kernels of our own. Each has a plain twin, and is used only where the two agree (trust.py)."""
