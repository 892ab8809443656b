"""Programs on blocks of rows: who is in which block, and how far one of them moves the answer."""

import struct
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from door import Watched, curator, table
from noisegate.accounting.pure import pure_loss
from noisegate.algebra.blocks import STEPS, Blocks, Program
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Join, Sampled, Table
from noisegate.curator.blocks import BlockMeasurement, said_of_blocks, turns_of
from noisegate.errors import OverBudget, SourceError, SpecError, Unsupported
from noisegate.isolated.cell import Cell
from noisegate.isolated.channel import packed, unpacked
from noisegate.isolated.lockdown import can_lock
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.keys.key_selection import KeySelection
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.winsorised import Winsorised
from noisegate.mechanisms.smooth.smooth import SmoothStudent
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import ExponentialEvent, GeometricEvent, Sequential
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.writing.blocks import dealt_rows
from noisegate.transforms.blocks import BlockQuery
from refusals import about, listed

OWNED = table(
    "people", "id", ("id", Kind.INTEGER), ("x", Kind.NUMBER), ("n", Kind.INTEGER), ("t", Kind.TEXT)
)
ROWS = table("people", None, ("x", Kind.NUMBER), ("n", Kind.INTEGER), ("t", Kind.TEXT))
FIND = "def f(rows):\n    return 10 if 77 in rows['n'] else 0"
runs = pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")


def asked(domain=OWNED, text=FIND, **more):
    terms = {
        "relation": Table(domain), "columns": ("x", "n", "t"), "program": Program(text, "f"),
        "blocks": 6, "ranges": ((Fraction(0), Fraction(10)),), "defaults": (Fraction(5),),
        "seconds": Fraction(1, 20), "memory": 32,
    }  # fmt: skip
    return Blocks(**terms | more)


def source_of(listed, domain=OWNED):
    """A source of rows (id, x, n, t)."""
    columns = zip(*listed, strict=True) if listed else [[]] * 4
    kinds = (pa.int64(), pa.float64(), pa.int64(), pa.string())
    made = [pa.array(list(c), kind) for c, kind in zip(columns, kinds, strict=True)]
    rows = pa.table(dict(zip(("id", "x", "n", "t"), made, strict=True)))
    return DuckDBSource({"people": rows}, {"people": domain})


def blocks_of(listed, tally, key="secret", domain=OWNED):
    """The blocks, each written out: equal only if a program could see no difference."""
    found = source_of(listed, domain).blocks(tally, key, list)
    return [
        [(name, str(column.dtype), repr(column.tolist())) for name, column in block.items()]
        for block in found
    ]


people = st.tuples(
    st.integers(1, 9),
    st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, "", "a", "é"]),
)


def changed_blocks(one, other):
    assert len(one) == len(other)
    return sum(a != b for a, b in zip(one, other, strict=True))


@settings(max_examples=12, deadline=None)
@given(st.lists(people, max_size=30), st.integers(1, 8))
def test_one_unit_changes_one_block(listed, blocks):
    tally = asked(blocks=blocks)
    others = [row for row in listed if row[0] != 1]
    one, other = blocks_of(listed, tally), blocks_of(others[::-1], tally)
    assert changed_blocks(one, other) == (others != listed) <= BlockQuery(tally).changed


def by_position(listed, blocks):
    """A broken copy: rows are dealt out in their order."""
    return [listed[first::blocks] for first in range(blocks)]


def test_dealing_by_position_would_be_noticed():
    listed = [(person, 1.0, person, "") for person in range(20)]
    assert changed_blocks(by_position(listed, 5), by_position(listed[1:], 5)) == 5
    tally = asked(blocks=5)
    assert changed_blocks(blocks_of(listed, tally), blocks_of(listed[1:], tally)) == 1


def test_a_missing_number_elsewhere_is_not_seen():
    """Whole numbers stay whole in every block but the one where a number is missing."""
    listed = [(person, 1.0, 1, "a") for person in range(40)]
    before = blocks_of(listed, asked())
    after = blocks_of([*listed, (99, None, None, None)], asked())
    assert changed_blocks(before, after) == 1


def test_all_rows_of_a_unit_are_in_one_block_and_all_rows_are_somewhere():
    listed = [(person, float(person), turn, "") for person in range(30) for turn in range(4)]
    found = source_of(listed).blocks(asked(), "secret", list)
    homes = [set(block["x"]) for block in found]
    assert sum(map(len, homes)) == 30
    assert sum(len(block["n"]) for block in found) == 120
    for block in found:
        for start in range(0, len(block["x"]), 4):
            assert block["n"][start : start + 4].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("domain", [OWNED, ROWS])
