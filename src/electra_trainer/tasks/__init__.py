"""Kinds of task: reading their rows, their heads, predictions, scores and baselines."""
