"""Which tables of a policy name the same people: what is read, refused, checked and drafted."""

import tomllib

import pytest

from noisegate.errors import PolicyError, SpecError
from noisegate.planning.calibrate import geometric_error
from noisegate.privacy.domain import Column, Kind, Step, TableDomain
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ZCDP, ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.policy.policy import read_policy
from noisegate.sources.policy.tables import domains
from noisegate.steward.check import Severity, check
from noisegate.steward.draft import draft
from noisegate.steward.page import page
from noisegate.steward.practice import practice_rows
from refusals import about

HEAD = 'name = "d"\n[budget]\nepsilon = 2\n'


@pytest.fixture
def read(tmp_path):
    def read_tables(head=HEAD, **units):
        """Units by table, as TOML."""
        said = [f"[tables.{name}]\nunit = {unit}\n" for name, unit in units.items()]
        (tmp_path / "d.toml").write_text(head + "".join(said))
        return read_policy(tmp_path / "d.toml")

    return read_tables


def spaces(policy):
    return {
        space: [table.name for table in tables] for space, tables in policy.spaces().items()
    }  # fmt: skip


# what is read


@pytest.mark.parametrize("column", ["patient_id", "customerNo", "id_client", "user", "userid"])
def test_columns_that_say_whose_ids_they_hold_share_a_space_by_their_name(read, column):
    policy = read(a=f'"{column}"', b=f'"{column}"')
    assert list(spaces(policy).values()) == [["a", "b"]]


@pytest.mark.parametrize(
    "column", ["id", "uid", "pid", "key", "who", "record_id", "row_no", "nummer", "x_id"]
)
def test_columns_of_anything_share_a_space_only_if_the_steward_says_so(read, column):
    assert spaces(read(a=f'"{column}"', b=f'"{column}"')) == {
        f"a.{column}": ["a"],
        f"b.{column}": ["b"],
    }
    said = f'{{ column = "{column}", ids = "member" }}'
    assert spaces(read(a=said, b=said)) == {"member": ["a", "b"]}


def test_columns_of_different_names_are_apart_unless_the_steward_says_otherwise(read):
    assert spaces(read(a='"patient_id"', b='"doctor_id"')) == {
        "patient_id": ["a"], "doctor_id": ["b"],
    }  # fmt: skip
    policy = read(
        customers='{ column = "id", ids = "customer" }',
        orders='{ column = "customer_id", ids = "customer" }',
    )
    assert spaces(policy) == {"customer": ["customers", "orders"]}


def test_names_that_differ_by_case_are_one(read):
    assert spaces(read(a='"patient_id"', b='"Patient_ID"')) == {"patient_id": ["a", "b"]}
    with pytest.raises(PolicyError, check=about("name")):
        read(a='{ column = "x", ids = "Patient" }', b='{ column = "y", ids = "patient" }')


def test_a_path_is_in_the_space_of_the_table_that_it_ends_in(read):
    via = '{ column = "id", via = ["who -> people.id"] }'
    assert spaces(read(people='"id"', visits=via)) == {"people.id": ["people", "visits"]}
    said = '{ column = "id", ids = "patient" }'
    assert spaces(read(people=said, visits=via)) == {"patient": ["people", "visits"]}


@pytest.mark.parametrize(
    ("people", "visits"),
    [
        ('"id"', '{ column = "id", ids = "patient", via = ["who -> people.id"] }'),
        (
            '{ column = "id", ids = "doctor" }',
            '{ column = "id", ids = "patient", via = ["who -> people.id"] }',
        ),
    ],
)
def test_a_path_that_says_another_space_than_its_end_is_refused(read, people, visits):
    with pytest.raises(PolicyError, match=r"tables\.visits\.unit\.ids: .* 'people'"):
        read(people=people, visits=visits)


@pytest.mark.parametrize("ids", ['""', "3", '"a.b"', '" "'])
def test_what_is_no_name_of_a_space_is_refused(read, ids):
    with pytest.raises(PolicyError, match="ids"):
        read(a=f'{{ column = "x", ids = {ids} }}')


