"""Demonstrations that run: what the gate does, told step by step on made-up rows.

Imports `connect` and below. Read `demo.py` first.
"""
