"""What trained runs can do: readings of the paper's appendices and probes of grammar."""
