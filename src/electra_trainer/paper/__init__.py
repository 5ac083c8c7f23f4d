"""The paper's measurements, with our numbers under them."""
