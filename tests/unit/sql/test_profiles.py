"""Two paid looks: rows per unit and the range of a column. ε is huge here, so noise is below 1."""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import SpecError, Unsupported
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.estimates.profiles import (
    PART,
    PARTS,
    STEPS,
    Profile,
    range_of,
    rows_per_unit_query,
)
from noisegate.sql.reading.reader import read
from refusals import about

SURE = 1000  # noise of scale 1/1000: off by one with probability below e^-1000


def gate(epsilon=100_000, **more):
    owners = np.repeat(np.arange(100), 2).tolist() + [100] * 1000
    rows = pa.table({
        "who": owners, "x": [3.5] * 600 + [-20.0] * 600, "word": ["a"] * 1200,
    })  # fmt: skip
    more = {"unit": "who", "rows_per_unit": 10} | more
    return noisegate.open(rows, epsilon=epsilon, table="t", **more)


def test_the_profile_counts_units_by_their_rows():
    profile = gate().caps("t", epsilon=SURE)
    counts = dict(zip(STEPS, profile.units, strict=True))
    heavy = min(step for step in STEPS if step >= 1000)
    assert {step: n for step, n in counts.items() if n} == {2: 100, heavy: 1}


def test_what_a_cap_loses_is_told_before_asking():
    door = gate()
    question = "SELECT COUNT(*) AS n FROM t"
    assert "is not known" in door.plan(question, epsilon=1).expected.clipping[1]
    door.caps("t", epsilon=SURE)
    _, words = door.plan(question, epsilon=1).expected.clipping
    assert (
        "the contribution bound loses about 8" in words
    )  # (1000 - 10) of 1,200 rows, in coarse bins
    assert "clipping" in dict(door.plan(question, epsilon=1).facts())


def test_the_best_cap_weighs_what_is_lost_against_noise():
    profile = gate().caps("t", epsilon=SURE)
    assert profile.best(0.001) == 1  # noise of 1000 a row outweighs everything
    assert profile.best(1000) >= 1000 * 0.75  # no noise to speak of: keep all, up to the bin's edge
    assert profile.lost(STEPS[-1]) == 0


def test_noise_alone_is_no_unit_with_many_rows():
    units = tuple(3 if step > 10_000 else 0 for step in STEPS)
    assert Profile(table="t", units=units, scale=1.0).rows == 0


def test_a_look_is_paid_once():
    door = gate()
    first, second = door.caps("t", epsilon=1), door.caps("t", epsilon=1)
    assert first == second
    assert str(door.spent) == "ε = 1"


@pytest.mark.parametrize("capped", [True, False])
def test_bounds_are_powers_of_two_around_the_values(capped):
    more = {} if capped else {"unit": None, "rows_per_unit": None}
    assert gate(**more).bounds("t", "x", epsilon=SURE) == (-32, 4)


def test_values_that_do_not_stand_clear_of_noise_have_no_bounds():
    """All values together are far below the noise. One look finds bounds once in a thousand."""
    refused = 0
    for _ in range(5):
        with suppress(Unsupported):
            gate().bounds("t", "x", epsilon="0.001")
            continue
        refused += 1
    assert refused >= 3  # false alarm: below 10⁻⁷


@pytest.mark.parametrize(
    ("values", "found"),
    [({0: 9}, (0, 0)), ({65: 9}, (1, 2)), ({-65: 9, 66: 9}, (-2, 4)), ({1: 9}, (2**-64, 2**-63))],
)
def test_the_ends_of_bins_are_where_their_values_end(values, found):
    counts = [values.get(place, 0) for place in range(-129, 130)]
    assert range_of(counts, scale=0.1) == found


def test_what_has_no_profile_is_refused():
    with pytest.raises(Unsupported, check=about("units")):
        gate(unit=None, rows_per_unit=None).caps("t", epsilon=1)
    with pytest.raises(Unsupported, check=about("number")):
        gate().bounds("t", "word", epsilon=1)
    with pytest.raises(SpecError, check=about("table")):
        gate().caps("nope", epsilon=1)


def test_an_answer_under_a_cap_says_that_it_is_a_lower_bound_and_how_to_find_out():
    door = gate()
    answer = door.sql("SELECT COUNT(*) AS n FROM t", epsilon=1)
    assert "are lower bounds" in answer.caveats[0]
    assert "is not known: gate.caps('t', epsilon=...) estimates it" in " ".join(answer.caveats)
    door.caps("t", epsilon=SURE)
    answer = door.sql("SELECT COUNT(*) AS n FROM t", epsilon=2)
    assert "the contribution bound loses about 8" in " ".join(answer.caveats)
    assert abs(answer.rows[0][0] - 1200) <= answer.margins()["n"][0]  # raised by what is lost
    assert answer.margins()["n"][0] > 3 * answer.noise_margins()["n"][0]
    people = door.sql("SELECT COUNT(DISTINCT who) AS n FROM t", epsilon=1)
    assert not any("bound" in each for each in people.caveats)


