"""The door: reserve, read, draw, settle. Every private number leaves through here.

Imports `ledger`, `mechanisms`, `transforms`, `sources`, `noise` and below. Read `curator.py` first.
"""
