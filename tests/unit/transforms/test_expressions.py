"""What each function means, what is known about its results, and what is refused."""

# ruff: noqa: DTZ001 - times in tables have no zone here

from datetime import date, datetime
from fractions import Fraction

import duckdb
import pytest
from sqlglot import exp

from noisegate.algebra.expression import Call, Field, Literal, domain_of
from noisegate.algebra.functions import FUNCTIONS, function_named
from noisegate.algebra.rules_text import case_of
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.domain import Domain, Kind, ordinal
from noisegate.sources.duckdb.dialect import write
from refusals import about

CONNECTION = duckdb.connect(":memory:")


def bounded(kind, low, high, **more):
    return Domain(kind=kind, low=ordinal(low), high=ordinal(high), **more)


SCHEMA = {
    "age": bounded(Kind.INTEGER, 0, 99),
    "id": Domain(kind=Kind.INTEGER),
    "pay": bounded(Kind.NUMBER, 0, 1000, nullable=False),
    "any": Domain(kind=Kind.NUMBER),
    "name": Domain(kind=Kind.TEXT),
    "city": Domain(kind=Kind.TEXT, keys=("Ulm", "Zürich")),
    "born": bounded(Kind.DATE, date(1999, 11, 20), date(2001, 2, 3)),
    "day": Domain(kind=Kind.DATE),
    "at": bounded(Kind.TIMESTAMP, datetime(2024, 1, 1, 22), datetime(2024, 1, 2, 1)),
    "flag": Domain(kind=Kind.BOOLEAN),
}


def call(name, *args):
    made = [a if isinstance(a, Field | Call | Literal) else Literal(a) for a in args]
    return Call(name, tuple(made))


def known(name, *args):
    return domain_of(call(name, *args), SCHEMA)


def value(expression):
    sql = write(expression, {}, exp.column).sql(dialect="duckdb")
    return CONNECTION.execute(f"SELECT {sql}").fetchone()[0]


