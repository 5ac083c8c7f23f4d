"""Triton kernels for GPUs. Each has a plain twin, and is used only where the two agree (trust.py)."""
