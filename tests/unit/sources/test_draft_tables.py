"""A draft from several tables: declared keys, prefixed names, what the steward says, types."""

import tomllib

import duckdb
import pytest
from typer.testing import CliRunner

import noisegate
from noisegate.cli.options import app
from noisegate.errors import SourceError, SpecError
from noisegate.privacy.domain import Kind
from noisegate.root import check_policy, draft_policy
from noisegate.steward.draft import draft
from refusals import about

# as TPC-H names them: a prefix for each table, keys in one word
SHOP = {
    "customer": {"c_custkey": "integer", "c_name": "text", "c_nationkey": "integer"},
    "orders": {"o_orderkey": "integer", "o_custkey": "integer", "o_total": "number"},
    "lineitem": {"l_orderkey": "integer", "l_partkey": "integer", "l_quantity": "number"},
    "part": {"p_partkey": "integer", "p_brand": "text"},
    "nation": {"n_nationkey": "integer", "n_region": "text"},
}


def drafted(tables, **said):
    kinds = {t: {c: Kind(kind) for c, kind in columns.items()} for t, columns in tables.items()}
    text = draft(kinds, **said)
    return tomllib.loads(text), text


def test_prefixed_keys_lead_to_the_person():
    policy, text = drafted(SHOP, public=["part", "nation"])
    tables = policy["tables"]
    assert policy["protects"] == "customer"
    assert tables["customer"]["unit"] == {"column": "c_custkey", "ids": "customer"}
    assert tables["orders"]["unit"] == {"column": "o_custkey", "ids": "customer"}
    assert tables["lineitem"]["unit"]["via"] == ["l_orderkey -> orders.o_orderkey"]
    assert tables["part"]["public"] is tables["nation"]["public"] is True
    code = 'to group by it, add: references = "nation.n_nationkey"'
    assert f'c_nationkey = {{ type = "integer" }}  # {code}' in text
    assert 'o_orderkey = { type = "integer" }  # an id of something' in text


def test_tables_that_nobody_spoke_of_stay_in_comments():
    policy, text = drafted(SHOP)
    assert set(policy["tables"]) == {"customer", "orders", "lineitem"}
    assert "# [tables.nation]" in text


@pytest.mark.parametrize(
    ("columns", "stays"),
    [
        ({"value": "number", "valid": "boolean", "user_id": "integer"}, "valid"),
        ({"monkey": "text", "user_id": "integer"}, "monkey"),
        ({"paid": "number", "user_id": "integer"}, "paid"),
    ],
)
def test_words_that_end_like_a_key_are_columns_like_others(columns, stays):
    _, text = drafted({"visits": columns, "values": {"id": "integer", "x": "number"}})
    (line,) = (line for line in text.splitlines() if line.startswith(f"{stays} = "))
    assert "an id of something" not in line


def test_the_steward_says_who_the_person_is():
    tables = {"a": {"badge": "text", "x": "integer"}, "b": {"badge": "text", "y": "number"}}
    policy, text = drafted(tables, unit="badge")
    assert {t: each["unit"]["column"] for t, each in policy["tables"].items()} == {
        "a": "badge", "b": "badge",
    }  # fmt: skip
    assert "as you said" in text
    policy, _ = drafted(tables, unit="a.badge", links=[("b", ("badge", "a", "badge"))])
    assert policy["tables"]["b"]["unit"]["column"] == "badge"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"unit": "bage"}, "unit"),
        ({"unit": "b.badge2"}, "unit"),
        ({"unit": "x"}, "unit"),  # a number names nobody
        ({"public": ["c"]}, "table"),
        ({"unit": "badge", "public": ["a"]}, "unit"),
    ],
)
def test_what_does_not_fit_is_refused(said, why):
    with pytest.raises(SpecError, check=about(why)):
        drafted({"a": {"badge": "text", "x": "number"}}, **said)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    file = tmp_path_factory.mktemp("drafts") / "shop.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute("CREATE TABLE buyers (nr INTEGER PRIMARY KEY, age INTEGER)")
        con.execute(
            "CREATE TABLE baskets (n INTEGER PRIMARY KEY, who INTEGER REFERENCES buyers (nr), "
            "total DECIMAL(10, 2))"
        )
        con.execute("CREATE TABLE items (item TEXT PRIMARY KEY, price DOUBLE, code TEXT UNIQUE)")
        con.execute("CREATE TABLE lines (basket INTEGER REFERENCES baskets (n), item TEXT)")
        con.execute("CREATE VIEW large AS FROM baskets WHERE total > 100")
        con.execute("COMMENT ON COLUMN baskets.total IS 'with tax\nepsilon = 9'")
        con.execute("INSERT INTO buyers SELECT range, 30 FROM range(200)")
        con.execute("INSERT INTO baskets SELECT range, range // 3, 5 FROM range(600)")
        con.execute("INSERT INTO lines SELECT range // 2, 'tea' FROM range(1200)")
    return file


