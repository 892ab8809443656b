# ruff: noqa: DTZ001 - times in policies have no zone
"""Damaged and made-up policies: read as stated, or refused as a policy."""

import copy
import json
import shutil
import tempfile
import tomllib
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path

from fuzz_target import Finding, NoisegateError, Target, Verdict, refused, shorter_lists

from noisegate.errors import PolicyError
from noisegate.root import check_policy, open_policy, policy_page
from noisegate.sources.policy.form import schema
from noisegate.sources.policy.policy import read_policy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "clinic.toml"
VALUES = [
    0, 1, -1, 2, 3, 1 << 40, 1 << 63, 1 << 64, -(1 << 63), 10**30, Decimal("0.1"), Decimal("1e-7"), Decimal("1e-400"), Decimal("1e400"), Decimal("nan"),
    Decimal("inf"), Decimal("-0"), True, False, "", " ", "patient_id", "visits", "patients", "drugs.drug", "visit_id -> visits.visit_id", "é", "a\nb", "\0",
    "../x", "clinic", "http://127.0.0.1:9/x.csv", "postgresql://", "pure", "zcdp", "renyi-2", "renyi-1", "renyi-999999999999", "x" * 300, "noisegate_0", "integer", "number", "text", "boolean", "date",
    "timestamp", [], [0, 120], [120, 0], [0, 0], ["a", "a"], ["north", 1], [1, True], [Decimal("0.5"), 2], [date(2024, 1, 1), date(2023, 1, 1)], [date(1, 1, 1), date(9999, 12, 31)], {}, {"epsilon": 1},
    {"column": "patient_id", "via": []}, {"column": "patient_id", "via": ["visit_id -> visits.visit_id"] * 3}, {"in": ["f"]}, {"between": [0, 1]}, {"hidden": True}, date(2024, 2, 29), datetime(2024, 1, 1, 12), [[1]], [0, 1 << 62], ["f", "m", None],
]  # fmt: skip


@cache
def keys():
    """All keys that a policy can have."""
    found, rest = set(), [schema()]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            found |= set(node.get("properties", {}))
            rest += node.values()
        elif isinstance(node, list):
            rest += node
    return sorted(found)


def toml_of(value):
    """A value as TOML writes it inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml_of(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        text = str(value).lower().replace("infinity", "inf")
        return text if not value.is_finite() or "." in text or "e" in text else f"{text}.0"
    return json.dumps(value)


def whole_toml(terms):
    return "".join(f"{json.dumps(key)} = {toml_of(value)}\n" for key, value in terms.items())


def places_in(terms, path=()):
    """The paths of all values."""
    yield path
    inner = (
        terms.items()
        if isinstance(terms, dict)
        else enumerate(terms)
        if isinstance(terms, list)
        else ()
    )
    for key, value in inner:
        yield from places_in(value, (*path, key))


def at(terms, path):
    for key in path:
        terms = terms[key]
    return terms


class Policies(Target):
    name, suffix = "policies", ".toml"

    def make(self, random):
        text = EXAMPLE.read_text()
        if random.random() < 0.25:
            return self.changed_text(random, text)
        terms = tomllib.loads(text, parse_float=Decimal)
        if random.random() < 0.6:  # few tables are mostly read further
            for name in random.sample(
                ["prescriptions", "visits", "patients"], random.choice([1, 2])
            ):
                terms["tables"].pop(name)
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            self.change(random, terms)
        return whole_toml(terms)

    def change(self, random, terms):
        paths = [path for path in places_in(terms) if path]
        *rest, last = random.choice(paths)
        inside, how = at(terms, rest), random.randrange(5)
        if how == 0:
            del inside[last]
        elif how == 1:
            inside[last] = copy.deepcopy(at(terms, random.choice(paths)))
        elif how == 2 and isinstance(inside, dict):
            inside[random.choice([*keys(), "é", "", "a.b", last.upper()])] = inside.pop(last)
        elif how == 3 and isinstance(inside, dict):
            inside[random.choice(keys())] = copy.deepcopy(random.choice(VALUES[:-1]))
        else:
            inside[last] = copy.deepcopy(random.choice(VALUES[:-1]))

    def changed_text(self, random, text):
        place, size = random.randrange(len(text)), random.choice([0, 1, 1, 5, 50])
        put = random.choice(
            [
                "",
                "\0",
                '"',
                "'",
                "=",
                "[",
                "]",
                "{",
                "\n",
                "\ufeff",
                "# ",
                "[tables]\n",
                "é",
                "1e999999999",
                "0x1f",
                "[" * 500,
                '"""',
                "inf",
                "9" * 5000,
            ]
        )
        return text[:place] + put + text[place + size :]

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "clinic.toml"
            shutil.copytree(EXAMPLE.parent / "clinic", Path(folder) / "clinic")
            file.write_text(text, encoding="utf-8", errors="surrogatepass")
            try:
                policy = read_policy(file)
            except PolicyError as refusal:
                return refused(refusal)
            policy_page(file)
            try:
                check_policy(file)
                practice = open_policy(policy, practice=True)
                gate = open_policy(
                    policy, ledger=":memory:", analyst=next(iter(policy.analysts), None)
                )
            except NoisegateError as refusal:
                return refused(refusal)
            repr(gate), repr(practice)
            self.require_promise(gate, tomllib.loads(text, parse_float=Decimal))
        return Verdict(accepted=True, marks=("opened",))

    def require_promise(self, gate, stated):
        """Nothing is weaker than it is written."""
        budget = stated["budget"]
        root = gate.ledger.balance(stated["name"])
        told = Fraction(budget["epsilon"]), Fraction(budget.get("delta", 0))
        if (root.budget.epsilon, root.budget.delta) != told or root.accountant != budget.get(
            "accountant", "pure"
        ):
            raise Finding("another budget than stated", f"{root} is not {told}")
        for name, table in gate.tables.items():
            said = stated["tables"][name]
            if table.is_public != (said.get("public") is True):
                raise Finding("a table is public that was not said to be", name)
            if table.is_public:
                continue
            unit = said.get("unit")
            column = unit["column"] if isinstance(unit, dict) else unit
            if table.unit.column != column or table.rows_per_unit_max != said.get("rows_per_unit"):
                raise Finding("another unit or cap than stated", name)
            for each, facts in said.get("columns", {}).items():
                if facts.get("hidden") and not table.columns[each].hidden:
                    raise Finding("a hidden column is shown", each)
        most = stated.get("questions", {}).get("max_epsilon")
        if most is not None:
            self.require_most(gate, Fraction(most))

    def require_most(self, gate, most):
        private = next(name for name, table in gate.tables.items() if not table.is_public)
        try:
            gate.sql(f'SELECT COUNT(*) FROM "{private}"', epsilon=most * 2)
        except NoisegateError:
            return
        raise Finding("a question may cost more than stated")

    def shorter(self, text):
        for fewer in shorter_lists(text.splitlines(keepends=True)):
            yield "".join(fewer)
        try:
            terms = tomllib.loads(text, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            return
        for path in [path for path in places_in(terms) if path]:
            other = copy.deepcopy(terms)
            del at(other, path[:-1])[path[-1]]
            yield whole_toml(other)


TARGET = Policies()
