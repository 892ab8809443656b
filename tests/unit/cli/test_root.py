import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.csv import write_csv

import noisegate
from noisegate.cli import main
from noisegate.errors import (
    OverBudget,
    PolicyError,
    SourceError,
    SpecError,
    UnitWarning,
    Unsupported,
)
from noisegate.root import check_policy, draft_policy, policy_page, policy_schema
from refusals import about

EXAMPLES = Path(__file__).parents[3] / "examples"

TOTAL = "SELECT COUNT(*) AS n FROM people"
BY_WARD = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"


@pytest.fixture
def people(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text(
        "id,ward\n" + "".join(f"{i // 2},{'north' if i % 4 else 'south'}\n" for i in range(400))
    )
    return file


def test_a_bare_file_opens_with_a_durable_ledger_beside_it(people):
    gate = noisegate.open(people, epsilon=2)
    assert people.with_name("people.csv.ledger").is_file()
    assert "every row is one person" in repr(gate)
    assert "durable" in repr(gate)


def test_the_budget_is_remembered(people):
    noisegate.open(people, epsilon=1).sql(TOTAL, epsilon="0.75")
    gate = noisegate.open(people)
    assert str(gate.remaining) == "ε = 0.25"
    with pytest.raises(OverBudget):
        gate.sql(TOTAL, epsilon="0.5", fresh=True)


def test_another_budget_or_unit_for_the_same_ledger_is_refused(people):
    noisegate.open(people, epsilon=1)
    with pytest.raises(PolicyError, check=about("terms")):
        noisegate.open(people, epsilon=2)
    with pytest.raises(PolicyError, check=about("terms")):
        noisegate.open(people, epsilon=1, unit="id", rows_per_unit=2)
    with pytest.raises(PolicyError, check=about("terms")):
        noisegate.open(people, epsilon=1, accountant="zcdp", delta="1e-6")


def test_a_file_without_budget_is_refused(people):
    with pytest.raises(PolicyError, check=about("budget")):
        noisegate.open(people)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), True, "much"])
def test_a_budget_that_is_no_budget_is_refused(people, epsilon):
    with pytest.raises(SpecError):
        noisegate.open(people, epsilon=epsilon)


def test_a_column_that_is_not_there_is_named(people):
    with pytest.raises(PolicyError, check=about("column"), match="'wrad'"):
        noisegate.open(people, epsilon=1, columns={"wrad": {"in": ["north"]}})
    with pytest.raises(PolicyError, check=about("column"), match="'person'"):
        noisegate.open(people, epsilon=1, unit="person", rows_per_unit=1)


def test_a_count_of_a_units_rows_needs_a_cap_or_a_look(people):
    gate = noisegate.open(people, epsilon=1, unit="id")
    with pytest.raises(Unsupported, match="rows_per_unit"):
        gate.sql(TOTAL, epsilon=1, choose=())
    assert str(gate.spent) == "ε = 0"


def test_a_capped_count_says_that_it_is_capped(people):
    gate = noisegate.open(people, epsilon=1, unit="id", rows_per_unit=2)
    answer = gate.sql(TOTAL, epsilon=1)
    assert "2 rows per" in answer.footer()
    assert "2 rows per" in " ".join(answer.to_dict()["caveats"])
    row_level = noisegate.open(pa.table({"a": [1]}), epsilon=1)
    assert "at most" not in row_level.sql("SELECT COUNT(*) FROM data", epsilon=1).footer()


def test_bounds_may_be_declared_for_any_column():
    frame = pa.table(
        {"x": [1.5, 2.5, float("nan")], "when": pa.array([0, 1, 2], pa.timestamp("s"))}
    )
    columns = {"x": {"between": [0, 100]}, "when": {}}
    gate = noisegate.open(frame, epsilon=1, columns=columns)
    assert gate.sql("SELECT COUNT(*) FROM data", epsilon=1).columns == ("count",)