def test_declared_keys_of_a_duckdb_file_lead_to_the_person_and_the_draft_answers(shop, tmp_path):
    text = draft_policy([shop], unit="buyers.nr", public=["items"], folder=tmp_path)
    tables = tomllib.loads(text)["tables"]
    assert set(tables) == {"buyers", "baskets", "lines", "items"}  # a view is not a table
    assert tables.pop("items")["key"] in (["item"], ["code"])
    assert tables["baskets"]["unit"] == {"column": "who", "ids": "buyer"}
    assert tables["lines"]["unit"]["via"] == ["basket -> baskets.n"]
    caps = {name: table.get("rows_per_unit") for name, table in tables.items()}
    assert caps == {"buyers": 1, "baskets": None, "lines": None}  # of a primary key
    assert "# with tax\\nepsilon = 9" in text
    (file := tmp_path / "shop.toml").write_text(text)
    assert all(each.severity.value != "error" for each in check_policy(file))
    gate = noisegate.open(file)
    for table, rows in (("buyers", 200), ("lines", 1200)):
        answer = gate.sql(f"SELECT COUNT(*) AS n FROM {table}", epsilon="0.5")
        assert abs(answer.rows[0][0] - rows) <= 40 * float(answer.margins()["n"][0])


def test_one_table_of_a_file_and_a_file_that_is_none(shop, tmp_path):
    tables = tomllib.loads(draft_policy([f"{shop}#buyers"], unit="nr"))["tables"]
    assert set(tables) == {"buyers"}
    broken = tmp_path / "broken.duckdb"
    broken.write_text("no database")
    with pytest.raises(SourceError, check=about("unreadable")):
        draft_policy([broken])


CSV = (
    "who,age,cost,day,at,ok,zip,odd,empty\n"
    "a,1,1.5,2024-01-02,2024-01-02 03:04:05,true,01234,1,\n"
    "b,,-2e3,2024-02-03,2024-01-02T03:04:05,FALSE,20095,x,\n"
)


def kinds_of(text):
    columns = tomllib.loads(text)["tables"]["people"]["columns"]
    return {name: each["type"] for name, each in columns.items()}


def test_types_of_text_are_found_only_where_the_steward_says_so(tmp_path):
    (file := tmp_path / "people.csv").write_text(CSV)
    assert set(kinds_of(draft_policy([file], unit="who")).values()) == {"text"}
    text = draft_policy([file], unit="who", read_types=True)
    assert kinds_of(text) == {
        "who": "text", "age": "integer", "cost": "number", "day": "date", "at": "timestamp",
        "ok": "boolean", "zip": "text", "odd": "text", "empty": "text",
    }  # fmt: skip
    assert "found in the rows" in text
    said = draft_policy([file], unit="who", types={"age": "integer", "people.cost": "number"})
    assert kinds_of(said) | {"age": "integer", "cost": "number"} == kinds_of(said)
    for wrong in ({"agee": "integer"}, {"age": "int"}):
        with pytest.raises(SpecError, check=about("type")):
            draft_policy([file], types=wrong)


def test_the_command_says_all_of_it_and_files_are_seen_from_the_policy(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people.csv").write_text(CSV)
    monkeypatch.chdir(tmp_path)
    asked = ["init", "data/people.csv", "--unit", "who", "--type", "age=integer", "--to"]
    found = CliRunner().invoke(app, [*asked, "data/people.toml"])
    assert found.exit_code == 0, found.output
    text = (tmp_path / "data" / "people.toml").read_text()
    assert tomllib.loads(text)["tables"]["people"]["source"] == "people.csv"
    assert (
        noisegate.open(tmp_path / "data" / "people.toml")
        .sql("SELECT COUNT(*) FROM people", epsilon="0.1")
        .cost
    )
    assert CliRunner().invoke(app, ["init", "data/people.csv", "--type", "age"]).exit_code != 0
