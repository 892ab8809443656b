"""Rows have one origin, and an origin has one budget: another name is not another one.

Each test asks for the same rows twice under names that a naive ledger keeps apart. There, twice the
budget leaves the door.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import duckdb
import pandas as pd
import pytest

import noisegate
from noisegate.errors import NoisegateError, OverBudget, PolicyError, SourceError
from noisegate.ledger.open import open_ledger, restore_ledger
from noisegate.ledger.origin import Origin, origins_of
from noisegate.privacy.loss import ApproxDP
from refusals import about

ROWS = "id,age\n1,30\n2,40\n"
POLICY = """
name = "{name}"
ledger = "budget.db"

[budget]
epsilon = 1

[tables.{table}]
source = "people.csv"
unit = "id"
rows_per_unit = 1
groups_per_unit = 1
rows_max = 100

[tables.{table}.columns]
id = {{ type = "integer" }}
age = {{ type = "integer", between = [0, 100] }}
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text(ROWS)
    return file


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "budget.db"


def spend(source, ledger, table=None, epsilon=1):
    """Spend a whole budget on these rows under this name."""
    gate = noisegate.open(source, epsilon=1, ledger=ledger, table=table)
    name = next(iter(gate.tables))
    return gate.sql(f"SELECT COUNT(*) AS n FROM {name}", epsilon=epsilon, fresh=True)


def other_name(way, file, folder):
    """The same rows under another name."""
    if way == "table":
        return file, "p2"
    other = folder / "other.csv"
    if way == "symlink":
        other.symlink_to(file)
    elif way == "folder":
        (folder / "mount").symlink_to(folder, target_is_directory=True)
        return folder / "mount" / "people.csv", "p2"
    elif way == "hard link":
        os.link(file, other)
    elif way == "renamed":
        file.rename(other)
    elif way == "dots":
        return folder / "x" / ".." / "people.csv", "p2"
    return other, None