def test_blocks_and_orders_are_as_good_as_random(domain):
    """χ² of 6 blocks over 3,000 units in 4 deals; each bound fails by chance below 1e-7."""
    listed = [(person, float(person), person, "") for person in range(3000)]
    source, tally, homes = source_of(listed, domain), asked(domain), []
    for key in ("a", "b", "c", "d"):
        found = source.blocks(tally, key, list)
        sizes = np.array([len(block["n"]) for block in found])
        assert ((sizes - 500) ** 2 / 500).sum() < 44
        home = np.empty(3000)
        for place, block in enumerate(found):
            home[block["n"]] = place
            rises = np.mean(np.diff(block["n"]) > 0)
            assert abs(rises - 0.5) < 5.5 * (1 / 12 / (len(block["n"]) - 1)) ** 0.5
        homes.append(home)
    for one, other in pairwise(homes):  # agree where chance lets them: 500 ± 5.5 σ
        assert abs((one == other).sum() - 500) < 5.5 * (3000 * 5 / 36) ** 0.5


def test_rows_that_are_units_are_dealt_alike_in_whatever_order_they_are_read():
    listed = [
        (1, x, n, t) for x in (None, 0.0, -0.0, 1.5) for n in (None, 2) for t in ("", "a", "")
    ]
    tally = asked(ROWS)
    one = blocks_of(listed, tally, domain=ROWS)
    assert one == blocks_of(listed[::-1], tally, domain=ROWS)
    assert one != blocks_of(listed, tally, key="other", domain=ROWS)


def test_rows_out_of_order_are_refused():
    """A unit whose rows came in two places would be in two blocks."""
    tally = asked(columns=("n",), blocks=2)
    rows = {"v0": [1, 2, 3], "h": ["1" * 16, "f" * 16, "2" * 16]}
    batches = pa.table(rows).to_batches(max_chunksize=2)
    with pytest.raises(SourceError, check=about("order")):
        list(dealt_rows(batches, tally))
    found = list(dealt_rows(batches[:1], tally))
    assert [block["n"].tolist() for block in found] == [[1], [2]]


def test_only_rows_that_were_asked_for_and_units_are_dealt():
    listed = [(1, 1.0, 5, "a"), (2, 2.0, 77, "b"), (None, 3.0, 7, "c")]
    kept = Filter(Table(OWNED), Call("lt", (Field("n"), Literal(10))))
    found = source_of(listed).blocks(asked(relation=kept, columns=("n",), blocks=1), "k", list)
    assert [{name: column.tolist() for name, column in b.items()} for b in found] == [{"n": [5]}]


def test_every_kind_of_column_arrives_as_it_is():
    columns = {
        "day": pa.array([date(2024, 5, 1), None]),
        "at": pa.array([datetime(2024, 5, 1, 12, 30), None]),  # noqa: DTZ001 - times have no zone
        "sick": pa.array([True, None]),
        "t": pa.array(["é", None]),
        "n": pa.array([7, None]),
    }
    kinds = (Kind.DATE, Kind.TIMESTAMP, Kind.BOOLEAN, Kind.TEXT, Kind.INTEGER)
    made = table("people", None, *zip(columns, kinds, strict=True))
    source = DuckDBSource({"people": pa.table(columns)}, {"people": made})
    (block,) = source.blocks(asked(made, columns=tuple(columns), blocks=1), "key", list)
    there = unpacked(packed(block))
    order = np.argsort(np.isnan(there["n"]))
    found = {name: column[order] for name, column in there.items()}
    assert found["day"][0] == np.datetime64("2024-05-01")
    assert found["at"][0] == np.datetime64("2024-05-01T12:30")
    assert np.isnat(found["day"][1])
    assert np.isnat(found["at"][1])
    assert [found[name].tolist() for name in ("sick", "t")] == [[True, None], ["é", None]]
    assert found["n"][0] == 7


# sensitivity and event


def test_the_sensitivity_is_that_of_the_blocks_a_unit_is_in():
    query = BlockQuery(asked(resample=3))
    assert query.changed == 3
    assert query.l1s == (L1(3 * STEPS),)
    assert query.l2s == (L2(squared=9 * STEPS**2),)
    two = BlockQuery(asked(ranges=((Fraction(0), Fraction(1)),) * 2, defaults=(Fraction(0),) * 2))
    assert two.l1s == (L1(STEPS),) * 2


