"""The classic attacks, each tried three times: on raw answers, on a classic defence, on the gate.

Read `base.py` first; every other module is one attack.
"""