def test_what_is_lost_is_that_of_the_rows_of_the_question():
    """Of rows with x below 0 nobody has more than one, whoever has a thousand of the others."""
    rows = pa.table({"who": [0] * 1000 + list(range(300)), "x": [1] * 1000 + [-1] * 300})
    door = noisegate.open(rows, epsilon=10 * SURE, table="t", unit="who", rows_per_unit=10)
    door.caps("t", epsilon=SURE)
    few = "SELECT COUNT(*) AS n FROM t WHERE x < 0"
    assert 'choose="caps" in place of the cap' in door.plan(few, epsilon=1).expected.clipping[1]
    answer = door.sql(few, epsilon=SURE, choose="caps")
    assert answer.rows == ((300,),)
    assert "the contribution bound loses about 0.0%" in " ".join(answer.caveats)


def test_a_sum_is_looked_at_by_what_units_add_to_it():
    """200 units have 30 rows of 1, where 100 may be: each adds less than one row may.

    The cap is the end of the bin that holds 30, in parts of 100.
    """
    rows = pa.table({"who": [i % 200 for i in range(6000)], "x": [1] * 6000})
    facts = {"x": {"between": [0, 100]}}
    door = noisegate.open(
        rows, epsilon=10 * SURE, table="t", unit="who", rows_per_unit=5, columns=facts
    )
    total = "SELECT SUM(x) AS s FROM t"
    answer = door.sql(total, epsilon=SURE, choose="caps")
    assert answer.rows[0][0] == pytest.approx(6000, abs=10)  # noise of scale 31 / 800
    assert "the cap on what one unit adds to SUM(x), as estimated: 31" in answer.caveats
    assert "adds to SUM(x) counts up to 31; a unit with more" in " ".join(answer.caveats)
    assert "the contribution bound loses about 0.0%" in " ".join(answer.caveats)
    counted = door.sql("SELECT COUNT(*) AS n FROM t", epsilon=SURE, choose="caps")
    assert counted.rows[0][0] == pytest.approx(6000, abs=10)
    assert (
        "the cap on rows per unit, as estimated: 31" in counted.caveats
    )  # the end of the bin that holds 30


def test_a_look_at_sums_moves_by_one_for_one_unit():
    rows = pa.table({"who": [1] * 50 + [2], "x": [9.5] * 51, "word": ["a"] * 51})
    door = noisegate.open(rows, epsilon=1, table="t", unit="who", rows_per_unit=1,
                          columns={"x": {"between": [-10, 10]}})  # fmt: skip
    (block,) = read("SELECT SUM(x) AS s, COUNT(word) AS n FROM t", door.tables).blocks
    sized = draft(block, Caps(rows_per_unit=1), derive=False).parts[0].query.tally.sized
    query = rows_per_unit_query(block.relation, sized)
    assert len(sized) == 2
    assert (query.l1s[0].value, query.l2s[0].squared) == (1, 1)
    counts = door._curator._source.sums(query.tally)[0]
    steps = dict(zip(PARTS, counts.tolist(), strict=True))
    light, heavy = (min(step for step in PARTS if step >= n / PART) for n in (1, 50))  # by COUNT
    assert {step: n for step, n in steps.items() if n} == {light: 1, heavy: 1}


def profile_of(counts, scale=1.0):
    return Profile(table="t", units=tuple(counts.get(j, 0) for j in range(len(STEPS))), scale=scale)


def test_a_bin_far_beyond_the_others_counts_only_beyond_doubt():
    bulk = dict.fromkeys(range(6), 100)
    far = len(STEPS) - 2
    assert profile_of(bulk | {far: 10}).rows == pytest.approx(profile_of(bulk).rows, rel=0.01)
    assert profile_of(bulk | {far: 40}).rows > 10 * profile_of(bulk).rows
    assert profile_of(bulk | {10: 15}).rows > profile_of(bulk).rows  # near the others


def test_bins_that_are_not_clear_by_themselves_are_seen_together():
    bulk = dict.fromkeys(range(6), 100)
    tail = dict.fromkeys(range(6, 14), 4)
    assert profile_of(bulk | tail).rows > profile_of(bulk).rows
    assert profile_of(bulk | {8: 4}).sizes.end == profile_of(bulk).sizes.end


@pytest.mark.long
def test_noise_alone_seldom_chooses_a_far_larger_cap():
    """100 looks at 2,000 units of few rows. A bin stands clear by noise with a chance of 1 %, and
    less with each bin between: a tenth of all looks see one, 1 % one that is ten times as large.
    False alarm: 22 of 10, and 7 of 1, are above four and six deviations."""
    random = np.random.default_rng(4)
    exact = profile_of({0: 1000, 1: 600, 2: 300, 3: 100}).best(0.1)
    wrong = far = 0
    for _ in range(100):
        noise = np.rint(random.laplace(0, 50, len(STEPS))).astype(int)
        counts = {j: int(n) for j, n in enumerate(noise)}
        for j, n in {0: 1000, 1: 600, 2: 300, 3: 100}.items():
            counts[j] += n
        found = profile_of(counts, scale=50.0).best(0.1)
        wrong += found > 4 * exact
        far += found > 40 * exact
    assert (wrong <= 22, far <= 7) == (True, True)