def mean(tally, epsilon):
    query = BlockQuery(tally)
    noises = tuple(Geometric.for_epsilon(epsilon, sensitivity=l1) for l1 in query.l1s)
    return BlockMeasurement(query=query, mechanisms=noises)


def test_events_add_up_over_outputs():
    tally = asked(resample=2, ranges=((Fraction(0), Fraction(1)),) * 2, defaults=(Fraction(0),) * 2)
    event = mean(tally, "0.25").event()
    assert type(event) is Sequential
    assert {type(part) for part in event.events} == {GeometricEvent}
    assert pure_loss(event).epsilon == Fraction(1, 2)
    factor = Fraction(1, 8)
    median = Quantile(tau=Fraction(1, 2), factor=factor, low=0, high=STEPS)
    chosen = BlockMeasurement(query=BlockQuery(tally), mechanisms=(median, median)).event()
    assert chosen.events == (ExponentialEvent(epsilon=4 * factor),) * 2


def log_masses(values, mechanism):
    """The exact law of a quantile's choice, up to its normaliser, by the definition."""
    at = np.arange(mechanism.low, mechanism.high + 1)
    goal = float(mechanism.tau) * len(values)
    short = goal - (values[:, None] <= at).sum(0)
    over = (values[:, None] < at).sum(0) - goal
    scores = -float(mechanism.factor) * np.maximum(0, np.maximum(short, over))
    return scores - np.log(np.exp(scores).sum())


@pytest.mark.parametrize("tau", ["1/2", "1/4", "0"])
def test_changing_a_value_of_a_quantile_costs_what_its_event_says(tau):
    """All neighbours of small lists: log-ratios have the stated range, and not one less."""
    mechanism = Quantile(tau=Fraction(tau), factor=Fraction(1, 2), low=0, high=4)
    worst = 0.0
    for values in np.ndindex(5, 5, 5, 5):
        one = log_masses(np.array(values), mechanism)
        for new in range(values[0]):
            ratios = log_masses(np.array([new, *values[1:]]), mechanism) - one
            worst = max(worst, np.ptp(ratios))
    stated, comes = (float(e.epsilon) for e in (mechanism.changed(1), mechanism.event(1)))
    assert worst == pytest.approx(stated if tau != "0" else stated / 2)
    assert comes < worst or tau == "0"  # the price of a value that comes or goes would be too low


class Dealt(Watched):
    """A source whose deals are known: that of a key for each."""

    def __init__(self, listed, keys):
        super().__init__()
        self._rows, self._keys = source_of(listed), iter(keys)

    def blocks(self, tally, key, use):
        self._look()
        return self._rows.blocks(tally, next(self._keys), use)


@runs
@pytest.mark.parametrize("resample", [1, 3])
def test_a_program_that_looks_for_one_person_moves_the_sum_by_its_whole_sensitivity(resample):
    """The loss between these neighbours is ε to the last digit, so no smaller noise would do."""
    tally = asked(resample=resample, blocks=2, seconds=Fraction(1, 5))
    listed = [(person, 0.0, person, "") for person in (*range(8), 77)]
    keys = ["one", "two", "three"][:resample]
    with_one, without = (
        int(said_of_blocks(tally, Dealt(rows, keys), SYSTEM).sum())
        for rows in (listed, listed[:-1])
    )
    moved = abs(with_one - without)
    noise = mean(tally, 1).mechanisms[0]
    assert moved == BlockQuery(tally).l1s[0].value == resample * STEPS
    assert moved / noise.scale == 1
    broken = Geometric.for_epsilon(1, sensitivity=L1(Fraction(STEPS, tally.blocks)))  # of a mean
    assert moved / broken.scale > 1


