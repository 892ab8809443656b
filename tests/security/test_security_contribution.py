"""One person with very many rows, and joins that make more of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from naive import Rewriter
from worlds import CANARY, EVE, WARDS, eve, gate, is_refused, loss, measured, seen, visits, worlds

import noisegate as ng

MILLION = 10**6
MANY = [
    eve(ward=WARDS[i % 3], note=str(i % 7), cost=float(i % 100), age=i % 120) for i in range(200)
]


def flooded():
    """Eve has a million rows: every ward, every age, notes of her own."""
    number = np.arange(MILLION)
    hers = pa.table({
        "who": pa.DictionaryArray.from_arrays(np.zeros(MILLION, np.int8), [EVE]).cast(pa.string()),
        "name": pa.repeat(CANARY, MILLION),
        "ward": pa.DictionaryArray.from_arrays((number % 3).astype(np.int8), WARDS).cast(pa.string()),
        "cost": (number % 1000).astype(np.float64),
        "age": number % 130,
        "big": number,
        "note": pa.array(number % 500).cast(pa.string()),
    })  # fmt: skip
    return pa.concat_tables([visits(), hers])


@pytest.fixture(scope="module")
def flood():
    return flooded()


@pytest.fixture(scope="module")
def both(flood):
    return gate(flood), gate(visits())


@pytest.fixture(scope="module")
def both_by_rows(flood):
    terms = {"groups_per_unit": None, "rows_per_unit": 5}
    return gate(flood, **terms), gate(visits(), **terms)


@pytest.fixture(scope="module")
def both_by_zcdp():
    return worlds(*MANY, accountant="zcdp", delta="1e-6", epsilon=10)


@pytest.fixture(scope="module")
def many():
    return worlds(*MANY)


SKEWED = [
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM visits GROUP BY ward",
    "SELECT COUNT(DISTINCT who) AS n FROM visits",
    "SELECT ward, COUNT(DISTINCT who) AS n FROM visits GROUP BY ward",
    "SELECT COUNT(DISTINCT note) AS n FROM visits",
    "SELECT age // 40 AS a, ward, COUNT(*) AS n FROM visits GROUP BY CUBE (a, ward)",
    "SELECT note, COUNT(*) AS n FROM visits GROUP BY note",
    "SELECT STDDEV(cost) AS s, CORR(cost, age) AS c FROM visits",
    "SELECT COUNT(*) FILTER (WHERE age > 9) AS n, COUNT_IF(cost > 3) AS m FROM visits",
    "SELECT AVG(LEAST(n, 10)) AS m FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who)",
    "SELECT COUNT(*) AS n FROM (SELECT * FROM visits UNION ALL SELECT * FROM visits)",
    "SELECT COUNT(*) AS n FROM visits WHERE who IN (SELECT who FROM visits WHERE age > 100)",
]


def test_one_person_moves_a_plain_count_by_a_million(flood):
    """Noise of scale 1 does not hide it: wrong with probability below 1e-1000."""
    counts = [Rewriter(visits=rows).number(SKEWED[0]) for rows in (flood, visits())]
    assert counts[0] - counts[1] > MILLION / 2


@pytest.mark.parametrize("sql", [*SKEWED[:5], SKEWED[6]])
def test_one_person_with_a_million_rows_is_within_the_price(sql, both):
    assert loss(*both, sql) <= 1


@pytest.mark.parametrize("sql", [SKEWED[1], SKEWED[3], SKEWED[6]])
def test_so_it_is_where_only_rows_are_capped(sql, both_by_rows):
    assert loss(*both_by_rows, sql) <= 1


@pytest.mark.parametrize("sql", SKEWED)
def test_one_person_with_some_hundred_rows_counts_and_is_within_the_price(sql, many):
    assert 0 < loss(*many, sql) <= 1


def test_a_median_takes_few_values_of_one_person():
    rows = [eve(cost=99.0)] * 5000
    naive = [
        Rewriter(visits=visits(*more)).number("SELECT MEDIAN(cost) FROM visits", 100)
        for more in (rows, [])
    ]
    assert naive[0] - naive[1] > 60  # noise of scale 1/100: wrong with chance below 1e-40
    here, there = worlds(*rows)
    for sql in (
        "SELECT MEDIAN(cost) AS m FROM visits",
        "SELECT QUANTILE_CONT(cost, 0.1) AS q, QUANTILE_CONT(cost, 0.5) AS r FROM visits",
        "SELECT ward, MAX(cost) AS m FROM visits GROUP BY ward",
    ):
        assert 0 < loss(here, there, sql) <= 1


@pytest.mark.parametrize("sql", [SKEWED[0], SKEWED[1], SKEWED[3]])
def test_gaussian_noise_is_as_wide_as_one_person_is_long(sql, both_by_zcdp):
    """Σ ‖Δ‖² / 2σ² is at most the ρ of the question, exactly; ε buys ρ = ε² / 2."""
    plans = [each.plan(sql, epsilon=1) for each in both_by_zcdp]
    rho = 0
    pairs = [measured(each, plan) for each, plan in zip(both_by_zcdp, plans, strict=True)]
    for (measurement, here), (_, there) in zip(*pairs, strict=True):
        for noise, a, b in zip(measurement.mechanisms, here, there, strict=True):
            moved = [abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
            if hasattr(noise, "variance"):
                rho += sum(x * x for x in moved) / (2 * noise.variance)
            else:
                rho += (sum(moved) / noise.scale) ** 2 / 2
    assert 0 < rho <= 1 / 2


# joins

WITHIN = [
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b USING (who)",
    "SELECT a.ward, SUM(b.cost) AS n FROM visits a JOIN visits b ON a.who = b.who GROUP BY a.ward",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.who = b.who AND a.note = b.note",
    "SELECT COUNT(*) AS n FROM visits a LEFT JOIN visits b ON a.who = b.who AND b.age > 9",
    "SELECT COUNT(*) AS n FROM visits a, visits b WHERE a.who = b.who",
]
ACROSS = [
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b USING (ward)",
    "SELECT COUNT(*) AS n FROM visits a CROSS JOIN visits b",
    "SELECT COUNT(*) AS n FROM visits a, visits b",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.who <> b.who",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.who = b.who OR TRUE",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.who = b.note",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON LOWER(a.who) = LOWER(b.who)",
    "SELECT COUNT(*) AS n FROM visits a FULL JOIN visits b ON a.who = b.who",
    "SELECT COUNT(*) AS n FROM visits NATURAL JOIN visits b",
    "SELECT COUNT(*) AS n FROM visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE b.ward = a.ward AND b.age = 99)",
    "SELECT COUNT(*) AS n FROM visits WHERE ward IN (SELECT ward FROM visits WHERE age = 99)",
    "SELECT COUNT(*) AS n FROM visits WHERE ward NOT IN (SELECT ward FROM visits WHERE age = 99)",
    "SELECT COUNT(*) AS n FROM visits a JOIN (SELECT ward, COUNT(*) AS c FROM visits GROUP BY ward) b USING (ward)",
]


def test_joins_multiply_one_person_in_plain_counts():
    """200 rows become 40,000 pairs; one row becomes 61 in a join of others. Noise is of scale 1."""
    pairs = "SELECT COUNT(*) FROM visits a JOIN visits b ON a.{0} = b.{0}"
    joined = [Rewriter(visits=visits(*more)).number(pairs.format('"WHO"')) for more in (MANY, [])]
    assert joined[0] - joined[1] > 39_000
    across = [
        Rewriter(visits=visits(*more)).number(pairs.format("ward"), 10) for more in ([eve()], [])
    ]
    assert across[0] - across[1] > 50  # 61, noise of scale 1/10: wrong with chance below 1e-40


@pytest.mark.parametrize("sql", WITHIN)
def test_joins_within_one_person_stay_within_the_price(sql, many):
    assert 0 < loss(*many, sql) <= 1
    assert seen(many[0], sql) == seen(many[1], sql)


@pytest.mark.parametrize("sql", ACROSS)
def test_joins_of_one_person_with_another_are_refused(sql, many):
    assert is_refused(*many, sql=sql)


POLICY = """
name = "clinic"
[budget]
epsilon = 1000
[tables.visits]
unit = "who"
rows_per_unit = 3
groups_per_unit = 2
[tables.visits.columns]
who = {}
visit = { type = "integer" }
ward = { in = ["north", "south"] }
[tables.drugs_taken]
unit = { column = "who", via = ["visit -> visits.visit"] }
rows_per_unit = 4
groups_per_unit = 2
[tables.drugs_taken.columns]
visit = { type = "integer" }
drug = { references = "drugs.drug" }
days = { type = "integer", between = [1, 28] }
[tables.people]
every_row_is_one_person = true
[tables.people.columns]
drug = { references = "drugs.drug" }
[tables.drugs]
public = true
key = ["drug"]
[tables.prices]
public = true
"""


def clinic(folder, *, eves):
    """Two private tables, one of them owned through the other, and two public ones."""
    folder.mkdir()
    (folder / "policy.toml").write_text(POLICY)
    seen_by = [(f"p{i:02}", i) for i in range(40)]
    seen_by += [(EVE, 100 + i % 7) for i in range(eves)]  # some visits twice
    taken = [visit for _, visit in seen_by for _ in range(3)]
    tables = {
        "visits": {"who": [w for w, _ in seen_by], "visit": [v for _, v in seen_by],
                   "ward": ["north"] * len(seen_by)},
        "drugs_taken": {"visit": taken, "drug": ["a", "b", "c"] * len(seen_by),
                        "days": [7] * len(taken)},
        "people": {"drug": ["a", "b"] * 20 + (["c"] if eves else [])},
        "drugs": {"drug": ["a", "b", "c"], "kind": ["x", "x", "y"]},
        "prices": {"drug": ["a"] * 30 + ["c"] * 50, "price": list(range(80))},
    }  # fmt: skip
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return ng.open(folder / "policy.toml", ledger=":memory:")


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    root = tmp_path_factory.mktemp("clinics")
    return clinic(root / "with", eves=50), clinic(root / "without", eves=0)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM drugs_taken",
        "SELECT drug, COUNT(*) AS n, SUM(days) AS d FROM drugs_taken GROUP BY drug",
        "SELECT COUNT(*) AS n FROM visits v JOIN drugs_taken d ON v.visit = d.visit",
        "SELECT kind, COUNT(*) AS n FROM drugs_taken JOIN drugs USING (drug) GROUP BY kind",
        "SELECT COUNT(*) AS n FROM drugs_taken JOIN prices USING (drug)",
        "SELECT SUM(GREATEST(0, LEAST(price, 9))) AS n FROM visits v JOIN drugs_taken d ON v.visit = d.visit JOIN prices p ON p.drug = d.drug",
        "SELECT kind, COUNT(*) AS n FROM people JOIN drugs USING (drug) GROUP BY kind",
        "SELECT COUNT(*) AS n FROM people WHERE drug IN (SELECT drug FROM prices)",
    ],
)
def test_joins_along_foreign_keys_and_with_public_tables_stay_within_the_price(sql, clinics):
    """Public tables may have any number of partners; a key may stand in several visits."""
    assert 0 < loss(*clinics, sql) <= 1
    assert seen(clinics[0], sql) == seen(clinics[1], sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM people JOIN prices USING (drug)",
        "SELECT COUNT(*) FROM people JOIN drugs_taken USING (drug)",
        "SELECT COUNT(*) FROM people a JOIN people b USING (drug)",
        "SELECT drug FROM drugs WHERE drug IN (SELECT drug FROM people)",
        "SELECT d.drug FROM drugs d JOIN people p USING (drug)",
        "SELECT COUNT(*) FROM drugs d LEFT JOIN people p USING (drug)",
        "SELECT COUNT(*) FROM drugs WHERE NOT EXISTS (SELECT 1 FROM people WHERE people.drug = drugs.drug)",
    ],
)
def test_joins_that_would_multiply_a_row_or_show_it_are_refused(sql, clinics):
    assert is_refused(*clinics, sql=sql)
