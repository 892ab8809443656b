"""Demonstrations that run: the gate told step by step on made-up rows, and what a budget buys.

Imports `root` and below. Read `demo.py` first.
"""
