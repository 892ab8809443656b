"""What an event costs: accountants that authorise, and the theorems that they use.

Imports `privacy`, `exact`, `errors`. Read `accountant.py` first: the contract every price follows.
"""
