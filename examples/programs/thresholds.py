"""How evenly each threshold splits the ages of a block: scores of candidates, from 0 to 1/4."""


def balance(rows):
    """One score for each of 30, 60 and 90."""
    shares = [(rows["age"] > limit).mean() for limit in (30, 60, 90)]
    return [float(share * (1 - share)) for share in shares]
