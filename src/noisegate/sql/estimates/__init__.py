"""From a block to what is measured, and from noisy whole numbers to estimates with error bars.

Pure functions without rows or chance. Read `draft.py` (which tallies), `split.py` (shares of ε),
`purchase.py` (which noise), then `estimate.py` (the numbers and their bars).
"""
