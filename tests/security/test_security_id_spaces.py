"""Patient 5 and doctor 5 are two people, and a view is no table: what taking them for one breaks.

Every attack is a neighbouring pair: the same rows with and without all rows of one unit. On a copy
that matches owners of two id spaces, the exact numbers move by more than is claimed.
"""

import os
from fractions import Fraction
from types import MappingProxyType

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Fold,
    Folded,
    Join,
    JoinKind,
    Matching,
    PerUnit,
    Project,
    Table,
    Union,
)
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.errors import PolicyError, Unsupported
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms import stability
from noisegate.transforms.query import Query
from refusals import about

FINE = Term(expression=Literal(1), grain=Fraction(1, 1024), low=0, high=1024)
MANY = 20


TRUE = Literal(1)


def declared(name, unit, ids, more=("x",)):
    names = (unit, *(f"{name}_{each}" for each in more))
    columns = {each: Column(name=each, kind=Kind.INTEGER, hidden=not more) for each in names}
    who = PrivacyUnit(column=unit, ids=ids)
    return TableDomain(
        dataset="clinic", name=name, unit=who, columns=MappingProxyType(columns)
    )  # fmt: skip


def tables(doctor="doctor"):
    return {
        "people": declared("people", "patient_id", "patient"),
        "visits": declared("visits", "patient_id", "patient"),
        "shifts": declared("shifts", "doctor_id", doctor),
    }


TABLES = tables()
PEOPLE, VISITS, SHIFTS = map(Table, TABLES.values())


def rows_of(units, name, column):
    ids = [unit for unit, count in units.items() for _ in range(count)]
    return pa.table(
        {column: pa.array(ids, pa.int64()), f"{name}_x": pa.array([1] * len(ids), pa.int64())}
    )


def source(people, visits, shifts, domains=TABLES):
    """Rows by the number that each unit has."""
    return DuckDBSource(
        {
            "people": rows_of(people, "people", "patient_id"),
            "visits": rows_of(visits, "visits", "patient_id"),
            "shifts": rows_of(shifts, "shifts", "doctor_id"),
        },
        domains,
    )


def tagged(relation, tag, as_="tag"):
    """The rows, called by where they came from."""
    return Project(relation, ((as_, Literal(tag)),))


ONE_EACH = ((Field("visits_x"), Field("shifts_x")),)
OWN = tagged(PEOPLE, "own")
SHOWN = Call("coalesce", (Field("shifts_x"), Literal(0)))
FOLDED = PerUnit(
    Union((tagged(VISITS, "v"), tagged(SHIFTS, "s"))), (), (Folded("n", Fold.COUNT, Literal(1)),)
)
ONE, LOTS, NOBODY = {5: 1}, {5: MANY}, {}
# what is asked, its groups, the rows with a unit and without it
ATTACKS = {
    "join": (
        Union((tagged(Join(VISITS, SHIFTS, ONE_EACH), "both"), OWN)), ("own", "both"),
        (ONE, ONE, LOTS), (ONE, ONE, NOBODY),
    ),
    "left join": (
        Project(Join(VISITS, SHIFTS, ONE_EACH, JoinKind.LEFT), (("tag", SHOWN),)), (0, 1),
        (NOBODY, ONE, LOTS), (NOBODY, ONE, NOBODY),
    ),
    "matching": (
        Union((tagged(Matching(VISITS, SHIFTS, ONE_EACH), "both"), OWN)), ("own", "both"),
        (ONE, LOTS, ONE), (ONE, LOTS, NOBODY),
    ),
    "no match": (
        Union((tagged(Matching(VISITS, SHIFTS, (), negated=True), "alone"), OWN)), ("own", "alone"),
        (ONE, LOTS, ONE), (ONE, LOTS, NOBODY),
    ),
    "union": (
        Union((tagged(VISITS, "v"), tagged(SHIFTS, "s"))), ("v", "s"),
        (NOBODY, LOTS, ONE), (NOBODY, NOBODY, ONE),
    ),
    "folding": (
        Project(FOLDED, (("tag", Field("n")),)), (1, MANY + 1),
        (NOBODY, LOTS, ONE), (NOBODY, NOBODY, ONE),
    ),
}  # fmt: skip


def asked(relation, keys):
    by = Grouping(name="tag", expression=Field("tag"), keys=keys)
    return Sums(relation=relation, by=(by,), terms=(FINE,), rows_per_unit=1)


