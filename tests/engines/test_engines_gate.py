"""Questions through the gate: the same policy and prices on a server, refusals before any charge."""

import engine_worlds
import numpy as np
import pytest

import noisegate
from noisegate.errors import Unsupported
from refusals import about

QUESTIONS = [
    "SELECT COUNT(*) FROM people",
    "SELECT ward, COUNT(*) FROM people WHERE age > 40 GROUP BY ward",
    "SELECT city, COUNT(*) FROM people GROUP BY city",
    "SELECT code, COUNT(*) FROM visits GROUP BY code",
    "SELECT p.ward, COUNT(*) FROM visits v JOIN people p ON v.pid = p.pid GROUP BY p.ward",
    "SELECT d.price, COUNT(*) FROM visits v JOIN drugs d ON v.code = d.code GROUP BY d.price",
    "SELECT COUNT(*) FROM taken WHERE dose > 1",
    "SELECT COUNT(DISTINCT pid) FROM visits WHERE cost > 5",
    "SELECT ward, QUANTILE_CONT(age, 0.25) FROM people GROUP BY ward",
    "SELECT EXTRACT(month FROM seen) AS m, COUNT(*) FROM visits GROUP BY m",
    "SELECT COUNT(*) FROM people WHERE LOWER(city) = 'köln' OR city LIKE 'U%'",
    "SELECT COUNT(*) FROM (SELECT pid, COUNT(*) AS n FROM visits GROUP BY pid) WHERE n > 2",
    "SELECT BIN(cost * 1.5, 100) AS b, COUNT(*) FROM visits GROUP BY b",
    "SELECT COUNT(*) FROM (SELECT pid, ROUND(cost / 7) AS n FROM visits GROUP BY pid, n) "  # noqa: ISC004
    "WHERE n > 3",
    "SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.pid = p.pid)",
    "SELECT ROUND(cost / 7) / 2 AS r, COUNT(*) FROM visits GROUP BY r /* noisegate: rows_per_unit=500 */",
    "SELECT FLOOR((cost / 12.5)) * 12.5 AS f, COUNT(*) FROM visits GROUP BY f /* noisegate: rows_per_unit=500 */",
    "SELECT r / 4, COUNT(*) FROM (SELECT ROUND(cost * 1.5, -1) AS r FROM visits) GROUP BY 1 /* noisegate: rows_per_unit=500 */",
    "SELECT COUNT(*) FROM visits WHERE seen < DATE_TRUNC('month', NOW()) - INTERVAL '1 year'",
    "SELECT ward, COUNT(*) FROM people JOIN (SELECT ward AS top, COUNT(*) AS n FROM people "  # noqa: ISC004
    "GROUP BY ward ORDER BY n DESC LIMIT 1) AS t ON ward = top GROUP BY ward",
    "SELECT LEFT(city, 1), COUNT(*) FROM people GROUP BY 1",
    "SELECT UPPER(RIGHT(city, 2)), COUNT(*) FROM people GROUP BY 1",
]


@pytest.fixture(scope="module")
def policies(tmp_path_factory, shared_database):
    folder, rows = tmp_path_factory.mktemp("clinic"), engine_worlds.frames()
    return (
        engine_worlds.in_files(folder / "files", rows),
        engine_worlds.on_server(folder / "server", shared_database, rows),
    )


@pytest.fixture(scope="module")
def gates(policies):
    return [noisegate.open(file, analyst="ann", ledger=":memory:") for file in policies]


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_the_same_from_files_and_from_a_server(gates, question):
    """At ε = 20,000 noise on a count is 0 but with a chance of e**-20000/4, so answers are equal."""
    files, server = (gate.sql(question, epsilon=20_000) for gate in gates)
    assert server.cost == files.cost
    assert server.to_pandas().round(3).equals(files.to_pandas().round(3))


