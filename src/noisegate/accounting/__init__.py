"""What an event costs: accountants that authorise, reports that are sharper, calibration, planning.

Imports `privacy`, `exact`, `errors`. Read `accountant.py` first: the contract every price follows.
"""
