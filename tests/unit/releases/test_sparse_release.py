"""Summaries of tables too large to list: what is shown, what is missing, and their price."""

from datetime import date
from fractions import Fraction
from functools import cache
from math import ceil, exp, log

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.desk.card import verify
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric
from noisegate.releases.sparse.axes import SparseAxis, places_of
from noisegate.releases.sparse.job import SparseOrder
from noisegate.releases.sparse.summary import SparseRelease, least_error
from refusals import about

# 300 rows at x = 7 million, 200 at 9 million on another day, 1 row far off, 5 without a value
X = [7_000_000] * 300 + [9_000_000] * 200 + [2**40 - 1] + [None] * 5
TRIPS = pa.table({
    "x": X,
    "day": [date(2024, 1, 1)] * 300 + [date(2024, 2, 1)] * 206,
    "kind": ["a"] * 500 + ["b"] * 6,
    "lat": [51.237] * 300 + [-3.001] * 206,
    "pid": [1] * 250 + list(range(2, 258)),
})  # fmt: skip
COLUMNS = {
    "x": {"between": [0, 2**40 - 1]},
    "day": {"between": [date(2000, 1, 1), date(2099, 12, 31)]},
    "kind": {"in": ["a", "b"]},
    "lat": {"between": [-90, 90]},
}
SURE = 40  # noise of scale 1/5 is further off with odds below e^-200
NEARLY = "0.999999999"  # how sure bounds are that a test relies on


def gate(ledger=":memory:", epsilon=100, **more):
    return noisegate.open(
        TRIPS, table="trips", epsilon=epsilon, columns=COLUMNS, ledger=ledger, **more
    )


unspent = cache(gate)  # for all orders that are refused


def ask(door, *, fresh=False, **order):
    desk = Desk(door._curator, door._rules)
    asked = SparseOrder(**{"epsilon": 5} | order).job(desk)
    return desk.run(asked, fresh=fresh)


def plan(door, **order):
    desk = Desk(door._curator, door._rules)
    return desk.plan(SparseOrder(**order).job(desk))


def rows(release):
    return {row[:-1]: row[-1] for row in zip(*release.to_arrow().to_pydict().values(), strict=True)}


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ({"sql": "SELECT COUNT(*) FROM trips GROUP BY x"}, {(7_000_000,): 300, (9_000_000,): 200}),
        ({"columns": {"x": None}}, {(7_000_000,): 300, (9_000_000,): 200}),
        ({"columns": {"x": 4_000_000}}, {(4_000_000,): 300, (8_000_000,): 200}),
        ({"columns": {"day": None, "x": None}},
         {(date(2024, 1, 1), 7_000_000): 300, (date(2024, 2, 1), 9_000_000): 200}),
        ({"columns": {"x": None, "kind": None}, "where": "kind = 'a'"},
         {(7_000_000, "a"): 300, (9_000_000, "a"): 200}),
        ({"columns": {"lat": "0.01"}}, {(51.23,): 300, (-3.01,): 206}),
        ({"columns": {"day": "month"}}, {(date(2024, 1, 1),): 300, (date(2024, 2, 1),): 206}),
    ],
)  # fmt: skip
def test_the_cells_with_many_rows_are_shown_by_their_keys(order, keys):
    release = ask(gate(), **order)
    found = {tuple(round(k, 9) if isinstance(k, float) else k for k in key): n
             for key, n in rows(release).items()}  # fmt: skip
    heavy = {key: n for key, n in found.items() if n > 100}
    assert set(heavy) == set(keys)
    assert all(abs(heavy[key] - n) < SURE for key, n in keys.items())
    assert release.domain > 1000