@pytest.mark.parametrize("attack", ATTACKS)
def test_relations_of_two_id_spaces_are_refused(attack):
    relation, keys, *_ = ATTACKS[attack]
    with pytest.raises(
        Unsupported, check=about("id-space"), match=r"'patient'.*'doctor'"
    ) as refusal:
        _ = Query(asked(relation, keys)).l1s
    assert "ids = " in refusal.value.fix


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_copy_that_matches_owners_across_spaces_is_moved_by_more_than_it_claims(
    attack, monkeypatch
):
    monkeypatch.setattr(stability, "require_one_space", lambda *_: None)
    relation, keys, with_unit, without = ATTACKS[attack]
    query = Query(asked(relation, keys))
    before, after = (source(*rows).sums(query.tally) for rows in (with_unit, without))
    moved = np.abs(before - after).sum()
    assert moved > 1.8 * query.l1s[0].value


def test_tables_of_one_id_space_meet_whatever_their_columns_are_called():
    domains = tables(doctor="patient")
    visits, shifts = Table(domains["visits"]), Table(domains["shifts"])
    query = Query(asked(tagged(Join(visits, shifts, ONE_EACH), "both"), ("both",)))
    found = source({}, {5: 2, 6: 1}, {5: 1, 7: 1}, domains).sums(query.tally)
    assert found.sum() == 1024  # the rows of one person, as one row


@pytest.mark.parametrize(
    ("one", "other", "met"),
    [
        ("(5), (6), (NULL)", "('5'), ('05'), ('x'), (NULL)", 1),
        ("('a'), ('b'), ('c ')", "('A'), ('b'), ('c')", 1),
        ("('a' COLLATE NOCASE), ('b')", "('A' COLLATE NOCASE), ('b')", 1),
        ("(5::HUGEINT), (-1)", "(5), (6)", 1),
        ("(5::UTINYINT), (0)", "(5::BIGINT), (9223372036854775807)", 1),
        ("('-1'), ('1e0'), ('')", "(-1), (1), (0)", 1),
        ("('é'), ('z')", "('e\u0301'), ('z')", 1),
    ],
)
def test_ids_of_one_space_are_compared_as_they_are_stored(tmp_path, one, other, met):
    """Whatever types and collations two tables have; no id can fail to be compared."""
    file = tmp_path / "ids.duckdb"
    domains = {name: declared(name, "id", "person", more=()) for name in ("a", "b")}
    with duckdb.connect(str(file)) as made:
        for name, values in (("a", one), ("b", other)):
            made.execute(f"CREATE TABLE {name} AS SELECT col0 AS id FROM (VALUES {values})")
    pairs = Join(*(tagged(Table(domains[name]), name, as_=name) for name in "ab"), ((TRUE, TRUE),))
    query = Query(Sums(relation=pairs, by=(), terms=(FINE,), rows_per_unit=1))
    found = DuckDBSource(dict.fromkeys("ab", file), domains).sums(query.tally)
    assert found.sum() == met * 1024


# samples


def sampled(domains):
    """Who of 64 is in a sample, by visits and by shifts."""
    everyone = dict.fromkeys(range(64), 1)
    rows = source({}, everyone, everyone, domains)
    chosen = []
    with rows.sample(Fraction(1, 2), "a key that nobody knows") as drawn:
        for name, column in (("visits", "patient_id"), ("shifts", "doctor_id")):
            by = Grouping(name="u", expression=Field(column), keys=tuple(range(64)))
            tally = Sums(relation=Table(domains[name]), by=(by,), terms=(FINE,), rows_per_unit=1)
            chosen.append(drawn.sums(tally)[0].astype(bool))
    return chosen


def test_a_sample_tosses_a_coin_for_each_unit_of_each_space():
    """One coin for patient 5 and doctor 5 would amplify nothing: seeing the doctor tells the coin.

    Coins of 64 pairs agree by chance in 2**-64 of all keys; this key is fixed.
    """
    patients, doctors = sampled(TABLES)
    assert not (patients == doctors).all()
    assert 16 <= (patients == doctors).sum() <= 48


def test_a_sample_tosses_one_coin_for_a_unit_in_all_tables_of_its_space():
    patients, doctors = sampled(tables(doctor="patient"))
    assert (patients == doctors).all()
    assert 0 < patients.sum() < 64


# through the policy