def test_keys_of_a_column_of_fractions_are_refused():
    with pytest.raises(SpecError, check=about("keys")):
        noisegate.open(pa.table({"x": [1.5]}), epsilon=1, columns={"x": {"in": ["1.5"]}})


def test_a_missing_file_leaves_no_ledger_behind(tmp_path):
    with pytest.raises(SourceError):
        noisegate.open(tmp_path / "nope.csv", epsilon=1)
    assert not list(tmp_path.iterdir())


def test_a_frame_in_memory_has_a_ledger_in_memory():
    gate = noisegate.open(pa.table({"a": [1, 2]}), epsilon=1)
    assert "memory only" in repr(gate)
    assert gate.sql("SELECT COUNT(*) FROM data", epsilon=1).columns == ("count",)


def test_an_answer_has_every_form(people):
    gate = noisegate.open(people, epsilon=1, columns={"ward": {"in": ["north", "south", "west"]}})
    answer = gate.sql(BY_WARD, epsilon="0.5")
    assert answer.columns == ("ward", "n")
    assert [row[0] for row in answer.rows] == ["north", "south", "west"]
    frame = answer.to_pandas()
    assert list(frame.columns) == ["ward", "n"]
    assert answer.to_arrow().to_pylist() == [{"ward": key, "n": n} for key, n in answer.rows]
    assert answer.to_polars().rows() == list(answer.rows)
    assert answer.margins(0.95) == {"ward": None, "n": (6, 6, 6)}
    assert answer.margins("0.99")["n"][0] > 6
    assert str(answer.cost) == "ε = 0.5"
    assert answer.guarantee.loss == answer.cost
    assert "± 6" in str(answer)
    assert ">north</td>" in answer._repr_html_()
    shown = answer.to_dict()
    assert (shown["price"], shown["remaining"], shown["margins"][0]) == (0.5, 0.5, [None, 6])


def test_keys_are_shown_escaped():
    gate = noisegate.open(pa.table({"k": ["<b>"]}), epsilon=1, columns={"k": {"in": ["<b>"]}})
    html = gate.sql("SELECT k, COUNT(*) FROM data GROUP BY k", epsilon=1)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_asking_for_an_error_buys_the_cheapest_noise_that_keeps_it(people):
    gate = noisegate.open(people, epsilon=1)
    plan = gate.plan(TOTAL, within=50, confidence=0.95)
    assert plan.margins(0.95) == {"n": 50}
    dearer, cheaper = plan.price.epsilon * 102 / 100, plan.price.epsilon * 98 / 100
    assert gate.plan(TOTAL, epsilon=dearer).margins(0.95)["n"] <= 50
    assert gate.plan(TOTAL, epsilon=cheaper).margins(0.95)["n"] > 50
    assert gate.sql(TOTAL, within=50).cost == plan.price


def test_a_price_that_is_none_is_refused(people):
    gate = noisegate.open(people, epsilon=1)
    for terms in (
        {},
        {"relative": "0.1", "within": 5},
        {"epsilon": 0},
        {"within": -1},
        {"epsilon": "x"},
    ):
        with pytest.raises(SpecError):
            gate.plan(TOTAL, **terms)


def test_a_plan_spends_nothing_and_is_free_once_answered(people):
    gate = noisegate.open(people, epsilon=1)
    assert str(gate.plan(TOTAL, epsilon="0.5").price) == "ε = 0.5"
    assert str(gate.spent) == "ε = 0"
    first = gate.sql(TOTAL, epsilon="0.5")
    assert str(gate.plan(TOTAL, epsilon="0.5").price) == "ε = 0"
    again = gate.sql(TOTAL, epsilon="0.5")
    assert again.rows == first.rows
    assert again.free
    assert str(gate.spent) == "ε = 0.5"
    assert not gate.plan(TOTAL, epsilon="0.75", fresh=True).fits


def test_history_shows_what_was_asked(people):
    gate = noisegate.open(people, epsilon=1)
    gate.sql(TOTAL, epsilon="0.5")
    assert [entry.kind for entry in gate.history()] == ["account", "reserve", "settle"]
    assert gate.ledger.verify().ok


