"""What a run did: evaluation, replay of a step, the report."""
