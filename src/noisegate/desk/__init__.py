"""The desk: one way from an order to a release, for everything that an analyst can ask for.

rules      what the policy says about questions
terms      what is said about paying, and how orders are checked
price      the one place where a price becomes noise
plan       what an order would cost and give: free, reads no row
desk       plan a job, run a job: found in the ledger, or paid for and drawn once
release    what was released, in somebody's hands: save, load, card, plot, JSON
"""