def test_a_view_is_vouched_for_in_private_tables_only(read):
    assert read(a='"x"\ntrusted_view = true').tables["a"].trusted_view
    with pytest.raises(PolicyError, match=r"tables\.a\.trusted_view"):
        read(HEAD + "[tables.a]\npublic = true\ntrusted_view = true\n")
    with pytest.raises(PolicyError, match=r"tables\.a\.trusted_view"):
        read(a='"x"\ntrusted_view = false')


def test_where_there_are_several_spaces_units_are_called_by_theirs(read):
    kinds = {"patient_id": Kind.INTEGER, "doctor_id": Kind.INTEGER, "id": Kind.INTEGER}
    policy = read(
        'protects = "client"\n' + HEAD,
        a='"patient_id"', b='"doctor_id"', c='"id"', d='{ column = "id", ids = "nurse" }',
    )  # fmt: skip
    found = domains(policy, stored=dict.fromkeys("abcd", kinds), keys_of=lambda *_: ())
    assert [table.unit.noun for table in found.values()] == ["patient", "doctor", "person", "nurse"]
    one = read('protects = "client"\n' + HEAD, a='{ column = "id", ids = "nurse" }')
    assert one.noun("a") == "client"


def test_a_table_without_declared_ids_shares_them_with_no_other():
    unit = PrivacyUnit(column="id")
    one, other = (TableDomain(dataset="d", name=name, unit=unit) for name in ("a", "b"))
    assert (one.unit.ids, other.unit.ids) == ("a.id", "b.id")
    step = Step(column="who", table="a", key="id")
    assert TableDomain(dataset="d", name="c", unit=unit, path=(step,)).unit.ids == "a.id"
    rows = PrivacyUnit(column=None)
    assert TableDomain(dataset="d", name="a", unit=rows).unit.ids == "rows of a"


