"""The classic attacks, each tried three times: on raw answers, on a classic defence, on the gate.

Read `run.py` first.
"""