@pytest.mark.parametrize("way", ["table", "symlink", "folder", "hard link", "renamed", "dots"])
def test_the_same_rows_under_another_name_have_no_second_budget(way, file, ledger, tmp_path):
    spend(file, ledger)
    source, table = other_name(way, file, tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(PolicyError, check=about("origin"), match="'people'") as refusal:
        spend(source, ledger, table)
    assert "Open them under that name (table='people'" in refusal.value.fix
    with open_ledger(str(ledger)) as book:
        assert book.accounts() == ["people"]
        assert book.verify().ok


def test_the_name_that_the_refusal_states_works_and_shares_the_budget(file, ledger, tmp_path):
    spend(file, ledger, epsilon=Fraction(1, 2))
    moved = file.rename(tmp_path / "elsewhere.csv")
    spend(moved, ledger, "people", epsilon=Fraction(1, 2))
    with pytest.raises(OverBudget):
        spend(moved, ledger, "people", epsilon=Fraction(1, 100))
    with open_ledger(str(ledger)) as book:
        owned = [entry.body["origins"] for entry in book.history() if "origins" in entry.body]
        assert book.verify().ok
    assert [Path(place).name for each in owned for place in each] == ["people.csv", "elsewhere.csv"]


def test_a_file_that_is_written_anew_keeps_its_budget(file, ledger, tmp_path):
    spend(file, ledger, epsilon=Fraction(1, 2))
    fresh = tmp_path / "people.csv.new"
    fresh.write_text(ROWS + "3,50\n")
    fresh.replace(file)
    spend(file, ledger, epsilon=Fraction(1, 2))
    with pytest.raises(OverBudget):
        spend(file, ledger)


def test_an_inode_that_is_used_again_does_not_take_other_rows_hostage(file, ledger, tmp_path):
    """File systems give the number of a removed file to the next one."""
    spend(file, ledger)
    number = file.stat().st_ino
    fresh = tmp_path / "fresh.csv"
    fresh.write_text(ROWS)
    fresh.replace(file)  # the nightly export
    for count in range(50):
        visits = tmp_path / f"visits{count}.csv"
        visits.write_text("id\n7\n")
        if visits.stat().st_ino == number:
            break
    assert spend(visits, ledger, "visits").columns == ("n",)


def test_a_place_that_was_given_anothers_file_is_refused(file, ledger, tmp_path):
    other = tmp_path / "visits.csv"
    other.write_text(ROWS)
    spend(file, ledger)
    spend(other, ledger)
    other.unlink()
    os.link(file, other)
    with pytest.raises(PolicyError, check=about("origin"), match="'people'"):
        spend(other, ledger)


@pytest.mark.parametrize("name", ["a#b.csv", "50%.csv", "50%23.csv"])
def test_a_name_with_marks_of_an_address_is_still_a_file(name, ledger, tmp_path):
    file, other = tmp_path / name, tmp_path / "a#c.csv"
    file.write_text(ROWS)
    other.write_text(ROWS)
    spend(file, ledger, "one")
    spend(other, ledger, "two")  # other rows
    os.link(file, tmp_path / "link#.csv")
    with pytest.raises(PolicyError, check=about("origin"), match="'one'"):
        spend(tmp_path / "link#.csv", ledger, "three")


def test_a_table_of_a_database_has_one_budget_whatever_its_case(tmp_path, ledger):
    where = tmp_path / "shop.duckdb"
    connection = duckdb.connect(str(where))
    connection.execute("CREATE TABLE people (id INTEGER)")
    connection.execute("INSERT INTO people VALUES (1), (2)")
    connection.execute("CREATE TABLE visits (id INTEGER)")
    connection.close()
    spend(where, ledger, "people")
    spend(where, ledger, "visits")  # other rows
    (tmp_path / "link.duckdb").symlink_to(where)
    for source, table in ((where, "PEOPLE"), (tmp_path / "link.duckdb", "Visits")):
        with pytest.raises(PolicyError):
            spend(source, ledger, table)


LISTED = """
name = "{name}"
ledger = "budget.db"

[budget]
epsilon = 1

[tables.people]
source = '{source}'
unit = "id"
"""


def listed(folder, name, source):
    file = folder / f"{name}.toml"
    file.write_text(LISTED.format(name=name, source=source))
    return noisegate.open(file)


def database(folder, name):
    with duckdb.connect(str(folder / name)) as made:
        made.execute("CREATE TABLE people AS SELECT i AS id FROM range(9) t(i)")
    return folder / name


def test_a_database_has_one_budget_for_a_table_whatever_link_leads_to_it(ledger, tmp_path):
    where = database(tmp_path, "blob")
    (tmp_path / "shop.duckdb").symlink_to(where)
    os.link(where, tmp_path / "hard.duckdb")
    noisegate.open(tmp_path / "shop.duckdb", epsilon=1, ledger=ledger, table="people")
    with pytest.raises(PolicyError, check=about("origin"), match="'people'"):
        listed(tmp_path, "second", "hard.duckdb#people")


@pytest.mark.parametrize("source", ["shop.duckdb#people", "shop.parquet#people"])
def test_what_is_opened_is_what_owns_the_budget(tmp_path, source):
    """A file whose name holds the mark is that file; only databases have tables behind it."""
    where = database(tmp_path, source.partition("#")[0])
    if where.suffix == ".duckdb":
        (tmp_path / source).write_text("nothing")
    with pytest.raises(SourceError):
        listed(tmp_path, "second", source)


@pytest.mark.parametrize("second", ['"odd.name"', 'main."odd.name"', 'MAIN."ODD.NAME"'])
def test_a_table_has_one_budget_however_its_name_is_quoted(tmp_path, second):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as made:
        made.execute('CREATE TABLE "odd.name" AS SELECT i AS id FROM range(9) t(i)')
    listed(tmp_path, "first", 'shop.duckdb#"odd.name"')
    with pytest.raises(PolicyError, check=about("origin"), match="'first'"):
        listed(tmp_path, "second", f"shop.duckdb#{second}")


@pytest.mark.parametrize("ending", [".db", ".duckdb"])
def test_lines_have_one_budget_whatever_the_ending_of_the_file_that_a_link_leads_to(
    tmp_path, ledger, ending
):
    """Else the name of the table would be part of where the rows are."""
    file, link = tmp_path / f"people{ending}", tmp_path / "people.csv"
    file.write_text(ROWS)
    link.symlink_to(file)
    spend(link, ledger)
    with pytest.raises(PolicyError, check=about("origin"), match="'people'"):
        spend(link, ledger, "p2")


def test_a_folder_whose_name_ends_like_a_scheme_is_no_server(file, tmp_path, monkeypatch):
    (tmp_path / "x:").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    listed(tmp_path, "first", "people.csv")
    with pytest.raises(PolicyError, check=about("origin"), match="'first'"):
        listed(tmp_path, "second", "x://people.csv")


def policy(folder, name, table):
    file = folder / f"{name}.toml"
    file.write_text(POLICY.format(name=name, table=table))
    return file


def test_two_policies_that_list_one_file_are_refused_at_the_second(file, tmp_path):
    gate = noisegate.open(policy(tmp_path, "first", "people"))
    gate.sql("SELECT COUNT(*) FROM people", epsilon=1)
    with pytest.raises(PolicyError, check=about("origin"), match="'first'"):
        noisegate.open(policy(tmp_path, "second", "persons"))
    noisegate.open(policy(tmp_path, "third", "people"), practice=True)  # reads no row


PUBLIC = """
[tables.everybody]
source = "{source}"
public = true
key = ["id"]
"""


@pytest.mark.parametrize("where", ["same policy", "other policy"])
def test_private_rows_are_not_public_under_another_name(file, tmp_path, where):
    first = policy(tmp_path, "first", "people")
    other = tmp_path / "wards.csv"
    other.write_text("id\n1\n")
    if where == "same policy":
        first.write_text(first.read_text() + PUBLIC.format(source="people.csv"))
        second = first
    else:
        noisegate.open(first)
        second = policy(tmp_path, "second", "visits")
        mine = tmp_path / "visits.csv"
        mine.write_text(ROWS)
        text = second.read_text().replace("people.csv", "visits.csv")
        second.write_text(text + PUBLIC.format(source="wards.csv"))
        noisegate.open(second)  # a public table of its own is fine
        os.link(file, tmp_path / "link.csv")
        second.write_text(text + PUBLIC.format(source="link.csv"))
    with pytest.raises(PolicyError, check=about("owner", "public")):
        noisegate.open(second)


def test_racing_openers_of_one_file_under_two_names_make_one_budget(file, ledger):
    code = (
        "import sys, noisegate\n"
        "from noisegate.errors import PolicyError\n"
        "sys.stdin.readline()\n"
        "try: noisegate.open(sys.argv[1], epsilon=1, ledger=sys.argv[2], table=sys.argv[3])\n"
        "except PolicyError: print('refused')\n"
        "else: print('open')"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [
        subprocess.Popen([sys.executable, "-c", code, file, ledger, name], **pipes)
        for name in ("one", "two")
    ]
    said = [racer.stdin.write("go\n") and racer for racer in racers]
    assert sorted(racer.communicate(timeout=60)[0] for racer in said) == ["open\n", "refused\n"]


def test_frames_have_no_origin_and_one_name(ledger):
    frame = pd.DataFrame({"id": [1, 2]})
    noisegate.open(frame, epsilon=1, ledger=ledger, table="a")
    noisegate.open(frame, epsilon=1, ledger=ledger, table="b")  # nothing tells them apart
    with open_ledger(str(ledger)) as book:
        assert not [entry for entry in book.history() if "origins" in entry.body]
    noisegate.memory(1, ledger=str(ledger))


def test_a_copy_is_other_rows_as_far_as_anybody_can_tell(file, ledger, tmp_path):
    """A known weakness: SECURITY.md says so."""
    spend(file, ledger)
    shutil.copy(file, tmp_path / "copy.csv")
    spend(tmp_path / "copy.csv", ledger)


@pytest.mark.parametrize(
    "same",
    [
        ("postgresql://ann:secret@db/shop#people", "postgres://bob@DB:5432/shop#public.people"),
        ("postgresql://db/shop?user=a&password=b#People", 'postgresql://db/shop#public."people"'),
        ("postgresql:///shop?host=db#people", "postgresql://db/shop?sslmode=require#people"),
    ],
)
def test_an_address_is_known_without_user_password_and_settings(same):
    one, other = (list(origins_of(each, "t")) for each in same)
    assert one == other
    assert "secret" not in one[0].place
    assert "password" not in one[0].place


def test_addresses_of_other_tables_are_other_origins():
    places = [
        "postgresql://db/shop#people", "postgresql://db/shop#old.people",
        "postgresql://db/till#people", "postgresql://other/shop#people",
        "postgresql://db:5433/shop#people", "spark://db/shop#people",
    ]  # fmt: skip
    found = {origin.place for place in places for origin in origins_of(place, "t")}
    assert len(found) == len(places)


# names of accounts


def account(ledger, name, parent=None):
    ledger.open_account(
        name, parent=parent, accountant="pure", budget=ApproxDP(1), unit="one person"
    )


@pytest.fixture
def books():
    with open_ledger(":memory:") as ledger:
        account(ledger, "clinic")
        account(ledger, "school")
        account(ledger, "clinic/ann", "clinic")
        yield ledger


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        ("clinic/bob", None),  # a root that looks like a child
        ("school/ann", "clinic"),  # a child that looks like another's
        ("clinic/ann/x", "clinic"),
        ("clinic/../school", "clinic"),
        ("clinic/..", "clinic"),
        ("clinic/", "clinic"),
        ("clinic//ann", "clinic"),
        ("Clinic", None),  # case
        ("clinic/ANN", "clinic"),
        ("clinic ", None),  # spaces
        ("clinic/ ann", "clinic"),
        ("clinic/\u0430nn", "clinic"),  # a Cyrillic a
        ("\u0441l\u0456n\u0456\u0441", None),
        ("clinic/\uff41nn", "clinic"),  # a wide a
        ("clinic/a\u200bnn", "clinic"),  # an invisible space
        ("clinic\u2215ann", None),
    ],
)
def test_a_name_that_can_be_taken_for_another_opens_no_account(books, name, parent):
    with pytest.raises(NoisegateError):
        account(books, name, parent)
    assert books.accounts() == ["clinic", "school", "clinic/ann"]