NULL = Literal(None, Kind.INTEGER)
MANY = Literal((1 << 63) - 1)
AT = datetime(2024, 5, 5, 13, 45, 10)
MEANINGS = [
    ("add", (2, 3), 5),
    ("add", (MANY, 1), 2.0**63),
    ("subtract", (2, Fraction(1, 2)), 1.5),
    ("multiply", (-4, 5), -20),
    ("multiply", (Fraction(10) ** 200, Fraction(10) ** 200), None),
    ("divide", (1, 4), 0.25),
    ("divide", (1, 0), None),
    ("int_divide", (-7, 2), -3),
    ("int_divide", (-7, 0), None),
    ("int_divide", (Fraction(15, 2), 2), 3),
    ("modulo", (-7, 3), -1),
    ("modulo", (7, 0), None),
    ("modulo", (Fraction(15, 2), 0), None),
    ("negate", (-5,), 5),
    ("abs", (-5,), 5),
    ("sign", (Fraction(-1, 3),), -1),
    ("floor", (Fraction(-5, 2),), -3),
    ("ceil", (Fraction(-5, 2),), -2),
    ("trunc", (Fraction(-5, 2),), -2),
    ("round", (Fraction(-5, 2),), -3),
    ("round", (Fraction(314159, 100000), 2), 3.14),
    ("round", (1251, -2), 1300),
    ("to_decimal", (Fraction(314159, 100000), 2), 3.14),
    ("to_decimal", (Fraction(-5, 2), 0), -3.0),
    ("to_decimal", (Fraction(10) ** 300, 15), 1e300),
    ("sqrt", (9,), 3.0),
    ("sqrt", (-1,), None),
    ("ln", (1,), 0.0),
    ("ln", (0,), None),
    ("log10", (1000,), 3.0),
    ("log2", (8,), 3.0),
    ("log2", (-8,), None),
    ("exp", (0,), 1.0),
    ("exp", (1000,), None),
    ("power", (2, 10), 1024.0),
    ("power", (-8, Fraction(1, 2)), None),
    ("power", (0, -1), None),
    ("bin", (-1, 10), -10),
    ("bin", (19, 10, 5), 15),
    ("bin", (Fraction(3, 10), Fraction(1, 10)), 0.3),
    ("eq", (1, Fraction(1)), True),
    ("eq", (1, NULL), None),
    ("ne", ("a", "b"), True),
    ("lt", (date(2024, 1, 1), datetime(2024, 1, 1, 1)), True),
    ("le", (2, 2), True),
    ("gt", ("b", "B"), True),
    ("ge", (False, True), False),
    ("between", (2, 1, 3), True),
    ("in", (2, 1, 2), True),
    ("in", (2, 1, NULL), None),
    ("and", (False, NULL), False),
    ("or", (False, NULL), None),
    ("not", (True,), False),
    ("is_null", (NULL,), True),
    ("is_true", (NULL,), False),
    ("least", (3, NULL, 2), 2),
    ("greatest", (3, Fraction(7, 2)), 3.5),
    ("coalesce", (NULL, 4), 4),
    ("nullif", (3, 3), None),
    ("nullif", (3, NULL), 3),
    ("case", (False, "a", NULL, "b", "c"), "c"),
    ("case", (False, "a"), None),
    ("lower", ("ÄB",), "äb"),
    ("upper", ("äb",), "ÄB"),
    ("length", ("äb",), 2),
    ("trim", (" a ",), "a"),
    ("ltrim", (" a ",), "a "),
    ("rtrim", (" a ",), " a"),
    ("substring", ("hello", 2, 3), "ell"),
    ("substring", ("hello", 2), "ello"),
    ("substring", ("hello", MANY), None),
    ("left", ("hello", -2), "hel"),
    ("right", ("hello", 2), "lo"),
    ("right", ("hello", MANY), None),
    ("concat", ("a", "b", "c"), "abc"),
    ("concat", ("a", NULL), None),
    ("replace", ("banana", "an", "o"), "booa"),
    ("starts_with", ("abc", "ab"), True),
    ("ends_with", ("abc", "bc"), True),
    ("contains", ("abc", "x"), False),
    ("position", ("äbc", "c"), 3),
    ("strlen", ("äb",), 3),
    ("reverse", ("abc",), "cba"),
    ("repeat", ("ab", 3), "ababab"),
    ("repeat", ("ab", -1), ""),
    ("split_part", ("a-b-c", "-", 2), "b"),
    ("split_part", ("a-b-c", "-", -1), "c"),
    ("split_part", ("a-b-c", "-", 4), ""),
    ("lpad", ("7", 3, "0"), "007"),
    ("lpad", ("7777", 3, "0"), "777"),
    ("rpad", ("a", 4, "xy"), "axyx"),
    ("regexp_matches", ("Abc", "b"), True),
    ("regexp_matches", ("Abc", "^a", "i"), True),
    ("regexp_full_match", ("abc", "b"), False),
    ("regexp_extract", ("x=12;y=3", "([a-z])=([0-9]+)", 2), "12"),
    ("regexp_extract", ("abc", "z", 0), ""),
    ("regexp_replace", ("aab", "a", "<\\0>"), "<a>ab"),
    ("regexp_replace", ("aab", "a", "", "g"), "b"),
    ("like", ("a_c", "a!_%", "!"), True),
    ("like", ("abc", "a!_%", "!"), False),
    ("ilike", ("ABC", "a_c"), True),
    ("year", (AT,), 2024),
    ("quarter", (AT,), 2),
    ("month", (AT,), 5),
    ("week", (date(2021, 1, 1),), 53),
    ("day", (AT,), 5),
    ("dayofweek", (AT,), 0),
    ("dayofyear", (date(2024, 12, 31),), 366),
    ("hour", (AT,), 13),
    ("minute", (AT,), 45),
    ("second", (AT,), AT.second),
    ("epoch", (date(1970, 1, 2),), 86400.0),
    ("epoch_ms", (datetime(1970, 1, 1, 0, 0, 1, 500000),), 1500),
    ("strftime", (AT, "%Y-%m %-d"), "2024-05 5"),
    ("date_trunc", ("minute", AT), AT.replace(second=0, microsecond=0)),
    ("date_trunc", ("month", AT), date(2024, 5, 1)),
    ("date_trunc", ("hour", AT), datetime(2024, 5, 5, 13)),
    ("date_add_days", (date(2024, 2, 28), 2), date(2024, 3, 1)),
    ("date_diff", ("month", date(2023, 12, 31), AT), 5),
    ("date_diff", ("week", date(1969, 12, 28), date(1970, 1, 5)), 2),
    ("make_date", (2024, 2, 29), date(2024, 2, 29)),
    ("make_date", (2023, 2, 29), None),
    ("make_date", (2023, 0, NULL), None),
    ("to_integer", (Fraction(5, 2),), 2),
    ("to_integer", ("x",), None),
    ("to_integer", (Fraction(10) ** 20,), None),
    ("to_number", ("1.5",), 1.5),
    ("to_number", ("nan",), None),
    ("to_number", ("1e999",), None),
    ("to_text", (True,), "true"),
    ("to_boolean", ("maybe",), None),
    ("to_boolean", (2,), True),
    ("to_date", ("2023-02-30",), None),
    ("to_date", ("infinity",), None),
    ("to_date", (AT,), date(2024, 5, 5)),
    ("to_timestamp", (date(2024, 5, 5),), datetime(2024, 5, 5)),
    ("to_timestamp", ("20000-01-01",), None),
]


