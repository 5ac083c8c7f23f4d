"""Every knob as a frozen dataclass, and how one becomes a file and is read back."""
