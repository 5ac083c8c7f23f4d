"""What a run costs, from its configuration alone: parameters, operations, memory. No torch here."""