@pytest.mark.parametrize("terms", [{"rows_per_unit": 20}, {}])
def test_bounds_are_found_on_a_server(gates, terms):
    """At such a price no bin is empty by noise, and none full."""
    sql = "SELECT AVG(cost * cost) FROM visits WHERE cost IS NOT NULL"
    files, server = (
        gate.sql(sql, epsilon=20_000, choose="bounds", **terms).rows[0][0] for gate in gates
    )
    assert server == pytest.approx(files, rel=1e-3)
    found = [gate.bounds("visits", "cost", epsilon=20_000, rows_per_unit=20) for gate in gates]
    assert found[0] == found[1]


RELEASES = {
    "histogram": lambda gate: gate.release(
        "histogram", "SELECT code, COUNT(*) FROM visits GROUP BY code", epsilon=9000
    ),
    "marginals": lambda gate: gate.release(
        "synthetic", table="visits", columns=["code", "cost"], epsilon=9000
    ),
    "sparse": lambda gate: gate.release(
        "sparse", "SELECT code, COUNT(*) FROM visits GROUP BY code", epsilon=900
    ),
    "sample": lambda gate: gate.sample(0.5).sql("SELECT COUNT(*) FROM visits", epsilon=900),
    "learner": lambda gate: noisegate.learners.KMeans(n_clusters=2, epsilon=900).fit(
        gate.matrix("visits", ["cost"])
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_releases_samples_and_learners_read_a_server(gates, name):
    before = gates[1].spent.epsilon
    assert RELEASES[name](gates[1]) is not None
    assert gates[1].spent.epsilon > before


@pytest.mark.parametrize("question", [
    "SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(code, 'a')",
    "SELECT COUNT(*) FROM visits WHERE STRFTIME(seen, '%Y') = '2020'",
    "SELECT SUM(POWER(cost, 2)) FROM visits",
    "SELECT COUNT(*) FROM people WHERE CAST(city AS INTEGER) = 1",
])  # fmt: skip
def test_what_a_server_cannot_say_is_refused_before_it_is_paid_for(gates, question):
    files, server = gates
    assert files.plan(question, epsilon=1).price
    before = server.spent
    for ask in (server.plan, server.sql):
        with pytest.raises(Unsupported, check=about("engine")):
            ask(question, epsilon=1)
    assert server.spent == before


def test_a_release_that_a_server_cannot_say_costs_nothing(gates):
    sql = "SELECT code, COUNT(*) FROM visits WHERE REGEXP_MATCHES(code, 'a') GROUP BY code"
    before = gates[1].spent
    with pytest.raises(Unsupported, check=about("engine")):
        gates[1].release("histogram", sql, epsilon=1)
    assert gates[1].spent == before


def test_a_public_table_is_the_same_from_files_and_from_a_server(gates):
    files, server = (gate.door.public("drugs").sort_by("code").to_pylist() for gate in gates)
    assert server == files


def test_two_analysts_of_a_server_share_its_budget(policies):
    ledger = noisegate.open(policies[1], analyst="ann", ledger=":memory:").ledger
    bob = noisegate.open(policies[1], analyst="bob", ledger=ledger)
    bob.sql("SELECT COUNT(*) FROM people", epsilon=4)
    with pytest.raises(noisegate.errors.OverBudget):
        bob.sql("SELECT COUNT(*) FROM visits", epsilon=7)


def test_made_up_rows_of_a_server_cost_nothing(policies):
    gate = noisegate.open(policies[1], practice=True)
    found = gate.sql("SELECT ward, COUNT(*) FROM people GROUP BY ward", epsilon=1).to_pandas()
    assert list(found["ward"]) == engine_worlds.WARDS


def test_zcdp_prices_are_the_same(tmp_path, database):
    rows = engine_worlds.frames(1)
    files = engine_worlds.in_files(tmp_path / "files", rows, "zcdp")
    server = engine_worlds.on_server(tmp_path / "server", database, rows, "zcdp")
    gates = [noisegate.open(file, analyst="ann", ledger=":memory:") for file in (files, server)]
    answers = [gate.sql("SELECT ward, AVG(age) FROM people GROUP BY ward", epsilon=50)
               for gate in gates]  # fmt: skip
    assert answers[0].cost == answers[1].cost
    close = [answer.to_pandas()["avg(age)"].to_numpy() for answer in answers]
    assert np.allclose(*close, atol=20)
