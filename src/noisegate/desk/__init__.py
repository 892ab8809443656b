"""The desk: one way from an order to a release, for everything that an analyst can ask for.

terms/     what is said about paying, what the policy says, and how a price becomes noise
order      what somebody asks for, as data
job        the same, read and checked
plan       what an order would cost and give: free, reads no row
desk       plan a job, run a job: found in the ledger, or paid for and drawn once
release    what was released, in somebody's hands: save, load, card, plot, JSON
display/   numbers, tables, charts and notebooks, for human eyes
"""