@runs
@pytest.mark.parametrize(("blocks", "workers"), [(4, 2), (6, 3), (3, 8)])
def test_programs_that_feel_each_other_move_the_sum_by_its_whole_sensitivity(
    monkeypatch, blocks, workers
):
    """The worst that can be felt: all of a turn know who is in one of its blocks."""

    class Feeling:
        def __init__(self, _count, _turn):
            pass

        def start(self, given, _end):
            known = [77 in unpacked(rows)["n"] for _, rows in given]
            self.answers = [struct.pack("d", 10 * any(known))] * len(known)

        def said(self, _most):
            return self.answers

    monkeypatch.setattr(Cell, "_children", Feeling)
    monkeypatch.setattr(Cell, "_start", lambda _: None)
    monkeypatch.setattr(Cell, "_stop", lambda _: None)
    tally = asked(blocks=blocks, workers=workers, resample=2, seconds=Fraction(1, 50))
    listed = [(person, 0.0, person, "") for person in (*range(8), 77)]
    with_one, without = (
        int(said_of_blocks(tally, Dealt(rows, ["one", "two"]), SYSTEM).sum())
        for rows in (listed, listed[:-1])
    )
    moved = with_one - without
    assert moved == BlockQuery(tally).l1s[0].value == 2 * min(blocks, workers) * STEPS
    alone = BlockQuery(replace(tally, workers=1))  # a broken copy: as if nobody felt another
    assert moved / Geometric.for_epsilon(1, sensitivity=alone.l1s[0]).scale == min(blocks, workers)
    assert BlockQuery(replace(tally, trusted=True)).changed == alone.changed == 2


@runs
def test_numbers_are_clamped_and_what_is_none_is_the_default():
    text = (
        "def f(rows):\n"
        "    kind = rows['n'][0]\n"
        "    return [(-5, 5), (float('nan'), 99), (2.5, float('inf')), (1, 2, 3)][kind]"
    )
    ranges = ((Fraction(0), Fraction(10)), (Fraction(-10), Fraction(10)))
    defaults = (Fraction(5), Fraction(-5))
    terms = {"blocks": 6, "workers": 6, "seconds": Fraction(1, 2)}
    tally = asked(text=text, ranges=ranges, defaults=defaults, **terms)
    rows = [(person, 0.0, person, "") for person in range(4)]
    source = source_of(rows)
    for key in map(str, range(1000)):  # one that deals each to a block of its own
        held = [block["n"].tolist() for block in source.blocks(tally, key, list)]
        if max(map(len, held)) == 1:
            break
    said = said_of_blocks(tally, Dealt(rows, [key]), SYSTEM)
    at = {0: (0, 0.75), 1: (0.5, 1), 2: (0.25, 0.25), 3: (0.5, 0.25), None: (0.5, 0.25)}
    assert (said / STEPS).T.tolist() == [list(at[kind[0] if kind else None]) for kind in held]


# the door


def door(listed, **more):
    return curator(table=OWNED, source=Dealt(listed, map(str, range(100))), **more)


@runs
def test_the_door_debits_first_draws_once_and_answers_the_same_again():
    listed = [(person, 0.0, 1, "") for person in range(20)]
    gate = door(listed, budget="1")
    first = gate.measure(mean(asked(blocks=3), "0.75"))
    again = gate.measure(mean(asked(blocks=3), "0.75"))
    assert first.values.tolist() == again.values.tolist()
    assert (first.free, again.free) == (False, True)
    assert gate._source.reads == 1
    other = asked(blocks=3, text=FIND.replace("77", "78"))
    with pytest.raises(OverBudget):
        gate.measure(mean(other, "0.75"))
    assert gate._source.reads == 1


@runs
def test_a_rehearsal_reads_no_row_and_spends_nothing():
    gate = door([(1, 1.0, 1, "")])
    text = "def f(rows):\n    import colorsys\n    return len(rows['t'])"
    time = {"seconds": Fraction(20)}  # that a busy machine may need to say what went wrong
    ready = gate.rehearse(mean(asked(text=text, **time), "0.5"))
    assert ready.query.tally.program.imports == ("colorsys",)
    assert ready.question() == mean(asked(text=text, **time), "0.5").question()
    with pytest.raises(SpecError, match="ZeroDivisionError"):
        gate.rehearse(mean(asked(text="def f(rows):\n    return 1 / 0", **time), "0.5"))
    assert gate._source.reads == 0
    assert gate.ledger.balance("clinic").spent.epsilon == 0


def test_what_is_asked_is_part_of_the_question():
    base = mean(asked(), 1)
    others = [
        mean(asked(text="def f(rows): return 1"), 1),
        mean(asked(blocks=7), 1),
        mean(asked(resample=2), 1),
        mean(asked(workers=2), 1),
        mean(asked(seconds=Fraction(1)), 1),
        mean(asked(memory=64), 1),
        mean(asked(columns=("n",)), 1),
        mean(asked(defaults=(Fraction(0),)), 1),
        mean(asked(ranges=((Fraction(0), Fraction(20)),)), 1),
        mean(asked(trusted=True), 1),
        mean(asked(), 2),
    ]
    questions = {each.question() for each in (base, *others)}
    assert len(questions) == len(others) + 1
    loaded = replace(base.query.tally.program, imports=("math",))
    assert mean(asked(program=loaded), 1).question() == base.question()