def test_the_log_is_the_same_whatever_the_rows():
    """All but the answer, which is noisy: its digest and its length."""
    logs = []
    for rows in (3, 5000):
        gate = noisegate.open(pa.table({"a": range(rows)}), epsilon=1)
        gate.sql("SELECT COUNT(*) FROM data", epsilon="0.5")
        bodies = [{**entry.body, "answer": None, "bytes": None} for entry in gate.history()]
        logs.append(
            [
                (entry.seq, entry.kind, body)
                for entry, body in zip(gate.history(), bodies, strict=True)
            ]
        )
    assert logs[0] == logs[1]


def test_analysts_have_shares_and_never_exceed_the_data_set_together(people):
    ann = noisegate.open(people, epsilon=1, analyst="ann", share="0.75")
    bob = noisegate.open(people, analyst="bob", share="0.75")
    ann.sql(TOTAL, epsilon="0.75")
    with pytest.raises(OverBudget):
        ann.sql(TOTAL, epsilon="0.25", fresh=True)
    assert str(bob.remaining) == "ε = 0.25"
    with pytest.raises(OverBudget):
        bob.sql(TOTAL, epsilon="0.5", fresh=True)
    assert bob.sql(TOTAL, epsilon="0.75").free  # what ann asked costs nobody anything more
    bob.sql(TOTAL, epsilon="0.25", fresh=True)
    assert str(noisegate.open(people, analyst="ann").spent) == "ε = 0.75"
    assert str(noisegate.open(people).spent) == "ε = 1"
    assert bob.ledger.verify().ok


def test_a_share_needs_an_analyst_and_does_not_change_silently(people):
    noisegate.open(people, epsilon=1, analyst="ann", share="0.5")
    with pytest.raises(SpecError, check=about("share")):
        noisegate.open(people, share="0.5")
    with pytest.raises(PolicyError, check=about("terms")):
        noisegate.open(people, analyst="ann", share="0.75")


def test_one_file_has_one_budget(people):
    noisegate.open(people, epsilon=1)
    with pytest.raises(PolicyError, check=about("other-name")):
        noisegate.open(people, epsilon=1, table="again")


def test_a_frame_in_a_durable_ledger_needs_a_name(tmp_path):
    frame = pa.table({"a": [1]})
    with pytest.raises(PolicyError, check=about("frame")):
        noisegate.open(frame, epsilon=1, ledger=tmp_path / "l")
    noisegate.open(frame, epsilon=1, ledger=tmp_path / "l", table="mine")


# policies


@pytest.fixture
def clinic(tmp_path):
    """A copy of the example: its ledger stands beside it."""
    shutil.copytree(EXAMPLES / "clinic", tmp_path / "clinic")
    return Path(shutil.copy(EXAMPLES / "clinic.toml", tmp_path))


PATIENTS = "SELECT COUNT(*) AS n FROM patients"


def test_a_policy_opens_its_tables_with_a_ledger_beside_it(clinic):
    gate = noisegate.open(clinic, analyst="ana")
    assert list(gate.tables) == ["patients", "visits", "prescriptions", "drugs"]
    assert clinic.with_name("clinic.toml.ledger").is_file()
    assert "one patient" in repr(gate)
    assert str(gate.remaining) == "(ε = 2, δ = 1e-7)"


def test_the_policy_says_what_a_question_costs(clinic):
    gate = noisegate.open(clinic, analyst="ana")
    assert str(gate.sql(PATIENTS).cost) == "ε = 0.1"
    with pytest.raises(SpecError, check=about("max-price")):
        gate.sql(PATIENTS, epsilon="1.5")