def test_a_data_set_may_be_named_after_any_file_and_is_one_in_all_encodings(books):
    account(books, "cafe\u0301")  # as some systems write it
    with pytest.raises(PolicyError, check=about("name")):
        account(books, "caf\u00e9")


def test_encodings_of_one_letter_are_one_name(books):
    account(books, "clinic/jos\u00e9", "clinic")
    with pytest.raises(PolicyError, check=about("name")):
        account(books, "clinic/jose\u0301", "clinic")


@pytest.mark.parametrize("name", ["clinic/bob", "clinic/анна", "clinic/山田", "clinic/jos\u00e9"])
def test_names_of_any_alphabet_open_accounts(books, name):
    account(books, name, "clinic")
    assert name in books.accounts()


def test_an_analyst_cannot_name_a_root_or_another_data_sets_account(file, tmp_path):
    other = tmp_path / "visits.csv"
    other.write_text(ROWS)
    ledger = tmp_path / "budget.db"
    noisegate.open(file, epsilon=1, ledger=ledger, analyst="ann", share="1/2")
    noisegate.open(other, epsilon=1, ledger=ledger)
    for analyst in ("../visits", "ann/..", "/", "", "Ann", "ann/x", "x:y"):
        with pytest.raises(NoisegateError):
            noisegate.open(file, ledger=ledger, analyst=analyst)


