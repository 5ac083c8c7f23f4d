"""What the paper measured, with our numbers under it."""
