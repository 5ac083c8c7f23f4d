"""The ways to begin a run: fresh weights, trained ones (`--init`), and the state of another run (`--continue-from`)."""
