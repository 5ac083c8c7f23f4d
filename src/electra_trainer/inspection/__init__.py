"""Look into a run: evaluation, replay of a step, the report."""
