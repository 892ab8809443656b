"""`gate.graph`: numbers of a graph whose edges are rows, as analysts ask for them."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import NoisegateError, SpecError
from refusals import about

FACTS = {
    "a": {"type": "integer", "between": [0, 39]},
    "b": {"type": "integer", "between": [0, 39]},
    "km": {"between": [0, 10]},
    "who": {},
}


def rows():
    """Two cliques of 20 with three bridges; some rows twice, some turned round, some loops."""
    pairs = list(combinations(range(20), 2))
    pairs += [(20 + a, 20 + b) for a, b in pairs] + [(0, 20), (1, 21), (2, 22)]
    listed = [*pairs, *[(b, a) for a, b in pairs[:50]], (7, 7), (8, 8)]
    first, second = np.array(listed).T
    km = np.where(first // 20 == second // 20, 1.0, 5.0)
    return pa.table({"a": first, "b": second, "km": km, "who": np.arange(len(listed)) // 2})


def gate(epsilon=1000, facts=FACTS, **more):
    return ng.open(rows(), epsilon=epsilon, columns=facts, table="roads", **more)


def graph(door=None, **more):
    return (door or gate()).graph("roads", source="a", target="b", **more)


EDGES = 2 * 190 + 3


def test_numbers_that_an_edge_hardly_moves_come_with_their_error():
    roads = graph()
    assert roads.vertices == 40
    for asked, exact in [(roads.edges, EDGES), (roads.min_cut, 3)]:
        answer = asked(epsilon=20)
        assert abs(answer.rows[0][0] - exact) <= 1  # further off with e^-40
        (name,) = answer.columns
        assert answer.margins()[name] == (0,)
    assert graph(nodes=range(20)).bipartite_distance(epsilon=30).rows == ((90,),)


def test_degrees_rise_and_their_error_is_for_all_at_once():
    answer = graph().degrees(epsilon=60)
    degrees = answer.to_arrow()["degree"].to_pylist()
    assert degrees == sorted(degrees)
    assert max(abs(np.array(degrees) - np.array([19] * 34 + [20] * 6))) <= 1  # e^-60 each
    assert len(answer.margins()["degree"]) == 40


def test_accounts_of_rho_have_gaussian_noise():
    door = gate(delta="1e-6", accountant="zcdp")
    answer = graph(door).degrees(epsilon=door._desk.asked(Fraction(1)))  # as ε = 1 would add up
    assert "discrete-gaussian/1" in answer.questions[0]
    pure = graph().degrees(epsilon=1).margins()["degree"][0]
    assert answer.margins()["degree"][0] < pure / 2
    assert "geometric/1" in graph().edges(epsilon=1).questions[0]


def test_triangles_and_stars_have_noise_by_what_an_edge_can_do_here():
    roads = graph()
    exact = 2 * 1140
    answer = roads.triangles(epsilon=10)
    assert abs(answer.rows[0][0] - exact) < 1000  # an edge is in 18: 50 bounds off with 1e-8
    assert "not released" in answer.footer()
    stars = roads.two_stars(epsilon=10).rows[0][0]
    assert abs(stars - (34 * 171 + 6 * 190)) < 2000
    tested = graph(gate(delta="1e-5")).triangles(epsilon=8, delta="1e-6", method="ptr", bound=30)
    assert abs(tested.rows[0][0] - exact) < 300  # e^-40; or else none with 1e-6
    refused = graph(gate(delta="1e-5")).triangles(epsilon=8, delta="1e-9", method="ptr", bound=2)
    assert refused.rows == ((None,),)


def test_the_lightest_tree_takes_missing_edges_as_the_heaviest():
    door = gate()
    exact = 38 * 1 + 5
    answer = graph(door).spanning_tree_cost("km", epsilon=20)
    assert abs(answer.rows[0][0] - exact) < 100
    half = graph(door, where="km < 2").spanning_tree_cost("km", step="0.5", epsilon=20)
    assert abs(half.rows[0][0] - (38 + 10)) < 100


def test_numbers_that_cannot_be_negative_say_so():
    roads = graph()
    for answer in (roads.edges(epsilon=1), roads.degrees(epsilon=1), roads.triangles(epsilon=1)):
        assert list(answer.unsigned()) == [answer.columns[-1]]
    for low, known in ((0, ["spanning_tree"]), (-1, [])):
        facts = {**FACTS, "km": {**FACTS["km"], "between": [low, 10]}}
        answer = graph(gate(facts=facts)).spanning_tree_cost("km", epsilon=1)
        assert list(answer.unsigned()) == known


def test_a_vertex_is_protected_by_a_degree():
    roads = graph(level="node")
    edges = roads.edges(epsilon=200, degree=30)
    assert abs(edges.rows[0][0] - EDGES) <= 20  # scale 0.3: e^-130
    assert "all edges of one vertex" in edges.footer()
    triangles = roads.triangles(epsilon=30, degree=30)
    assert triangles.columns == ("triangles",)
    few = roads.edges(epsilon=200, degree=5)
    assert abs(few.rows[0][0] - 100) <= 20  # 40 vertices of 5


def test_a_vertex_is_not_protected_where_units_have_several_rows():
    """Of two rows of a unit one counts; without vertex 0 it is another, for many of 19 units."""
    chain, star = ([(at, at + 1) for at in range(1, 20)], [(0, at) for at in range(1, 20)])
    exact = []
    for pairs in (chain + star, chain):
        first, second = np.array(pairs).T
        who = np.arange(len(pairs)) % 19 + 100
        table = pa.table({"a": first, "b": second, "km": second, "who": who})
        door = ng.open(
            table, epsilon=1000, columns=FACTS, table="roads", unit="who", rows_per_unit=1
        )
        with pytest.raises(SpecError, check=about("vertex")):
            graph(door, level="node")
        exact.append(graph(door).degrees(epsilon=200).to_arrow()["degree"].to_pylist())  # e^-100
    few = [sum(min(degree, 2) for degree in degrees) for degrees in exact]
    assert few == [28, 38]  # further apart than all edges of a vertex of degree 2 can be: 4


def test_vertices_may_be_listed_by_name():
    names = np.array(["ann", "bob", "cy", "dee"])
    table = pa.table({"a": names[[0, 1, 2, 3, 0]], "b": names[[1, 2, 0, 3, 2]]})
    door = ng.open(table, epsilon=100, columns={"a": {}, "b": {}}, table="knows")
    listed = door.graph("knows", source="a", target="b", nodes=["ann", "bob", "cy"])
    assert listed.vertices == 3
    assert listed.edges(epsilon=40).rows == ((3,),)  # e^-40
    keyed = {"in": ["ann", "bob", "cy", "dee"]}
    door = ng.open(table, epsilon=100, columns={"a": keyed, "b": keyed}, table="knows")
    assert door.graph("knows", source="a", target="b").min_cut(epsilon=40).rows == ((0,),)


def test_it_is_drawn_once_and_units_with_more_rows_have_more_noise():
    door = gate()
    first = graph(door).triangles(epsilon=1)
    again = graph(door).triangles(epsilon=1)
    assert again.rows == first.rows
    assert again.free
    person = graph(gate(unit="who", rows_per_unit=2)).edges(epsilon=1)
    row = graph(door).edges(epsilon=1)
    assert person.margins()["edges"][0] > row.margins()["edges"][0]
    assert "person" in str(person.promise)


def test_plans_are_free():
    door = gate()
    planned = door.graph_plan("roads", source="a", target="b")
    assert (
        planned.edges(epsilon=1).expected.margin()
        == graph(door).edges(epsilon=1).margins()["edges"][0]
    )
    assert "smooth bounds" in str(planned.triangles(epsilon=1))
    by_node = door.graph_plan("roads", source="a", target="b", level="node")
    assert by_node.edges(epsilon=1, degree=10).expected.margin() == 30
    assert door.spent.epsilon == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda door: door.graph("roads", source="a"),
        lambda door: door.graph("roads", source="a", target="b", color="red"),
        lambda door: door.graph("streets", source="a", target="b"),
        lambda door: door.graph("roads", source="a", target="c"),
        lambda door: graph(door, level="town"),
        lambda door: graph(door, nodes=range(0, 40, 2)),
        lambda door: graph(door, nodes=range(0)),
        lambda door: graph(door, nodes=range(2)).triangles(epsilon=1),
        lambda door: graph(door).bipartite_distance(epsilon=1),
        lambda door: graph(door).edges(epsilon=1, degree=3),
        lambda door: graph(door, level="node").edges(epsilon=1),
        lambda door: graph(door, level="node").edges(epsilon=1, degree=1),
        lambda door: graph(door, level="node").min_cut(epsilon=1),
        lambda door: graph(door, level="node").min_cut("km", epsilon=1, degree=5),
        lambda door: graph(door, level="node").spanning_tree_cost("km", epsilon=1),
        lambda door: graph(door).spanning_tree_cost("who", epsilon=1),
        lambda door: graph(door).spanning_tree_cost("km", step=20, epsilon=1),
        lambda door: graph(door).triangles(),
        lambda door: graph(door).triangles(epsilon=1, within=3),
        lambda door: graph(door).triangles(epsilon=1, rows_per_unit=3),
        lambda door: graph(door.sample("1/2"), level="node"),
        lambda door: graph(door.partition(where=["km < 2"])["km < 2"], level="node"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_any_charge(ask):
    door = gate()
    with pytest.raises(NoisegateError) as refusal:
        ask(door)
    assert refusal.value.fix
    assert door.spent.epsilon == 0


def test_the_only_private_table_needs_no_name_and_one_of_several_does(tmp_path):
    assert gate().graph(source="a", target="b").vertices == 40
    column = "{ type = 'integer', between = [0, 9] }"
    policy = "name = 'roads'\nsource = '.'\nbudget.epsilon = 1\n"
    for table in ("here", "there"):
        (tmp_path / f"{table}.csv").write_text("a,b\n1,2\n2,3\n")
        policy += f"[tables.{table}]\nevery_row_is_one_person = true\n"
        policy += f"columns.a = {column}\ncolumns.b = {column}\n"
    (tmp_path / "roads.toml").write_text(policy)
    door = ng.open(tmp_path / "roads.toml")
    assert door.graph_plan("there", source="a", target="b").edges(epsilon=1).price.epsilon == 1
    with pytest.raises(SpecError, check=about("table")):
        door.graph(source="a", target="b")


def test_a_degree_distribution_protects_edges_or_vertices():
    """34 vertices of degree 19 and 6 of 20. Off by more than the ± once in 10⁹ runs, if so set."""
    door = gate(epsilon=100_000)
    exact = np.array([0] * 19 + [34, 40, 40])
    for level, price in (("edge", 100), ("node", 9000)):
        answer = graph(door, level=level).degree_distribution(epsilon=price, degree=22)
        shown = np.array(answer.to_arrow()["at_most"].to_pylist())
        (off,) = set(answer.margins("0.999999999")["at_most"])
        assert np.abs(shown - exact).max() <= off
        assert answer.to_arrow()["degree"].to_pylist() == list(range(22))
        assert (np.diff(shown) >= 0).all()
    cut = graph(door, level="node").min_cut(epsilon=9000, degree=5)
    assert cut.rows == ((3,),)  # another one with e^-1000
    assert any("any graph falls apart" in each for each in cut.caveats)


@pytest.mark.parametrize("wrong", [{"degree": None}, {"degree": 1}, {"degree": 41}])
def test_a_degree_distribution_without_a_bound_is_refused_before_any_charge(wrong):
    door = gate()
    with pytest.raises(SpecError):
        graph(door).degree_distribution(epsilon=1, **wrong)
    with pytest.raises(SpecError):
        graph(door, level="node").min_cut(epsilon=1)
    assert door.spent.epsilon == 0