HEAD = """
name = "clinic"
source = "clinic.duckdb"
[budget]
epsilon = 4
delta = 1e-6
"""
TWO = """
[tables.visits]
unit = %s
rows_per_unit = 2
columns = { ward = { in = ["north", "south"] }, cost = { between = [0, 9] } }
[tables.shifts]
unit = %s
rows_per_unit = 2
columns = { ward = { in = ["north", "south"] }, hours = { between = [0, 9] } }
"""
APART = TWO % ('"patient_id"', '"doctor_id"')
TOGETHER = TWO % (
    '{ column = "patient_id", ids = "person" }', '{ column = "doctor_id", ids = "person" }'
)  # fmt: skip
PATIENTS = APART.partition("[tables.shifts]")[0]
VIEWED = """
[tables.visits]
unit = "patient_id"
rows_per_unit = 2
source = "clinic.duckdb#%s"
%s
columns = { ward = { in = ["north", "south"] } }
"""


@pytest.fixture(name="folder")
def clinic(tmp_path):
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as made:
        made.execute("""
            CREATE TABLE visits AS SELECT i % 9 AS patient_id, 'north' AS ward, 1 AS cost
                FROM range(90) t(i);
            CREATE TABLE copied AS FROM visits;
            CREATE TABLE shifts AS SELECT i AS doctor_id, 'south' AS ward, 2 AS hours
                FROM range(9) t(i);
            CREATE VIEW first_ones AS SELECT * FROM visits LIMIT 5;
            CREATE VIEW numbered AS SELECT *, row_number() OVER () AS n FROM visits;
            CREATE VIEW drawn AS SELECT * FROM visits WHERE random() < 0.5;
            CREATE VIEW dear AS SELECT * FROM visits WHERE cost > 0;
            CREATE TABLE doubled (patient_id INT, ward VARCHAR, twice INT AS (patient_id * 2));
            CREATE TABLE tossed (patient_id INT, ward VARCHAR AS (CASE WHEN random() < 0.5
                THEN 'north' ELSE 'south' END));
            CREATE SCHEMA other;
            CREATE VIEW other.visits AS SELECT 1 AS patient_id, 'north' AS ward;
            INSERT INTO doubled VALUES (1, 'north');
            INSERT INTO tossed VALUES (1);
        """)
    return tmp_path


def gate(folder, tables, **more):
    (folder / "clinic.toml").write_text(HEAD + tables)
    return ng.open(folder / "clinic.toml", **more)


BOTH = "SELECT patient_id AS p FROM visits UNION ALL SELECT doctor_id FROM shifts"
ACROSS = [
    "SELECT COUNT(*) FROM visits JOIN shifts ON patient_id = doctor_id",
    "SELECT COUNT(*) FROM visits LEFT JOIN shifts ON patient_id = doctor_id",
    "SELECT COUNT(*) FROM visits SEMI JOIN shifts ON patient_id = doctor_id",
    "SELECT COUNT(*) FROM visits, shifts WHERE patient_id = doctor_id",
    "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT doctor_id FROM shifts)",
    "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM shifts WHERE doctor_id = v.patient_id)",
    "SELECT COUNT(*) FROM visits v ANTI JOIN shifts ON patient_id = doctor_id",
    "SELECT SUM(x) FROM (SELECT cost AS x FROM visits UNION ALL SELECT hours FROM shifts)",
    f"SELECT COUNT(DISTINCT p) FROM ({BOTH})",
    f"SELECT COUNT(*) FROM (SELECT p, COUNT(*) AS n FROM ({BOTH}) GROUP BY p) WHERE n > 1",
]


def test_questions_across_id_spaces_are_refused_and_cost_nothing(folder):
    """Where the steward says that these are the same people, each of them is a question."""
    apart, together = gate(folder, APART, ledger=":memory:"), gate(folder, TOGETHER)
    for sql in ACROSS:
        with pytest.raises(Unsupported, check=about("id-space")):
            apart.sql(sql, epsilon="0.1")
        assert together.plan(sql, epsilon="0.1").price.epsilon > 0
    assert apart.spent.epsilon == 0


