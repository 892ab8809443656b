"""Releases and answers that are out already, as free evidence; and rows drawn from a map."""

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import NoisegateError
from noisegate.releases.fit.residuals import box_variance
from noisegate.synthetic.basis import basis_of, wanted_of
from noisegate.synthetic.evidence import known_of
from noisegate.synthetic.model.bars import direct
from noisegate.synthetic.points import points_of
from refusals import about, listed

COUNT = 900
AGES = np.arange(COUNT) * 7 % 100
WARDS = np.where(AGES % 10 < 7, "north", "south")
FACTS = {"ward": {"in": ["north", "south"]}, "age": {"between": [0, 99]}}
PEOPLE = pa.table({"ward": WARDS, "age": AGES, "x": AGES / 10, "y": AGES % 10 * 1.0})
MAP = {name: {"between": [0, 10], "nullable": False} for name in ("x", "y")}


@pytest.fixture(scope="module")
def gate():
    return noisegate.open(PEOPLE, epsilon=10**6, table="people", columns={**FACTS, **MAP})


def basis(gate, columns=("ward", "age"), **more):
    wanted = wanted_of(gate.tables, None, columns, None)
    return basis_of(gate.tables, wanted, **more)


def exact(axes, bins=None):
    """Sums over cells of (ward, age by 5, and none), as the evidence has them."""
    cells = [(WARDS == "south").astype(int), AGES // (bins or 5)]
    sizes = [2, 21 if bins is None else 100 // bins + 1]
    place = np.zeros(COUNT, int)
    for axis in axes:
        place = place * sizes[axis] + cells[axis]
    return np.bincount(place, minlength=int(np.prod([sizes[a] for a in axes])))


def test_a_table_over_the_same_cells_is_evidence_as_it_is(gate):
    made = gate.release("cells", columns={"age": 5, "ward": None}, epsilon=500)
    (found,) = known_of([made], basis(gate))
    assert (found.axes, found.labels) == ((0, 1), None)
    assert found.values.tolist() == exact((0, 1)).tolist()
    assert found.variance == 1e-4


def test_wider_bins_are_sums_of_cells(gate):
    made = gate.release("cells", columns={"age": 25}, epsilon=500)
    (found,) = known_of([made], basis(gate))
    assert found.axes == (1,)
    assert found.values.tolist() == exact((1,), bins=25).tolist()
    assert found.labels.tolist() == [*np.repeat(range(4), 5), 4]
    edges = gate.release("cells", columns={"age": [0, 20, 50, 99]}, epsilon=500)
    (found,) = known_of([edges], basis(gate))
    assert found.labels.tolist() == [*[0] * 4, *[1] * 6, *[2] * 10, 3]
    none = gate.release("series", columns={"age": 50}, method="cells", epsilon=500)
    (found,) = known_of([none], basis(gate))
    assert found.labels.tolist() == [*np.repeat([0, 1], 10), -1]  # a series has no cell for none


def test_the_tables_of_a_cube_are_evidence_with_their_variances(gate):
    made = gate.release(
        "cube", columns={"age": 20, "ward": None}, sets=[["age", "ward"]], epsilon=1
    )
    (found,) = known_of([made], basis(gate))
    assert found.axes == (0, 1)
    assert len(found.values) == 12
    assert 1 < found.variance < 4
    assert np.abs(found.values - exact((0, 1), bins=20)).max() < 40


def test_the_tables_of_a_cube_do_not_count_twice(gate):
    """What two of its tables say about a column is one number with one noise."""
    made = gate.release("cube", columns={"ward": None, "age": 20, "x": 5}, sets=2, epsilon=1)
    cut = basis(gate, {"ward": None, "age": None, "x": 5})
    tables = known_of([made], cut)
    assert [each.axes for each in tables] == [(0, 1), (0, 2), (1, 2)]
    found = direct(cut.layout.sizes, tables, {0: np.array([True, False])})
    parts = {part: held for part, held in made.tables.precision.items() if part in ((), (0,))}
    (variance,) = box_variance((2,), parts, (0,), np.ones((1, 1), np.int64))
    assert variance <= found.variance < 6 * variance


def test_a_table_whose_cells_err_together_is_taken_for_less(gate):
    tree = gate.release("tree", columns={"age": 5}, workload="ranges", epsilon=1)
    (found,) = known_of([tree], basis(gate))
    variance = tree.making.estimate(tree.shape).variance
    lows, highs = np.array([[0], [0], [4]]), np.array([[20], [9], [7]])
    assert (variance(lows, highs) <= found.variance * (highs - lows + 1)[:, 0] + 1e-9).all()
    rough = gate.release("dawa", columns={"age": 5}, epsilon=1)
    with pytest.raises(NoisegateError, check=about("evidence-error")):
        known_of([rough], basis(gate))


def test_answers_are_evidence_with_the_variance_of_their_noise(gate):
    """Geometric noise at ε = 1/2 has the variance 7.8; that of ± at 95 % is a little more."""
    answers = [
        gate.sql("SELECT ward, COUNT(*) AS n FROM people GROUP BY ward", epsilon=0.5),
        gate.sql("SELECT COUNT(*) AS n, BIN(age, 10) AS a FROM people GROUP BY a", epsilon=0.5),
        gate.sql("SELECT COUNT(*) AS n FROM people", epsilon=0.5, fresh=True),
    ]
    wards, ages, total = known_of(answers, basis(gate))
    assert (wards.axes, ages.axes, total.axes) == ((0,), (1,), ())
    assert np.abs(wards.values - exact((0,))).max() < 60
    assert np.abs(ages.values - exact((1,), bins=10)).max() < 60
    assert 7 < wards.variance < 12
    assert wards.values.tolist() == [row[1] for row in answers[0].rows]


def test_a_where_is_read_as_the_cells_that_it_leaves(gate):
    """Each count has ε = 160 or more, so its noise is not 0 once in 10^69 times."""
    asked = [
        "SELECT COUNT(*) AS n FROM people WHERE age < 30 AND ward = 'north'",
        "SELECT ward, COUNT(*) AS n FROM people WHERE age >= 50 GROUP BY ward",
        "SELECT ward, AVG(age) AS a, COUNT(*) AS n FROM people GROUP BY ward",
        "SELECT COUNT(*) FILTER (WHERE ward = 'south' AND age < 50) AS n FROM people WHERE age < 75",
    ]
    one, two, three, four = (
        known_of([gate.sql(sql, epsilon=900)], basis(gate))[0] for sql in asked
    )
    made = gate.release("cells", columns={"age": 50}, where="ward = 'north'", epsilon=500)
    (five,) = known_of([made], basis(gate))
    table = exact((0, 1)).reshape(2, 21)
    wards, ages = np.divmod(np.arange(42), 21)
    for found, inside in (
        (one, np.where((wards == 0) & (ages < 6), 0, -1)),
        (two, np.where((ages >= 10) & (ages < 20), wards, -1)),
        (three, np.arange(2)),
        (four, np.where((wards == 1) & (ages < 10), 0, -1)),
        (five, np.where(wards == 0, ages // 10, -1)),
    ):
        assert found.axes == ((0,) if found is three else (0, 1))
        labels = np.arange(len(found.values)) if found.labels is None else found.labels
        assert labels.tolist() == inside.tolist()
        cells = table.sum(axis=1) if found is three else table.ravel()
        sums = np.bincount(inside[inside >= 0], cells[inside >= 0])
        assert found.values.tolist() == sums.tolist()


def test_a_where_of_people_with_several_rows_is_refused():
    """The rows that are left would weigh more than they do in the whole table."""
    rows = PEOPLE.append_column("id", pa.array(np.arange(COUNT) // 3))
    several = noisegate.open(
        rows, epsilon=100, table="people", columns=FACTS, unit="id", rows_per_unit=2
    )
    wards = several.sql("SELECT ward, COUNT(*) FROM people GROUP BY ward", epsilon=1)
    assert len(known_of([wards], basis(several, rows_per_unit=2))) == 1
    north = several.sql("SELECT COUNT(*) FROM people WHERE ward = 'north'", epsilon=1)
    with pytest.raises(NoisegateError, check=about("evidence-rows")):
        known_of([north], basis(several, rows_per_unit=2))


def test_synthetic_rows_are_evidence_for_others_over_the_same_cells(gate):
    terms = {"epsilon": 2, "method": "chosen"}
    made = gate.release("synthetic", columns={"ward": None, "age": None, "x": 1}, **terms)
    found = known_of([made], basis(gate, {"age": None, "ward": None, "y": 1}))
    held = {each.axes: each for each in made.fitted.evidence}
    assert {each.axes for each in found} == {axes for axes in held if 2 not in axes}
    for each in found:
        assert each.values is held[each.axes].values
        assert each.variance == held[each.axes].variance


def test_what_shows_the_same_draws_is_said_once(gate):
    wards = gate.sql("SELECT ward, COUNT(*) AS n FROM people GROUP BY ward", epsilon=3)
    again = gate.sql("SELECT COUNT(*) AS n, ward FROM people GROUP BY ward", epsilon=3)
    made = gate.release("synthetic", columns=["ward"], evidence=[wards], epsilon=1)
    (found,) = known_of([again, wards], basis(gate))
    assert found.values.tolist() == [row[1] for row in wards.rows]
    both = [each.to_record() for each in known_of([wards, made], basis(gate))]
    assert both.count(found.to_record()) == 1
    assert len(both) == len(made.fitted.evidence) > 1


def test_free_evidence_sharpens_synthetic_rows_for_nothing(gate):
    sharp = gate.release("cells", columns={"age": 5, "ward": None}, epsilon=500)
    terms = {"columns": ["ward", "age"], "epsilon": "0.01"}
    spent = gate.spent.epsilon
    made = gate.release("synthetic", evidence=[sharp], rows=COUNT, **terms)
    assert float(gate.spent.epsilon - spent) <= 0.01
    counted = np.bincount(made.cells[:, 0] * 21 + made.cells[:, 1], minlength=42)
    assert np.abs(counted - exact((0, 1))).sum() / 2 < 0.05 * COUNT
    assert made.query(ward="north").margin <= 6
    blind = gate.release("synthetic", rows=COUNT, **terms)
    assert not blind.free
    assert blind.query(ward="north").margin > 100


def count_by(gate, group):
    """Whatever it is called, it is not the column."""
    sql = f"SELECT COUNT(*), {group} AS age FROM people GROUP BY 2"
    return gate.release("cells", sql, epsilon=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda g: g.release("cells", columns={"age": 7}, epsilon=1), "evidence-cells"),
        (lambda g: g.release("cells", columns={"x": 1}, epsilon=1), "column"),
        (lambda g: count_by(g, "BIN(age * 2, 10)"), "evidence-cells"),
        (lambda g: count_by(g, "BIN(age + 1, 5)"), "evidence-cells"),
        (lambda g: count_by(g, "FLOOR(age / 10)"), "evidence-cells"),
        (lambda g: count_by(g, "CASE WHEN age < 50 THEN 0 ELSE 1 END"), "evidence-cells"),
        (
            lambda g: g.release("cells", columns={"age": 5}, where="x < 5", epsilon=1),
            "column",
        ),
        (
            lambda g: g.release("cells", "SELECT SUM(x) FROM people GROUP BY ward", epsilon=1),
            "evidence-rows",
        ),
        (lambda g: g.sql("SELECT AVG(age) AS a FROM people", epsilon=1), "evidence-count COUNT"),
        (lambda g: g.sql("SELECT COUNT(*) AS n FROM people WHERE age < 7", epsilon=1), "bin"),
        (lambda g: g.sql("SELECT COUNT(age) AS n FROM people", epsilon=1), "evidence-count COUNT"),
        (
            lambda g: g.release("synthetic", columns=["ward"], where="age < 5", epsilon=1),
            "evidence-rows",
        ),
        (
            lambda g: g.sql("SELECT COUNT(*) / 2 AS n FROM people", epsilon=1),
            "evidence-count COUNT",
        ),
        (lambda _: 3, "evidence"),
        (lambda _: "x", "list"),
    ],
)
def test_what_does_not_fit_is_refused(gate, make, words):
    made = make(gate)
    given = made if isinstance(made, str) else [made]
    with pytest.raises(NoisegateError, check=listed(words)) as refused:
        known_of(given, basis(gate))
    assert refused.value.fix


def test_evidence_about_another_table_is_refused(gate):
    other = noisegate.open(PEOPLE, epsilon=10, table="others", columns=FACTS)
    made = other.release("cells", columns={"age": 5}, epsilon=1)
    with pytest.raises(NoisegateError, check=about("evidence-rows")):
        known_of([made], basis(gate))
    later = noisegate.open(PEOPLE, epsilon=9, table="people", columns=FACTS, snapshot="2")
    with pytest.raises(NoisegateError, check=about("evidence-rows")):
        known_of([later.release("cells", columns={"age": 5}, epsilon=1)], basis(gate))


def test_points_of_a_map_are_in_their_squares_as_often_as_released(gate):
    places = gate.release("map", columns={"x": 2, "y": 5}, epsilon=500, method="cells")
    points = points_of(places, 9000).to_pydict()
    assert points_of(places).num_rows == COUNT
    found = np.histogram2d(points["x"], points["y"], [[0, 2, 4, 6, 8, 10], [0, 5, 10]])[0]
    assert np.abs(found - 10 * places.values[:5, :2]).max() <= 1 + 10 * places.values[5:].sum()
    assert points_of(places, 50).equals(points_of(places, 50))
    assert not points_of(places, 50, seed=1).equals(points_of(places, 50))
    wards = gate.release("histogram", columns={"ward": None}, epsilon=500)
    assert points_of(wards, 9).column("ward").to_pylist().count("north") in (6, 7)