def test_time_is_public(monkeypatch):
    monkeypatch.setattr("noisegate.isolated.cell._apart", lambda _: 1 << 28)
    monkeypatch.setattr("noisegate.isolated.cell._processors", lambda: [*range(4)])
    tally = asked(blocks=10, resample=2, seconds=Fraction(1), memory=1024)
    assert turns_of(tally) == pytest.approx(20 * (1 + 0.1 + 0.5 + 1.5 / 4))
    both = replace(tally, workers=4, trusted=True)
    assert turns_of(both) == pytest.approx(turns_of(tally) * 6 / 20)


PUBLIC = table("wards", "public", ("n", Kind.INTEGER), ("bed", Kind.INTEGER))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"blocks": 0}, "whole blocks"),
        ({"blocks": True}, "whole blocks"),
        ({"resample": 0}, "whole resample"),
        ({"blocks": 1000, "resample": 1000}, "whole times"),
        ({"memory": 1}, "whole memory"),
        ({"seconds": Fraction(1, 1000)}, "seconds seconds"),
        ({"workers": 0}, "whole workers"),
        ({"trusted": 1}, "trusted trusted"),
        ({"columns": ("y",)}, "column|no-column"),
        ({"columns": ()}, "column|no-column"),
        ({"columns": ("x", "x")}, "twice"),
        ({"defaults": (Fraction(11),)}, "default"),
        ({"defaults": ()}, "default"),
        ({"ranges": (), "defaults": ()}, "whole outputs"),
        ({"ranges": ((Fraction(5), Fraction(5)),)}, "range empty"),
        ({"relation": Sampled(Table(OWNED), Fraction(1, 2))}, "deals"),
        ({"sample": Fraction(1)}, "sample"),
        ({"sample": Fraction(0)}, "sample"),
        ({"sample": 0.5}, "sample"),
        ({"relation": Table(PUBLIC), "columns": ("n",)}, "public"),
        ({"program": "f"}, "program"),
    ],
)
def test_what_cannot_be_asked(wrong, words):
    with pytest.raises((SpecError, Unsupported), check=listed(words)):
        BlockQuery(asked(**wrong))


def test_a_row_that_is_a_unit_is_in_one_block_only():
    beds = replace(PUBLIC, columns={"m": replace(PUBLIC.columns["n"], name="m")})
    joined = Join(Table(ROWS), Table(beds), on=((Field("n"), Field("m")),))
    with pytest.raises(Unsupported):
        BlockQuery(asked(relation=joined))


def test_noise_that_the_door_does_not_know_is_refused():
    query = BlockQuery(asked())
    gaussian = DiscreteGaussian(variance=Fraction(100))
    assert BlockMeasurement(query=query, mechanisms=(gaussian,)).event().sensitivity == query.l2s[0]
    keys = KeySelection.__new__(KeySelection)
    small = SmoothStudent.for_epsilon(1, low=0, high=STEPS)
    for mechanisms in ((keys,), (gaussian, gaussian), [gaussian], (small,)):
        with pytest.raises(Unsupported):
            BlockMeasurement(query=query, mechanisms=mechanisms)
    pair = asked(ranges=((Fraction(0), Fraction(1)),) * 2, defaults=(Fraction(0),) * 2)
    narrowed = Winsorised.for_epsilon(1, high=STEPS)
    with pytest.raises(Unsupported, check=about("narrow")):
        BlockMeasurement(query=BlockQuery(pair), mechanisms=(gaussian, narrowed))


def test_centres_and_narrowed_means_take_as_many_steps_as_numbers_change():
    query = BlockQuery(asked(resample=2))
    centre = SmoothStudent.for_epsilon(Fraction(1, 2), low=0, high=2 * STEPS)
    narrowed = Winsorised.for_epsilon(1, high=STEPS, changed=2)
    for mechanism, event in ((centre, centre.event(2)), (narrowed, narrowed.event(2))):
        made = BlockMeasurement(query=query, mechanisms=(mechanism,))
        assert made.event() == event
        assert Fraction(99, 100) < pure_loss(event).epsilon <= 1