@pytest.mark.parametrize(("name", "args", "expected"), MEANINGS)
def test_a_function_means_what_the_list_says(name, args, expected):
    found = value(call(name, *args))
    assert found == expected
    assert type(found) is type(expected)


def test_every_function_has_its_meaning_tested():
    assert {name for name, _, _ in MEANINGS} == FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("expression", "kind", "low", "high"),
    [
        (call("add", Field("age"), 1), Kind.INTEGER, 1, 100),
        (call("add", Field("id"), 1), Kind.NUMBER, None, None),
        (call("divide", Field("pay"), 8), Kind.NUMBER, 0, 125),
        (call("divide", 1, Field("age")), Kind.NUMBER, None, None),
        (call("multiply", Field("age"), Field("age")), Kind.INTEGER, 0, 9801),
        (call("modulo", Field("id"), 7), Kind.INTEGER, -6, 6),
        (call("modulo", Field("id"), -1), Kind.NUMBER, -1, 1),
        (call("int_divide", Field("age"), -10), Kind.INTEGER, -9, 0),
        (call("round", Field("pay")), Kind.INTEGER, 0, 1000),
        (call("floor", Field("any")), Kind.NUMBER, None, None),
        (call("greatest", call("least", Field("any"), 10), 0), Kind.NUMBER, 0, 10),
        (call("least", Field("age"), Field("id")), Kind.INTEGER, None, None),
        (call("sqrt", call("multiply", Field("pay"), 10)), Kind.NUMBER, 0, 100),
        (call("case", Field("flag"), Field("age"), Fraction(-1, 2)), Kind.NUMBER, Fraction(-1, 2), 99),
        (call("case", Field("flag"), 3, Literal(None)), Kind.INTEGER, 3, 3),
        (call("length", Field("name")), Kind.INTEGER, 0, None),
        (call("year", Field("day")), Kind.INTEGER, 1, 9999),
        (call("date_diff", "year", Field("born"), date(2024, 1, 1)), Kind.INTEGER, 23, 25),
        (call("date_add_days", Field("born"), 1), Kind.DATE, date(1999, 11, 21), date(2001, 2, 4)),
    ],
)  # fmt: skip
def test_bounds_follow_by_interval_arithmetic(expression, kind, low, high):
    found = domain_of(expression, SCHEMA)
    assert found.kind is kind
    assert found.low == (None if low is None else ordinal(low))
    assert found.high == (None if high is None else ordinal(high))


def test_sums_of_decimals_are_bounded_as_doubles_round_them():
    tenth = Literal(Fraction(1, 10))
    assert known("add", tenth, Fraction(1, 5)).high == Fraction(0.1 + 0.2)
    assert domain_of(tenth, {}).low == Fraction(0.1)


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        (call("gt", Field("age"), 1), (False, True)),
        (call("multiply", call("floor", call("divide", Field("age"), 50)), 50), (0, 50)),
        (call("bin", Field("age"), 50), (0, 50)),
        (call("bin", Field("pay"), 250, 125), (-125, 125, 375, 625, 875)),
        (call("bin", call("least", call("abs", Field("any")), 1), Fraction(1, 2)), (0, Fraction(1, 2), 1)),
        (call("int_divide", Field("age"), 40), (0, 1, 2)),
        (call("year", Field("born")), (1999, 2000, 2001)),
        (call("year", Field("day")), None),
        (call("date_trunc", "year", Field("born")), (date(1999, 1, 1), date(2000, 1, 1), date(2001, 1, 1))),
        (call("date_trunc", "quarter", Field("at")), (date(2024, 1, 1),)),
        (call("date_trunc", "hour", Field("at")), (datetime(2024, 1, 1, 22), datetime(2024, 1, 1, 23), datetime(2024, 1, 2), datetime(2024, 1, 2, 1))),
        (call("date_trunc", "year", Field("day")), None),
        (call("case", Field("flag"), "yes", "no"), ("yes", "no")),
        (call("coalesce", Field("city"), "none"), ("Ulm", "Zürich", "none")),
        (call("upper", Field("city")), ("ULM", "ZÜRICH")),
        (call("left", Field("city"), 1), ("U", "Z")),
        (call("concat", Field("city"), "!"), ("Ulm!", "Zürich!")),
        (call("length", Field("city")), (3, 6)),
        (call("lower", Field("name")), None),
        (call("round", call("multiply", Field("pay"), 10)), None),
        (call("to_text", call("sign", Field("any"))), ("-1", "0", "1")),
    ],
)  # fmt: skip
def test_groups_follow_where_a_list_is_closed(expression, keys):
    assert domain_of(expression, SCHEMA).keys == keys