# entries


def test_a_log_with_two_budgets_over_one_origin_does_not_verify(books):
    origin = Origin("/data/people.csv", "1:2")
    books.open_account(
        "a", parent=None, accountant="pure", budget=ApproxDP(1), unit="p", origins=[origin]
    )
    account(books, "b")
    forged = {"account": "b", "origins": {origin.place: origin.mark}}
    books._write(lambda tx: books._rules._append(tx, "origin", forged))
    found = " ".join(books.verify().problems)
    assert "'a' and 'b' are budgets of the same rows" in found


def test_origins_survive_an_export_and_an_edit_of_them_is_named(file, ledger, tmp_path):
    spend(file, ledger)
    with open_ledger(str(ledger)) as book, (tmp_path / "log.jsonl").open("w") as lines:
        book.export(lines)
    restored = tmp_path / "restored.db"
    with (tmp_path / "log.jsonl").open() as lines:
        restore_ledger(lines, str(restored)).close()
    with pytest.raises(PolicyError, check=about("origin"), match="'people'"):
        spend(file, restored, "p2")
    raw = sqlite3.connect(restored)
    raw.execute("UPDATE origins SET account = 'nobody'")
    raw.commit()
    raw.close()
    with open_ledger(str(restored)) as book:
        assert any("Origin" in problem for problem in book.verify().problems)
