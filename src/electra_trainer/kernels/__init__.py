"""Faster twins of model code, used only where they agree with it."""
