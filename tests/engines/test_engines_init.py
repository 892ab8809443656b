"""A first policy from the catalogue of a server: types, foreign keys, comments; no row."""

import tomllib

import pytest
from typer.testing import CliRunner

from engines import READER
from noisegate.cli.options import app
from noisegate.errors import PolicyError, SourceError, Unsupported
from noisegate.root import check_policy, check_rows, draft_policy
from refusals import about


@pytest.fixture
def shop(database):
    """Customers, orders and lines that lead to them by foreign keys, in the reader's sight."""
    owner, schema = database.owner, database.schema
    owner.execute(f"SET search_path = {schema}")
    owner.execute("CREATE TABLE customers (customer_id bigint PRIMARY KEY, email text, age int)")
    owner.execute(
        "CREATE TABLE orders (nr bigint PRIMARY KEY, buyer bigint REFERENCES customers, "
        "total numeric(10, 2), at timestamptz)"
    )
    owner.execute('CREATE TABLE "odd.lines" (ord bigint REFERENCES orders, item text)')
    owner.execute("COMMENT ON COLUMN orders.total IS 'with tax\nevil = 1'")
    owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {READER}")
    return f"{database.url}#{schema}"


def test_a_draft_follows_foreign_keys_to_the_person(shop, tmp_path):
    text = draft_policy([shop])
    tables = tomllib.loads(text)["tables"]
    assert set(tables) == {"customers", "orders", "odd_lines"}
    assert tables["orders"]["unit"]["via"] == ["buyer -> customers.customer_id"]
    assert tables["odd_lines"]["unit"]["via"][0] == "ord -> orders.nr"
    caps = {name: table.get("rows_per_unit") for name, table in tables.items()}
    assert caps == {"customers": 1, "orders": None, "odd_lines": None}  # of a primary key
    assert tables["odd_lines"]["source"].endswith('."odd.lines"')
    assert tables["orders"]["columns"]["total"] == {"type": "number"}
    assert "with tax\\nevil" in text
    file = tmp_path / "shop.toml"
    file.write_text(text)
    assert all(each.severity.value != "error" for each in check_policy(file))
    with pytest.raises(Unsupported, check=about("engine")):
        check_rows(file)


def test_the_command_drafts_from_an_address(shop):
    found = CliRunner().invoke(app, ["init", shop])
    assert found.exit_code == 0
    assert tomllib.loads(found.output)["tables"]["customers"]["unit"] == "customer_id"


def test_a_draft_holds_no_password_and_no_table_out_of_sight(shop):
    with pytest.raises(PolicyError, check=about("password")):
        draft_policy([shop.replace(f"{READER}@", f"{READER}:geheim@")])
    with pytest.raises(SourceError, check=about("table")):
        draft_policy([shop.partition("#")[0] + "#nowhere"])
