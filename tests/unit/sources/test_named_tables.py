"""``DATABASE#TABLE`` is that table and no other one, however it is written; else it is refused."""

import duckdb
import pytest

import noisegate as ng
from refusals import about, listed

ROWS = {  # each table has its own number of rows
    "visits": 10, "consented": 20, '"my table"': 30, '"a.b"': 40, '"od""d"': 50, '"h#sh"': 60,
    "other.visits": 70, "other.there": 80, '"o.o".visits': 90,
}  # fmt: skip
NAMED = [  # source, rows
    ("clinic.duckdb", 10),
    ("clinic.duckdb#visits", 10),
    ("clinic.duckdb#consented", 20),
    ("clinic.duckdb#CONSENTED", 20),
    ("clinic.duckdb#main.consented", 20),
    ("clinic.duckdb#my table", 30),
    ('clinic.duckdb#"my table"', 30),
    ('clinic.duckdb#"a.b"', 40),
    ('clinic.duckdb#main."a.b"', 40),
    ('clinic.duckdb#"od""d"', 50),
    ("clinic.duckdb#h#sh", 60),
    ("clinic.duckdb#other.visits", 70),
    ("clinic.duckdb#Other.there", 80),
    ('clinic.duckdb#"o.o".visits', 90),
    ("c#d/clinic.duckdb#consented", 20),
]
WRONG = [
    ("clinic.duckdb#nobody", "table 'nobody'.*'main'"),
    ("clinic.duckdb#there", "table 'there'.*'main'"),
    ("clinic.duckdb#other.consented", "table 'consented'.*'other'"),
    ("clinic.duckdb#a.b", "table 'b'.*'a'"),
    ("clinic.duckdb#x.y.visits", "table"),
    ('clinic.duckdb#od"d', "table"),
    ("clinic.duckdb#", "table"),
]
POLICY = """
name = "clinic"
%s
budget = { epsilon = 1_000_000 }
[tables.visits]
%s
unit = "patient_id"
rows_per_unit = 1
columns = { patient_id = {} }
"""


@pytest.fixture(name="folder", scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    (folder / "c#d").mkdir()
    for file in ("clinic.duckdb", "c#d/clinic.duckdb"):
        with duckdb.connect(str(folder / file)) as made:
            made.execute('CREATE SCHEMA other; CREATE SCHEMA "o.o"')
            for name, rows in ROWS.items():
                made.execute(
                    f"CREATE TABLE {name} AS SELECT i AS patient_id FROM range({rows}) t(i)"
                )
            made.execute("CREATE VIEW few AS FROM visits WHERE patient_id < 5")
            made.execute("CREATE VIEW other.few AS FROM other.visits WHERE patient_id < 7")
    return folder


def opened(folder, source="", of_all=""):
    (folder / "clinic.toml").write_text(POLICY % (of_all, source))
    return ng.open(folder / "clinic.toml", ledger=":memory:")


def rows(gate):
    return gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1000).to_arrow()["n"][0].as_py()


@pytest.mark.parametrize(("source", "count"), NAMED)
def test_a_source_is_the_table_that_it_names(folder, source, count):
    """At ε = 1000 a count is off with a chance below e^-999."""
    assert rows(opened(folder, f"source = '{source}'")) == count


@pytest.mark.parametrize(("source", "count"), [("few", 5), ("other.few", 7)])
def test_a_view_is_the_one_that_the_source_names(folder, source, count):
    text = f"source = 'clinic.duckdb#{source}'"
    with pytest.raises(ng.NoisegateError, check=about("view")):
        opened(folder, text)
    assert rows(opened(folder, f"{text}\ntrusted_view = true")) == count


@pytest.mark.parametrize(("source", "said"), WRONG)
def test_a_table_that_is_not_there_is_named_and_no_other_one_is(folder, source, said):
    with pytest.raises(ng.NoisegateError, check=listed(said)) as refusal:
        opened(folder, f"source = '{source}'")
    words = f"{refusal.value} {refusal.value.fix}"
    assert not any(name in words for name in ("visits", "my table", "h#sh") if name not in source)


def test_a_source_of_all_tables_names_no_single_one(folder):
    assert rows(opened(folder, of_all="source = 'c#d/clinic.duckdb'")) == 10
    with pytest.raises(ng.NoisegateError, check=about("source")) as refusal:
        opened(folder, of_all="source = 'clinic.duckdb#consented'")
    assert "[tables.visits]" in refusal.value.fix


def test_a_database_that_is_opened_alone_says_how_its_table_is_named(folder):
    found = ng.open(
        folder / "clinic.duckdb", table="consented", unit="patient_id", epsilon=1, ledger=":memory:"
    )
    assert list(found.tables) == ["consented"]
    with pytest.raises(ng.NoisegateError, check=about("table"), match="'clinic'") as refusal:
        ng.open(folder / "clinic.duckdb", epsilon=1, ledger=":memory:")
    assert "table=" in refusal.value.fix
    with pytest.raises(ng.NoisegateError, check=about("file")) as refusal:
        ng.open(f"{folder}/clinic.duckdb#consented", epsilon=1, ledger=":memory:")
    assert "table=" in refusal.value.fix


@pytest.mark.parametrize("same", ["main.consented", '"consented"', "MAIN.Consented"])
def test_one_table_by_two_names_has_one_owner(folder, same):
    again = f"[tables.again]\nsource = 'clinic.duckdb#{same}'\nevery_row_is_one_person = true\n"
    text = POLICY % ("", "source = 'clinic.duckdb#consented'") + again
    (folder / "two.toml").write_text(text)
    with pytest.raises(ng.NoisegateError, check=about("owner")):
        ng.open(folder / "two.toml", ledger=":memory:")