def test_only_listed_analysts_ask_and_all_of_them_share_one_budget(clinic):
    with pytest.raises(PolicyError, check=about("analyst")):
        noisegate.open(clinic)
    with pytest.raises(PolicyError, match="'eve'"):
        noisegate.open(clinic, analyst="eve")
    ana, ben = (noisegate.open(clinic, analyst=name) for name in ("ana", "ben"))
    first = ana.sql(PATIENTS)
    again = ben.sql(PATIENTS)
    assert (again.free, again.rows) == (True, first.rows)
    assert str(ben.spent) == "ε = 0"
    assert str(ana.ledger.balance("clinic").spent) == "ε = 0.1"


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 1},
        {"delta": "1e-6"},
        {"unit": "patient_id"},
        {"columns": {}},
        {"table": "x"},
        {"share": 1},
        {"snapshot": "2"},
        {"accountant": "zcdp"},
    ],
)
def test_what_the_policy_says_is_not_said_again(clinic, terms):
    with pytest.raises(SpecError, check=about("policy")):
        noisegate.open(clinic, analyst="ana", **terms)


def test_no_delta_is_no_term_however_it_is_written(clinic):
    assert noisegate.open(clinic, analyst="ana", delta="0").tables


def test_a_missing_policy_is_named(tmp_path):
    with pytest.raises(PolicyError, match=r"nope\.toml"):
        noisegate.open(tmp_path / "nope.toml")


def test_practice_reads_no_private_row_and_leaves_no_ledger(clinic):
    for name in ("patients", "visits", "prescriptions"):
        file = clinic.parent / "clinic" / f"{name}.csv"
        file.write_text(file.read_text().partition("\n")[0] + "\n")
    gate = noisegate.open(clinic, analyst="ana", practice=True)
    answer = gate.sql(PATIENTS, epsilon=1)
    assert answer.rows[0][0] > 10
    assert not clinic.with_name("clinic.toml.ledger").exists()
    assert "made-up rows" in repr(gate)
    assert gate.sql("SELECT COUNT(*) AS n FROM drugs").rows == (
        (12,),
    )  # public ones are as they are


def test_a_public_table_is_exact_and_free(clinic):
    gate = noisegate.open(clinic, analyst="ana")
    answer = gate.sql("SELECT class, COUNT(*) AS n FROM drugs GROUP BY class ORDER BY class")
    assert answer.free
    assert answer.margins() == {"class": None, "n": None}
    assert sum(n for _, n in answer.rows) == 12
    assert str(gate.spent) == "ε = 0"


def test_a_draft_opens_once_it_has_been_read(clinic):
    files = [clinic.parent / "clinic" / f"{name}.csv" for name in ("patients", "visits")]
    draft = clinic.with_name("draft.toml")
    draft.write_text(draft_policy(files, name="drafted"))
    gate = noisegate.open(draft)
    asked = gate.sql("SELECT COUNT(DISTINCT patient_id) AS n FROM visits", epsilon="0.5")
    assert asked.columns == ("n",)
    assert "name" not in {each for each, column in gate.tables["patients"].columns.items()
                          if not column.hidden}  # fmt: skip


def test_a_draft_never_quotes_a_value(clinic):
    text = draft_policy([clinic.parent / "clinic" / "patients.csv"])
    assert not [word for word in ("Lund", "Malmö", "Cleo", "1971") if word in text]


def test_two_files_of_one_name_are_not_drafted(clinic):
    file = clinic.parent / "clinic" / "visits.csv"
    with pytest.raises(SpecError, check=about("name")):
        draft_policy([file, file])


def test_the_page_the_schema_and_the_check_of_a_policy(clinic):
    assert "one patient" in policy_page(clinic)
    assert policy_schema()["$schema"].endswith("2020-12/schema")
    found = check_policy(clinic)
    assert {each.severity.value for each in found} == {"advice"}
    assert any("SUM(cost)" in each.problem for each in found)


# nobody said whose the rows are