def test_a_release_is_paid_for_once_and_survives_a_file(tmp_path):
    door = gate(tmp_path / "ledger.sqlite")
    order = {"columns": {"x": None, "day": None}}
    first = ask(door, **order)
    assert (first.cost.epsilon, door.spent.epsilon) == (5, 5)
    again = ask(gate(tmp_path / "ledger.sqlite"), **order)
    assert again.cost.epsilon == 0
    assert again.to_arrow() == first.to_arrow()
    assert plan(door, epsilon=5, **order).price.epsilon == 0
    assert verify(first.card(), door.ledger) == []
    first.save(tmp_path / "x.parquet")
    loaded = SparseRelease.load(tmp_path / "x.parquet")
    assert loaded.to_arrow() == first.to_arrow()
    assert loaded.total == first.total
    assert loaded.guarantee == first.guarantee
    assert loaded.card() == first.card()
    fresh = ask(door, fresh=True, **order)
    assert (fresh.cost.epsilon, door.spent.epsilon) == (5, 10)


def test_other_forms_hold_the_same(tmp_path):
    release = ask(gate(), columns={"x": None, "kind": None})
    assert release.to_pandas().shape == release.to_polars().shape
    assert release.to_numpy()["n"].tolist() == release.values.tolist()
    for ending in ("csv", "html", "md"):
        release.save(tmp_path / f"x.{ending}")
        assert (tmp_path / f"x.{ending}").stat().st_size > 0
    with pytest.raises(SpecError):
        release.save(tmp_path / "x.doc")
    (tmp_path / "y.parquet").write_bytes((tmp_path / "x.csv").read_bytes())
    assert f"{release.cells.size} of 2,199,023,255,552 cells" in repr(release)
    assert "7000000" in str(release)
    with pytest.raises(ValueError, match="read-only"):
        release.values[0] = 0
    assert release.top(1).table.num_rows == 1


def test_a_query_adds_up_what_is_shown_and_bounds_what_is_missing():
    """Bounds fail once in 10⁹ runs; a number is off by 1 in 75 of them."""
    release = ask(gate(), columns={"x": None, "kind": None})
    one = release.query(NEARLY, x=7_000_000, kind="a")
    assert abs(one.value - 300) < SURE
    assert one.low <= 300 <= one.high
    assert one.low <= one.value <= one.high
    assert one.high - one.low < 4 * SURE
    both = release.query(NEARLY, x=(6_000_000, 9_000_000))
    assert both.shown >= 2
    assert both.low <= 500 <= both.high
    none = release.query(x=5, kind="b")
    assert (none.value, none.shown, none.low) == (0, 0, 0)
    assert 0 < none.high <= release.missing() + SURE
    for wrong in ((10, 5), (1 << 62, None), (None, -1)):
        with pytest.raises(SpecError, check=about("empty")):
            release.query(x=wrong)
    assert abs(release.total.value - 501) < SURE
    assert str(both) == f"{round(both.value):,} (between {both.low:,} and {both.high:,})"
    with pytest.raises(SpecError, check=about("axis")):
        release.query(y=3)


def test_frequent_items_are_those_with_a_share_of_all_rows():
    release = ask(gate(), columns={"x": None})
    assert set(rows(release.frequent("0.5"))) == {(7_000_000,)}
    assert set(rows(release.frequent("0.3"))) == {(7_000_000,), (9_000_000,)}
    with pytest.raises(SpecError):
        release.frequent(0)


def sure_of(noise):
    """How likely a cell of so many rows is shown, exactly."""
    alpha = np.exp(-1 / float(noise.scale))

    def shown(count):  # count at or above the threshold
        return 1 - alpha ** (count - noise.threshold + 1) / (1 + alpha)

    return shown


def usual(scale, domain):
    """From here on, one cell without rows is shown at most on average."""
    return ceil(scale * log(domain))


