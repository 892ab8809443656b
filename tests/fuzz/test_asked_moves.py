"""Whatever a feature asks at the door, looks and rounds of recipes included, moves by at most its claim.

The questions of `fuzz_claims` are those that a plan foretells. Here each feature is asked, whatever
it measures is noted down where it is drawn, and collected again without a unit.
"""

import numpy as np
import pytest
from hard_worlds import world
from sql_oracle import with_coins
from test_every_feature import FEATURES, PLACES, outcome
from test_sensitivity import collected, require_claim

from noisegate.algebra.tally import Marginals
from noisegate.curator.curator import Curator
from noisegate.transforms.query import Query

PROGRAMS = ("apply", "distance", "choose by")  # blocks of rows, and answers of other programs
TRIED = 100  # questions of each place at least; about 150 are asked


def asked_of(name, of):
    """The exact questions of all features, each once."""
    found, draw = {}, Curator._draw

    def noted(door, measurement, *more, **how):
        if type(getattr(measurement, "query", None)) is Query:
            found.setdefault(measurement.question(), measurement.query)
        return draw(door, measurement, *more, **how)

    gate = world(name).gate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curator, "_draw", noted)
        for what, ask in FEATURES.items():
            if not what.startswith(PROGRAMS):
                outcome(gate, ask, of)
    return [query for query in found.values() if query.asks != "rows"]


def blocks_of(query, numbers):
    """What is noised, one array for each norm that is claimed."""
    if query.asks == "combinations":
        return query.combinations.apply(numbers[0])
    return [query.distances.apply(numbers)] if query.asks == "distances" else numbers


@pytest.mark.long
@pytest.mark.parametrize(("name", "of"), PLACES)
def test_what_features_ask_moves_by_at_most_its_claim(name, of):
    here, queries = world(name).gate().door._source, asked_of(name, of)
    assert len(queries) > TRIED
    for query in queries:
        asked = with_coins(query)
        before = collected(here, asked)
        for other in world(name).neighbours:
            after = collected(other, asked)
            strategic = query.asks in ("combinations", "distances")
            if strategic or isinstance(query.tally, Marginals):
                require_blocks(query, blocks_of(query, before), blocks_of(query, after))
            else:
                require_claim(query, None, before, after)


def require_blocks(query, one, other):
    for here, there, l1, l2 in zip(one, other, query.l1s, query.l2s, strict=True):
        moved = np.asarray(here).astype(object) - np.asarray(there).astype(object)
        assert np.abs(moved).sum() <= l1.value
        assert (moved**2).sum() <= l2.squared
        if len(query.l1s) == 1 or isinstance(query.tally, Marginals):
            assert np.abs(moved).max(initial=0) <= query.any_one
        if query.is_monotone:
            assert moved.min(initial=0) >= 0 or moved.max(initial=0) <= 0