def test_a_question_about_both_says_who_is_protected_and_what_somebody_in_both_has(folder):
    both = "SELECT (SELECT COUNT(*) FROM visits) AS v, (SELECT COUNT(*) FROM shifts) AS s"
    asked = gate(folder, APART)
    answer = asked.sql(both, epsilon="0.1")
    assert str(answer.guarantee) == (
        "ε = 0.1 for adding or removing one patient (all rows with the same 'patient_id') or one "
        "doctor (all rows with the same 'doctor_id') in this answer about 'visits', 'shifts'. "
        "Somebody who is 2 such units at once has ε = 0.2."
    )
    assert "one patient" in repr(asked)
    assert "one doctor" in repr(asked)
    one = asked.sql("SELECT COUNT(*) FROM shifts", epsilon="0.1")
    assert "patient" not in str(one.guarantee)
    assert answer.guarantee.to_dict()["units"] == [
        {"column": "patient_id", "noun": "patient", "ids": "patient_id"},
        {"column": "doctor_id", "noun": "doctor", "ids": "doctor_id"},
    ]


def test_a_question_about_one_space_names_every_column_of_it(folder):
    answer = gate(folder, TOGETHER).sql(ACROSS[0], epsilon="0.1")
    assert "one person (all rows with the same 'patient_id' or 'doctor_id')" in str(
        answer.guarantee
    )


def test_both_spaces_are_charged_to_one_budget(folder):
    asked = gate(folder, APART)
    asked.sql("SELECT COUNT(*) FROM visits", epsilon=3)
    asked.sql("SELECT COUNT(*) FROM shifts", epsilon=1)
    assert asked.remaining.epsilon == 0


@pytest.mark.parametrize(
    "other",
    ['unit = "cost"', "every_row_is_one_person = true", "public = true",
     'unit = { column = "patient_id", ids = "somebody" }'],
)  # fmt: skip
def test_rows_of_one_source_have_one_owner(folder, other):
    """Else who is protected by one table could be seen through the other."""
    again = f'[tables.again]\nsource = "clinic.duckdb#%s"\n{other}\n'
    for name in ("visits", "VISITS"):
        with pytest.raises(PolicyError, check=about("owner")):
            gate(folder, PATIENTS + again % name)
    same = '[tables.again]\nsource = "clinic.duckdb#visits"\nunit = "patient_id"\n'
    assert gate(folder, PATIENTS + same)


# accounts of earlier policies


@pytest.mark.parametrize(
    ("first", "then"),
    [(PATIENTS, APART), (APART, PATIENTS), (PATIENTS, TOGETHER), (APART, TOGETHER)],
)
def test_an_account_stays_open_when_tables_come_and_go(folder, first, then):
    """Also when an id space is given another name."""
    gate(folder, first).sql("SELECT COUNT(*) FROM visits", epsilon=1)
    again = gate(folder, then)
    assert again.sql("SELECT COUNT(*) FROM visits", epsilon=1).free
    assert again.spent.epsilon == 1


def test_an_account_is_not_opened_for_another_unit(folder):
    gate(folder, PATIENTS)
    with pytest.raises(PolicyError, check=about("terms")):
        gate(folder, PATIENTS.replace('"patient_id"', '"cost"'))
    still = '[tables.copied]\nunit = "patient_id"\n'  # as another table has it
    with pytest.raises(PolicyError, check=about("terms")):
        gate(folder, PATIENTS.replace('"patient_id"', '"cost"') + still)
    gate(folder, PATIENTS + still)


# views


@pytest.mark.parametrize("view", ["first_ones", "numbered", "drawn", "dear"])
def test_a_view_is_no_private_table_unless_the_steward_vouches_for_it(folder, view):
    with pytest.raises(PolicyError, check=about("view")) as refusal:
        gate(folder, VIEWED % (view, ""))
    assert "trusted_view" in refusal.value.fix
    with pytest.raises(PolicyError, check=about("view")):
        ng.open(folder / "clinic.duckdb", table=view, unit="patient_id", epsilon=1)
    vouched = gate(folder, VIEWED % (view, "trusted_view = true"))
    answer = vouched.sql("SELECT COUNT(*) FROM visits", epsilon=1)
    assert "'visits' (a view, for which the steward vouches" in str(answer.guarantee)
    gate(folder, VIEWED % (view, "trusted_view = true"), practice=True)


def test_rows_that_find_their_owner_in_a_view_say_so(folder):
    with duckdb.connect(str(folder / "clinic.duckdb")) as made:
        made.execute("CREATE TABLE notes AS SELECT i AS cost FROM range(3) t(i)")
    notes = "[tables.notes]\nunit = { column = 'patient_id', via = ['cost -> visits.cost'] }\n"
    vouched = gate(folder, VIEWED % ("dear", "trusted_view = true") + notes + "rows_per_unit = 1\n")
    answer = vouched.sql("SELECT COUNT(*) FROM notes", epsilon=1)
    assert "'notes' (by 'visits', a view, for which the steward vouches" in str(answer.guarantee)