def test_cases_of_letters_in_keys_are_the_engines():
    letters = [chr(code) for code in range(1, 0x600) if chr(code).isprintable()]
    for function, name in ((str.lower, "lower"), (str.upper, "upper")):
        ours = [case_of(function)(letter) for letter in letters]
        asked = ", ".join(
            f"{name}({exp.Literal.string(one).sql(dialect='duckdb')})" for one in letters
        )
        theirs = CONNECTION.execute(f"SELECT {asked}").fetchone()
        wrong = [(o, t) for o, t in zip(ours, theirs, strict=True) if o is not None and o != t]
        assert wrong == []
        assert sum(one is not None for one in ours) > 1000


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("sqrt", ("a",), "SQRT needs a number, not text. Cast it: CAST(x AS DOUBLE)."),
        ("add", (1,), "ADD does not take 1 arguments. Use x + y."),
        ("eq", (1, "a"), "integer and text"),
        ("like", (Field("name"), Field("name")), "LIKE needs a constant text"),
        ("like", ("a", "a!", "!"), "ends with its escape character"),
        ("like", ("a", "%a%b%c%d%"), "too many %"),
        ("case", (1, 2), "CASE needs a condition, not integer"),
        ("date_trunc", ("decade", Field("at")), "unit 'decade'"),
        ("date_trunc", ("hour", Field("day")), "A date has no hours"),
        ("date_add_days", (date.max, 1), "outside the years 1 to 9999"),
        ("date_add_days", (AT, MANY), "outside the years 1 to 9999"),
        ("date_add_days", (Field("born"), -800_000), "outside the years 1 to 9999"),
        ("make_date", (Field("age"), 1, 1), "outside the years 1 to 9999"),
        ("make_date", (MANY, 0, NULL), "outside the years 1 to 9999"),
        ("bin", (Field("age"), 0), "a width above 0"),
        ("round", (Field("pay"), 40), "too many digits"),
        ("replace", ("a", "a", "x" * 17), "long text"),
        ("to_boolean", (Field("day"),), "A cast from date to boolean"),
        ("hour", (Field("day"),), "HOUR needs a time, not date"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(name, args, words):
    with pytest.raises(Unsupported) as caught:
        known(name, *args)
    assert words in str(caught.value)


def test_an_unknown_function_is_refused_with_the_nearest():
    with pytest.raises(Unsupported, check=about("function"), match=r"'uper'.*UPPER\(x\)"):
        function_named("uper")


@pytest.mark.parametrize(
    "bad", [1 << 63, Fraction(10) ** 309, datetime.fromisoformat("2024-01-01T00:00:00+00:00")]
)
def test_constants_that_engines_cannot_hold_are_refused(bad):
    with pytest.raises(SpecError):
        Literal(bad)


def written(expression):
    return write(expression, SCHEMA, exp.column).sql(dialect="duckdb")


def test_bounded_arithmetic_is_written_without_guards():
    sql = written(call("add", call("multiply", Field("age"), 2), 1))
    assert sql == "((age * CAST('2' AS BIGINT)) + CAST('1' AS BIGINT))"
    assert "CASE" not in written(call("divide", call("sqrt", Field("pay")), 3))


def test_a_chain_of_unbounded_arithmetic_has_one_guard():
    total = Field("any")
    for _ in range(20):
        total = call("add", call("multiply", total, Field("any")), Field("any"))
    assert written(total).count("ISFINITE") == 1


def test_an_expression_that_grows_without_end_is_refused():
    total = Field("any")
    for _ in range(20):
        total = call("exp", total)
    with pytest.raises(Unsupported, check=about("length")):
        written(total)


def test_quotes_in_constants_stay_inside():
    assert value(call("concat", "' OR 1=1 --", "\\")) == "' OR 1=1 --\\"


def test_a_huge_replacement_does_not_grow():
    text = Literal("a" * 5000)
    once = call("replace", text, "a", "a" * 16)
    assert len(value(call("replace", once, "a", "a" * 16))) == 4096 * 16


@pytest.mark.parametrize(("keys", "taken"), [(("a", "b"), "a"), ((1, 2, 3), 2), ((False, True), True)])  # fmt: skip
def test_nullif_keeps_every_key_but_the_constant_that_it_takes_away(keys, taken):
    kinds = {str: Kind.TEXT, int: Kind.INTEGER, bool: Kind.BOOLEAN}
    schema = {"x": Domain(kind=kinds[type(taken)], keys=keys)}
    found = domain_of(call("nullif", Field("x"), taken), schema)
    assert found.nullable
    assert set(found.keys) == {key for key in keys if value(call("nullif", key, taken)) is not None}
    other = domain_of(call("nullif", Field("x"), Field("x")), schema)
    assert other.keys == keys  # what it is compared with is not known