TWICE = {"patient_id": [1, 1, 2], "age": [30, 31, 40]}


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"patient_id": [1, 1, 2]}, "patient_id"),
        ({"patient_id": [1, 2, 3]}, "patient_id"),  # rows decide nothing
        ({"CustomerNo": ["a", "b", "c"]}, "CustomerNo"),
        ({"user": ["a", "a", "a"]}, "user"),
        ({"id": [1, 1, 2]}, None),
        ({"visit_id": [1, 1, 2]}, None),
        ({"member": [True, True, False]}, None),  # no ids
        ({"patient_score": [0.5, 0.5, 1.0]}, None),
    ],
)
def test_a_column_that_says_whose_the_rows_are_is_asked_about(columns, named, recwarn):
    gate = noisegate.open(pa.table(columns), epsilon=1, table="people")
    answer = gate.sql("SELECT COUNT(*) AS n FROM people", epsilon=1)
    if named is None:
        assert not recwarn.list
        assert "unit=" not in str(answer.guarantee)
        return
    (found,) = recwarn.list
    assert found.category is UnitWarning
    assert found.filename == __file__
    for words in (str(found.message), str(answer.guarantee), answer.card().to_markdown()):
        assert f"unit='{named}'" in words
        assert "every row counts as a different person" in words


def test_whoever_names_a_unit_or_declares_the_keys_is_not_asked(recwarn):
    rows = pa.table(TWICE)
    noisegate.open(rows, epsilon=1, unit="patient_id", rows_per_unit=2)
    noisegate.open(rows, epsilon=1, unit="age", rows_per_unit=2)
    noisegate.open(rows, epsilon=1, columns={"patient_id": {"in": [1, 2]}})  # a category
    assert not recwarn.list


def test_the_command_line_asks_for_the_unit_on_the_side(tmp_path, capfd):
    write_csv(pa.table(TWICE), tmp_path / "visits.csv")
    asked = [
        "ask",
        str(tmp_path / "visits.csv"),
        "SELECT COUNT(*) AS n FROM visits",
        "--epsilon",
        "1",
    ]
    for unit, said in ([], True), (["--unit", "patient_id", "--rows-per-unit", "2"], False):
        ledger = ["--ledger", ":memory:", "--budget", "1", "--json"]
        with pytest.raises(SystemExit) as ended, pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["noisegate", *asked, *unit, *ledger])
            main()
        out, err = capfd.readouterr()
        assert ended.value.code in (None, 0)
        assert json.loads(out)["columns"] == ["n"]
        assert ("--unit patient_id" in err) == said


@pytest.mark.parametrize("ledger", [{}, 5, ["ledger.db"]])
def test_a_ledger_that_is_no_path_is_refused_and_makes_no_file(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, check=about("ledger")):
        noisegate.open(pa.table({"x": [1]}), table="t", epsilon=1, ledger=ledger)
    assert not list(tmp_path.iterdir())


def test_keys_of_a_text_file_are_read_as_their_column_is_declared(tmp_path):
    """A draft advises to reference the items of another file; text files have texts alone."""
    (tmp_path / "items.csv").write_text(
        "item,genre\n" + "".join(f"{i},g{i % 2}\n" for i in range(6))
    )
    (tmp_path / "loans.csv").write_text(
        "who,item\n" + "".join(f"{i},{i % 6}\n" for i in range(600))
    )
    policy = tmp_path / "library.toml"
    text = (
        'name = "library"\n[budget]\nepsilon = 100\n[tables.loans]\nsource = "loans.csv"\n'
        'unit = "who"\nrows_per_unit = 1\n[tables.loans.columns]\nwho = { type = "integer" }\n'
        'item = { type = "integer", references = "items.item" }\n'
        '[tables.items]\nsource = "items.csv"\npublic = true\n[tables.items.columns]\n'
    )
    policy.write_text(text + 'item = { type = "integer" }\ngenre = { type = "text" }\n')
    sql = "SELECT item, COUNT(*) AS n FROM loans GROUP BY item ORDER BY item"
    with noisegate.open(policy, ledger=":memory:") as gate:
        assert list(gate.sql(sql, epsilon=90)) == [(i, 100) for i in range(6)]
    policy.write_text(text)
    with pytest.raises(PolicyError, match="Declare 'item' of 'items' with the same type"):
        noisegate.open(policy, ledger=":memory:")