def test_a_table_is_the_one_that_the_source_names(folder):
    """Not another one that is called as the policy calls it, nor one of another schema."""
    few = gate(folder, VIEWED % ("doubled", ""))
    assert few.sql("SELECT COUNT(*) AS n FROM visits", epsilon=4).to_arrow()["n"][0].as_py() < 20
    with pytest.raises(ng.NoisegateError):
        gate(folder, VIEWED % ("other.visits", ""))


def test_a_table_is_no_view_to_vouch_for(folder):
    with pytest.raises(PolicyError, check=about("no-view")):
        gate(folder, VIEWED % ("visits", "trusted_view = true"))


def test_a_column_that_chance_generates_is_no_private_column(folder):
    with pytest.raises(PolicyError, check=about("generated"), match="'ward'"):
        gate(folder, VIEWED % ("tossed", ""))
    columns = "columns = { twice = { between = [0, 9] }, ward = { in = ['north'] } }"
    text = (VIEWED % ("doubled", "")).partition("columns")[0]
    assert gate(folder, text + columns).plan("SELECT SUM(twice) FROM visits", epsilon=1)


GENERATED = [
    "BIGINT GENERATED ALWAYS AS (lucky + 1)",  # by way of another column
    "BIGINT GENERATED ALWAYS AS (epoch_ms(current_localtimestamp()) % 9)",
    "BIGINT GENERATED ALWAYS AS (datepart('day', age(day)))",
]


@pytest.mark.parametrize("how", GENERATED)
def test_a_column_that_chance_or_the_clock_generates_in_the_end_is_no_private_one(folder, how):
    with duckdb.connect(str(folder / "clinic.duckdb")) as made:
        made.execute(
            "CREATE TABLE odd (patient_id BIGINT, day TIMESTAMP, lucky BIGINT GENERATED ALWAYS AS "
            f"(CAST(random() * 9 AS BIGINT)), cost {how}, ward VARCHAR)"
        )
        made.execute("INSERT INTO odd VALUES (1, TIMESTAMP '2020-01-01', 'north')")
    text = (VIEWED % ("odd", "")).partition("columns")[0]
    with pytest.raises(PolicyError, check=about("generated"), match="'cost'"):
        gate(folder, text + "columns = { cost = { between = [0, 9] } }")


def test_a_view_named_as_a_table_but_for_the_case_of_a_letter_beyond_ascii_is_a_view(folder):
    """The engine folds ASCII letters alone in names, and all letters in lower()."""
    with duckdb.connect(str(folder / "clinic.duckdb")) as made:
        made.execute('CREATE TABLE "é" AS FROM visits')
        made.execute('CREATE VIEW "É" AS FROM visits ORDER BY cost LIMIT 10')
    with pytest.raises(PolicyError, check=about("view")):
        gate(folder, VIEWED % ("É", ""))
    assert gate(folder, VIEWED % ("é", ""))


def test_rows_of_one_file_have_one_owner_whatever_it_is_called(folder):
    (folder / "link.duckdb").symlink_to(folder / "clinic.duckdb")
    os.link(folder / "clinic.duckdb", folder / "hard.duckdb")
    again = '[tables.again]\nsource = "%s#visits"\nunit = "cost"\n'
    for name in ("./clinic.duckdb", "link.duckdb", "hard.duckdb"):
        with pytest.raises(PolicyError, check=about("owner")):
            gate(folder, PATIENTS + again % name)


def test_a_public_table_may_be_a_view(folder):
    public = '[tables.list]\npublic = true\nsource = "clinic.duckdb#first_ones"\n'
    assert gate(folder, PATIENTS + public)


def test_a_folder_that_reads_as_a_pattern_is_refused(tmp_path):
    for name in ("a[1]", "a1"):
        (tmp_path / name).mkdir()
        duckdb.sql("SELECT 1 AS x").write_parquet(str(tmp_path / "x.parquet"))
        (tmp_path / name / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes())
    with pytest.raises(ng.NoisegateError, check=about("pattern")):
        ng.open(tmp_path / "a[1]" / "x.parquet", epsilon=1)


def test_rows_that_are_computed_later_are_no_frame():
    for lazy in (duckdb.sql("SELECT 1 AS x"), pa.table({"x": [1]}).to_reader()):
        with pytest.raises(ng.NoisegateError, check=about("frame")):
            ng.open(lazy, epsilon=1)
