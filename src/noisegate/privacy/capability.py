"""Optional capabilities: what a policy can allow or forbid, and what each of them is.

Each is code that only its own questions load; those to opt in are off unless a policy names them.
What is not on this list is always there: SQL, plain tables and sums, quantiles, choices by score.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CAPABILITIES: Final[Mapping[str, str]] = MappingProxyType({
    "programs": "programs of analysts on blocks of rows",
    "series": "running totals of a table that grows",
    "many": "sessions of many questions against a model (private multiplicative weights)",
    "learning": "statistics of rows, for learners",
    "objective": "objective perturbation, which reads rows as they are",
    "partitions": "releases whose partition is chosen by the cells",
    "smooth": "noise by smooth sensitivity, and propose-test-release",
    "crowds": "exact counts of a secret sample",
    "graphs": "numbers of graphs",
    "sparse": "summaries of up to 2**64 cells",
})  # fmt: skip
OPT_IN: Final = MappingProxyType({"own_mechanisms": "noise of a researcher's own on exact numbers"})
MEANINGS: Final[Mapping[str, str]] = MappingProxyType({**CAPABILITIES, **OPT_IN})
