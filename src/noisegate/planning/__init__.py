"""What prices mean and buy: noise for an ε, questions for a budget, sharper readings, words.

Not trusted: what is charged follows from the event of a mechanism, whatever was planned.
"""
