"""One function per published run, and the arms of the experiments."""