def test_a_threshold_is_lowered_only_where_the_shown_cells_say_so():
    """Numbers as cells without rows have them on average, and more of them."""
    scale, domain = 10, 1 << 16
    noise = SparseGeometric(scale=Fraction(scale), domain=domain, threshold=20, tau=20)
    ratio = exp(-1 / scale)
    at = np.arange(20, 130)
    empty = np.repeat(at, np.rint(domain * (1 - ratio) / (1 + ratio) * ratio**at).astype(int))
    assert least_error(noise, empty) >= usual(scale, domain) - 1
    many = np.concatenate([empty, np.repeat(np.arange(40, 80), 100)])
    assert 30 <= least_error(noise, many) <= 50  # from about 40 on, more hold rows than not
    few = np.concatenate([empty, [5000, 6000]])
    assert least_error(noise, few) >= usual(scale, domain) - 1
    high = SparseGeometric(scale=Fraction(scale), domain=domain, threshold=500, tau=500)
    assert least_error(high, np.array([600, 700])) == 500


def test_a_better_threshold_errs_less():
    """993 cells of 60 rows among 2^16, at scale 10: kept, each errs by 10, and about 80 empty ones
    are shown with 70 each: 2·10^4 in all. The usual threshold of 111 loses nearly all of 6·10^4.
    Either sum has a standard deviation below 10^3: the factor of 1.5 is more than ten away.
    """
    exact = np.zeros(1 << 16, np.int64)
    exact[::66] = 60
    noise = SparseGeometric(scale=Fraction(10), domain=exact.size, threshold=20, tau=20)
    shown = noise.sample(exact)
    better = np.where(shown >= least_error(noise, shown[shown > 0]), shown, 0)
    plain = np.where(shown >= usual(10, exact.size), shown, 0)
    assert 1.5 * np.abs(better - exact).sum() < np.abs(plain - exact).sum()


def test_what_is_likely_is_a_release_with_a_higher_threshold():
    door = gate()
    made = ask(door, columns={"x": 1 << 20}, epsilon=1, threshold=5)
    likely = made.likely()
    assert door.spent.epsilon == 1
    assert likely.noise.threshold == likely.bar > made.bar == 5
    assert likely.values.min() >= likely.bar
    assert set(likely.cells.tolist()) < set(made.cells.tolist())
    assert likely.missing() > made.missing()
    with pytest.raises(SpecError, check=about("sample")):
        ask(door, columns={"x": None}, size=10).likely()


@pytest.mark.parametrize("epsilon", ["0.1", "1", "3"])
def test_the_plan_says_how_surely_a_cell_is_shown_and_how_many_are_false(epsilon):
    door = gate()
    free = plan(door, epsilon=epsilon, columns={"x": None})
    release = ask(door, epsilon=epsilon, columns={"x": None})
    shown = sure_of(release.noise)
    for sure in (0.9, 0.95, 0.999):
        least = release.missing(sure)
        assert (least, release.margin(sure)) == (
            free.expected.sure(sure),
            free.expected.margin(sure),
        )
        assert shown(least) >= sure
        assert least == release.noise.threshold or shown(least - 1) < sure
        said = f"± {free.expected.margin(sure):,} at {percent(sure)} confidence"
        assert any(said in fact for _, fact in free.facts(sure))
        assert free.to_dict(sure)["margins"]["large cell"] == free.expected.margin(sure)
    assert free.expected.margin(0.9) < free.expected.margin(0.999)
    alpha = np.exp(-float(epsilon))
    expected = 2**40 * alpha**free.expected.threshold / (1 + alpha)
    assert expected == pytest.approx(free.expected.false_cells)
    assert expected <= 1 < expected / alpha


def test_more_cells_may_be_false_where_more_are_expected():
    door = gate()
    few, many = (plan(door, epsilon=1, columns={"x": None}, expected=n) for n in (None, 10**6))
    assert many.expected.threshold < few.expected.threshold
    assert few.expected.false_cells <= 1
    assert 3000 < many.expected.false_cells <= 10_000


