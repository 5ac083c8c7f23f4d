"""One pre-training run, from settings to weights; start at `loop.py`."""