class Agreeable(str):
    """The name of every id space."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return True


@pytest.mark.parametrize("name", ["column", "ids"])
def test_a_name_that_equals_every_other_names_no_unit(name):
    with pytest.raises(SpecError, check=about("text")):
        PrivacyUnit(**{"column": "id", name: Agreeable("id")})


# what is promised


def table(name, column, ids=None, **more):
    return TableDomain(
        dataset="d", name=name, unit=PrivacyUnit(column=column, noun=ids or "person", ids=ids), **more
    )  # fmt: skip


def test_a_guarantee_names_every_unit_of_its_tables_once():
    tables = [
        table("a", "id", "customer"), table("b", "buyer", "customer"), table("c", "id", "customer"),
        table("d", "id", "clerk"), table("e", None),
    ]  # fmt: skip
    found = guarantee_of(ApproxDP(1, "1e-6"), tables)
    assert str(found) == (
        "(ε = 1, δ = 1e-6) for adding or removing one customer (all rows with the same 'id' or "
        "'buyer') or one clerk (all rows with the same 'id') or one row (declared: every row is one "
        "person) in this release about 'a', 'b', 'c', 'd', 'e'. Somebody who is 3 such units at "
        "once has (ε = 3, δ = 1.11074e-5)."
    )
    assert [unit["ids"] for unit in found.to_dict()["units"]] == [
        "customer", "customer", "clerk", "rows of e",
    ]  # fmt: skip


def test_a_guarantee_in_zcdp_groups_as_zcdp_does():
    also = (PrivacyUnit(column="b", ids="b"),)
    unit = PrivacyUnit(column="a", ids="a")
    plain = Guarantee(loss=ZCDP("1/8"), unit=unit, also=also, scope="this")
    assert str(plain).endswith(f"at once has {ZCDP('1/2')}.")
    loose = Guarantee(loss=ZCDP("1/8", "1e-6"), unit=unit, also=also, scope="this")
    assert str(loose).endswith("is protected as a group of 2.")


# what is checked


def findings(policy, **stored):
    stored = {name: {**kinds, "x": Kind.NUMBER} for name, kinds in stored.items()}
    tables = domains(policy, stored=stored, keys_of=lambda *_: ())
    error = lambda scale: geometric_error(scale, confidence="0.95")  # noqa: E731
    return check(policy, tables, stored=stored, error=error)


def told(found, severity, words):
    return [one for one in found if one.severity is severity and words in one.problem]


def test_tables_that_may_belong_together_but_are_apart_are_warned_of(read):
    policy = read(a='"patient_id"', b='"person"')
    found = findings(policy, a={"patient_id": Kind.INTEGER}, b={"person": Kind.INTEGER})
    (one,) = told(found, Severity.WARNING, "b.person and a.patient_id are treated as ids of")
    assert (one.place, "ids = 'patient'" in one.fix) == ("tables.b.unit", True)
    assert len(told(found, Severity.ADVICE, "The id space")) == 2
    said = read(a='{ column = "id", ids = "patient" }', b='{ column = "id", ids = "doctor" }')
    found = findings(said, a={"id": Kind.INTEGER}, b={"id": Kind.INTEGER})
    assert not told(found, Severity.WARNING, "different people")
    assert len(told(found, Severity.ADVICE, "The id space")) == 2


def test_tables_that_only_a_name_brings_together_are_shown(read):
    policy = read(a='"patient_id"', b='"patient_id"')
    found = findings(policy, a={"patient_id": Kind.TEXT}, b={"patient_id": Kind.TEXT})
    assert told(found, Severity.ADVICE, "a.patient_id, b.patient_id are treated as ids of the same")


def test_ids_of_one_space_that_are_stored_in_two_types_are_warned_of(read):
    policy = read(
        a='"patient_id"', b='"patient_id"\ncolumns = { patient_id = { type = "integer" } }'
    )
    found = findings(policy, a={"patient_id": Kind.INTEGER}, b={"patient_id": Kind.TEXT})
    (one,) = told(found, Severity.WARNING, "letter by letter")
    assert one.place == "tables.b.unit"
    apart = read(a='"patient_id"', b='"doctor_id"')
    found = findings(apart, a={"patient_id": Kind.INTEGER}, b={"doctor_id": Kind.TEXT})
    assert not told(found, Severity.WARNING, "letter by letter")
    assert not told(found, Severity.ERROR, "are not matched")


def test_a_view_that_is_vouched_for_is_warned_of(read):
    found = findings(read(a='"patient_id"\ntrusted_view = true'), a={"patient_id": Kind.TEXT})
    assert [one.place for one in told(found, Severity.WARNING, "a view.")] == [
        "tables.a.trusted_view"
    ]


# what is shown, drafted and made up


def test_a_page_shows_the_space_of_each_table(read):
    shown = page(read(a='"patient_id"', b='{ column = "id", ids = "doctor" }\ntrusted_view = true'))
    assert "one patient or one doctor" in shown
    assert "The patient is named by patient_id: ids of the space patient_id." in shown
    assert "The doctor is named by id: ids of the space doctor." in shown
    assert "A view: the steward vouches" in shown


ORDERS = {"customers": {"id": Kind.INTEGER}, "orders": {"customer_id": Kind.INTEGER}}


def test_a_draft_says_that_columns_of_two_names_hold_the_same_people(tmp_path):
    (tmp_path / "d.toml").write_text(draft(ORDERS))
    assert spaces(read_policy(tmp_path / "d.toml")) == {"customer": ["customers", "orders"]}
    same = draft({"visits": {"patient_id": Kind.TEXT}, "patients": {"patient_id": Kind.TEXT}})
    assert tomllib.loads(same)["tables"]["visits"]["unit"] == "patient_id"


def test_made_up_people_of_one_space_meet_in_its_tables():
    def made(ids, other):
        return {
            name: TableDomain(
                dataset="d", name=name, unit=PrivacyUnit(column=column, ids=space),
                columns={column: Column(name=column, kind=Kind.TEXT)},
            )
            for name, column, space in (("a", "id", ids), ("b", "who", other))
        }  # fmt: skip

    def met(tables):
        rows = practice_rows(tables, rows=100)
        return set(rows["a"]["id"].to_pylist()) & set(rows["b"]["who"].to_pylist())

    assert met(made("member", "member"))
    assert not met(made("member", "clerk"))