def test_samples_are_offered_too():
    door = gate()
    by_size = ask(door, columns={"x": None}, size=5)
    assert by_size.cells.size <= 5
    assert abs(by_size.total.value - 501) < 10 * SURE
    unbiased = ask(door, columns={"kind": None}, tau=20, unbiased=True)
    assert isinstance(unbiased.noise, SparseGeometric)
    assert abs(unbiased.query(kind="a").value - 500) < SURE
    everything = unbiased.query(NEARLY)
    assert everything.low <= 506 <= everything.high


def test_one_unit_counts_for_its_cap():
    door = gate(unit="pid", rows_per_unit=10)
    release = ask(door, columns={"x": None})
    assert "at most 10 rows" in " ".join(release.words)
    found = rows(release)
    assert (7_000_000,) not in found or abs(found[(7_000_000,)] - 60) < 10 * SURE
    assert release.noise.scale == Fraction(10, 5)


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"sql": "SELECT COUNT(*) FROM trips GROUP BY x", "columns": {"x": None}},
        {"sql": "SELECT COUNT(*) FROM trips GROUP BY x", "where": "x > 1"},
        {"sql": "SELECT COUNT(*) FROM trips"},
        {"sql": "SELECT SUM(x) FROM trips GROUP BY kind"},
        {"sql": "SELECT COUNT(*) FROM trips GROUP BY GROUPING SETS (x, kind)"},
        {"sql": "SELECT COUNT(*) FROM trips GROUP BY pid"},
        {"sql": "SELECT COUNT(*) FILTER (WHERE x > 1) FROM trips GROUP BY x"},
        {"columns": {"lat": None}},
        {"columns": {"y": None}},
        {"columns": {}},
        {"columns": {"x": 0}},
        {"columns": {"x": "wide"}},
        {"table": "others", "columns": {"x": None}},
        {"columns": {"x": None}, "epsilon": -1},
        {"columns": {"x": None}, "epsilon": None},
        {"columns": {"x": None}, "threshold": 0},
        {"columns": {"x": None}, "threshold": 1},
        {"columns": {"x": None}, "size": 5, "tau": 5},
        {"columns": {"x": None}, "unbiased": True},
        {"columns": {"x": None}, "expected": "many"},
        {"columns": {"x": None}, "rows_per_unit": 3},
        {"columns": {"x": None, "day": None, "kind": None, "lat": "0.001"}},
    ],
)
def test_what_cannot_be_released_is_refused_for_nothing(order):
    door = unspent()
    with pytest.raises(NoisegateError) as caught:
        ask(door, **order)
    assert isinstance(caught.value, (SpecError, Unsupported))
    assert door.spent.epsilon == 0


def test_over_budget_nothing_is_drawn():
    door = gate(epsilon=1)
    assert not plan(door, epsilon=5, columns={"x": None}).fits
    with pytest.raises(OverBudget):
        ask(door, columns={"x": None})


def test_places_are_the_digits_of_a_cell():
    axes = [SparseAxis(name="a", size=1 << 32), SparseAxis(name="b", size=1 << 32)]
    cells = np.array([0, (1 << 64) - 1, (5 << 32) + 6], np.uint64)
    first, second = places_of(axes, cells)
    assert first.tolist() == [0, (1 << 32) - 1, 5]
    assert second.tolist() == [0, (1 << 32) - 1, 6]
    low = Fraction(-(2**63) + 1)
    wide = SparseAxis(name="w", size=2**64 - 1, low=low)
    assert wide.column(np.array([0, 2**64 - 2], np.uint64)).to_pylist() == [-(2**63) + 1, 2**63 - 1]


def test_an_empty_table_and_a_release_without_cells_are_shown():
    empty = noisegate.open(
        TRIPS.slice(0, 0), table="trips", epsilon=10, columns=COLUMNS, ledger=":memory:"
    )
    release = ask(empty, columns={"x": None}, threshold=60)
    assert release.cells.size == 0
    assert release.total.value == 0
    assert str(release)
    assert "No cell" in str(release.plot().to_dict())
