"""From noisy whole numbers to estimates with error bars: begin with `estimate.py`."""
