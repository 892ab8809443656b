"""k-anonymity as a contrast: the checker, the generaliser, and why neither protects anybody."""

import numpy as np
import pyarrow as pa
import pytest

from noisegate.crowd.anonymity import anonymity, betrayed, generalised, linked
from noisegate.errors import SpecError
from noisegate.lab.attacks.linkage import steps_of

QUASI = ["age", "zip"]


@pytest.fixture(scope="module")
def rows():
    chance = np.random.default_rng(5)
    return pa.table(
        {
            "age": chance.integers(18, 90, 400),
            "zip": [f"10{digit}" for digit in chance.integers(0, 9, 400)],
            "ill": chance.choice(["flu", "gout", "asthma"], 400),
        }
    )


def test_the_checker_counts_groups_and_values():
    table = pa.table({"a": [1, 1, 1, 2, 2], "s": ["x", "y", "y", "z", "z"]})
    found = anonymity(table, ["a"], sensitive="s")
    assert (found.k, found.l, found.groups) == (2, 1, 2)
    assert anonymity(table, ["a", "s"]).k == 1
    assert "not a privacy guarantee" in str(found)


@pytest.mark.parametrize("k", [1, 2, 5, 37, 400])
def test_generalised_tables_are_anonymous_and_keep_the_rest(rows, k):
    made = generalised(rows, QUASI, k)
    assert anonymity(made, QUASI).k >= k
    assert made["ill"].equals(rows["ill"])
    assert made.column_names == rows.column_names
    if k <= 5:
        assert anonymity(made, QUASI).groups >= 400 // (4 * k)  # not all in one


def test_ranges_hold_the_values_they_stand_for(rows):
    made = generalised(rows, QUASI, 10)
    for shown, value in zip(made["age"].to_pylist(), rows["age"].to_pylist(), strict=True):
        low, _, high = shown.partition(" to ")
        assert int(low) <= value <= int(high or low)


def test_an_anonymous_table_can_show_somebody_in_full(rows):
    made = generalised(rows, QUASI, 10)
    shown = betrayed(made, 7)
    everywhere = [f"{name} of one" for name in rows.column_names]
    assert anonymity(shown, [*QUASI, *everywhere]).k >= 10
    assert set(shown["ill of one"].to_pylist()) == {rows["ill"][7].as_py()}


def test_two_anonymous_tables_together_single_people_out():
    """Two hospitals, each 3-anonymous by itself; a person in both has one illness in common."""
    one = pa.table({"group": ["20s"] * 3, "ill": ["flu", "gout", "asthma"]})
    other = pa.table({"group": ["20s"] * 3, "ill": ["flu", "cold", "burn"]})
    assert anonymity(one, ["group"]).k == anonymity(other, ["group"]).k == 3
    assert anonymity(one, ["group"], sensitive="ill").l == 3
    both = set(one["ill"].to_pylist()) & set(other["ill"].to_pylist())
    assert both == {"flu"}


def test_linkage_finds_those_whose_groups_hold_one_value(rows):
    known = rows.select(QUASI)
    exact = linked(known, rows, QUASI, sensitive="ill")
    assert exact > 200  # most pairs of age and zip occur once
    made = generalised(rows, QUASI, 10)
    assert linked(made.select(QUASI), made, QUASI, sensitive="ill") < exact / 4


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: anonymity(rows, []),
        lambda rows: anonymity(rows, ["colour"]),
        lambda rows: anonymity(rows, ["age"], sensitive="colour"),
        lambda rows: generalised(rows, QUASI, 0),
        lambda rows: generalised(rows, QUASI, 401),
        lambda rows: betrayed(rows, 400),
        lambda rows: linked(rows, rows, ["colour"], sensitive="ill"),
    ],
)
def test_nonsense_is_refused(rows, call):
    with pytest.raises(SpecError):
        call(rows)


def test_the_attacks_work_on_made_up_people():
    found = dict(steps_of(people=400, k=5))
    assert "not a privacy guarantee" in found["k-anonymous"]
    certain = int(found["a table without names"].split("illness of ")[1].split(" of ")[0])
    assert certain > 300
    singled = int(found["two of them"].split("illness, ")[1].split(" have ")[0])
    assert singled > 20  # of 80
    assert "5-anonymous" in found["somebody in full"] or "6-anonymous" in found["somebody in full"]
    with pytest.raises(SpecError):
        steps_of(people=3, k=5)
