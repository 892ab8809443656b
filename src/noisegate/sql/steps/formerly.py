"""How older versions read a question, so that an older ledger's answer is found for free."""

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple, Self

from noisegate.frozen import replace
from noisegate.sql.bounds.sized import adds, counts_values, has_both
from noisegate.sql.drafts.within import SINCE, is_narrowed
from noisegate.sql.steps.asked import Reading

CAPS_SINCE: Final = "2026-11-18T05"  # ledgers that began later hold no numbers under former caps
VALUES_SINCE: Final = "2026-11-19T23"  # nor counts of different values bounded by rows
FEW_SINCE: Final = "2026-11-20T03"  # nor of few values under a cap on nearly all of a unit
OWN_SINCE: Final = "2026-11-18T09"  # nor averages under the cap of counts beside them
# nor numbers of near bounds under it, or with noise about 0, or of far bounds as declared
SUMS_SINCE: Final = "2026-11-19T13"


class Formerly(NamedTuple):
    """In which ways a question is as it was once; see `Block`."""

    near: bool = False
    shared: bool = False
    former: bool = False
    wide: bool = False
    noisy_zeros: bool = False
    by_rows: bool = False
    all_values: bool = False

    def read(self, reading: Reading) -> Reading:
        """The question that way."""
        blocks = tuple(replace(each, **self._asdict()) for each in reading.question.blocks)
        return replace(reading, question=replace(reading.question, blocks=blocks))

    @classmethod
    def of(cls, reading: Reading) -> Self:
        """How a question is."""
        blocks = reading.question.blocks
        return cls(*(any(getattr(each, name) for each in blocks) for name in cls._fields))


def former_ways(reading: Reading, begun: str, *, looks: bool, bounds: bool) -> Iterator[Reading]:
    """The question as it was read when a ledger was begun; without those that change nothing.

    ``looks``: caps are estimated; ``bounds``: these are.
    """
    blocks = reading.question.blocks
    wide = (False, True) if begun < SINCE and any(map(is_narrowed, blocks)) else (False,)
    ways = [Formerly()]
    was = Formerly(near=True, noisy_zeros=True, by_rows=True, all_values=True)
    values = any(map(counts_values, blocks))
    ways += [Formerly(all_values=True)] * (begun < FEW_SINCE and values)
    ways += [Formerly(by_rows=True, all_values=True)] * (begun < VALUES_SINCE and values)
    ways += [was] * (begun < SUMS_SINCE and (bounds or any(map(adds, blocks))))
    if looks:
        ways += [was._replace(shared=True)] * (begun < OWN_SINCE and any(map(has_both, blocks)))
        ways += [was._replace(shared=True, former=True)] * (begun < CAPS_SINCE)
    for way, at in list(product(ways, wide))[1:]:
        yield way._replace(wide=at).read(reading)
