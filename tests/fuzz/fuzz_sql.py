"""Any SQL through the whole gate: refused before the charge, or answered as priced, meant and claimed."""

import json
import re
from collections import Counter
from contextlib import contextmanager
from functools import cache
from math import isfinite

import duckdb
from fuzz_target import Finding, NoisegateError, Target, Verdict, refused, shorter_lists
from hard_worlds import KINDS, world
from reading_oracle import OWNERS, exact_answer, same_rows
from sql_grammar import FIELDS, Grammar
from test_sensitivity import collected, require_claim

from noisegate.errors import OverBudget
from noisegate.query.question import Function
from noisegate.query.reading.reader import read

ENOUGH = 0.999999999  # confidence of margins: 1e-9 false alarms for each number
LIMITED = re.compile(r"\b(LIMIT|OFFSET|OVER|QUALIFY|SAMPLE|TABLESAMPLE|ANY_VALUE|MODE|FIRST|LAST|ARG_\w+|ARRAY_AGG|LIST|STRING_AGG|GROUP_CONCAT|APPROX\w*|TOP|COUNT_?IF)\b", re.IGNORECASE)  # fmt: skip
COUNTS = {Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS, Function.COUNT_DISTINCT}
OWNERS |= {
    "patients": "SELECT * REPLACE (income::DOUBLE AS income), patient_id AS _owner FROM patients",
    "prescriptions": "SELECT r.*, v.patient_id AS _owner FROM prescriptions r JOIN visits v USING (visit_id)",
}


class Gates:
    """A gate of each world, opened anew where its budget or its log is used up."""

    def __init__(self):
        self._open = {}

    def of(self, name, seed):
        gate, asked = self._open.get((name, seed), (None, 0))
        if gate is None or asked >= 25:
            gate, asked = world(name, seed).gate("ana" if asked % 2 else "ben"), 0
        self._open[name, seed] = gate, asked
        return gate

    def paid(self, name, seed):
        gate, asked = self._open[name, seed]
        self._open[name, seed] = gate, asked + 1


GATES = Gates()


class Sql(Target):
    name, suffix = "sql", ".sql"

    def make(self, random):
        name = random.choice([*KINDS, "loose", "tight-zcdp"])
        tables = ("patients", "drugs", "codes") if name.endswith("rows") else tuple(FIELDS)
        terms = {"world": name, "seed": random.choice([0, 0, 0, 1, 2, 3])}
        if name.startswith("loose"):
            terms["epsilon"] = 300 if name.endswith("rows") else random.choice([300, 3000, 30_000])
        else:
            terms |= random.choice([{"epsilon": 0.5}] * 12 + [
                {"epsilon": "1/1000"}, {"within": 50}, {"relative": 0.2}, {"epsilon": 1, "rows_per_unit": 1},
                {"epsilon": 1, "groups_per_unit": 3, "rows_per_unit": 10}, {"epsilon": 1, "choose": ["bounds", "caps"]}, {"epsilon": 1, "delta": 0},
                {"epsilon": 5, "choose": "bounds"}, {"within": 20, "rows": 100, "confidence": 0.9}, {}, {"sample": 0.5, "epsilon": 1},
            ])  # fmt: skip
        return json.dumps(terms) + "\n" + Grammar(random, tables).any()

    def check(self, text):
        head, _, sql = text.partition("\n")
        return Asking(sql, **json.loads(head)).verdict()

    def shorter(self, text):
        head, _, sql = text.partition("\n")
        tokens = re.findall(r"\s+|\w+|'[^']*'|\"[^\"]*\"|.", sql, re.DOTALL)
        for fewer in shorter_lists(tokens):
            yield head + "\n" + "".join(fewer)


class Asking:
    """One question, asked in all ways that must agree."""

    def __init__(self, sql, *, world, seed, sample=None, **terms):
        self.sql, self.place, self.terms, self.sampled = sql, (world, seed), terms, sample

    def verdict(self):
        self.world, root = world(*self.place), GATES.of(*self.place)
        gate = root if self.sampled is None else root.sample(self.sampled)
        before = gate.ledger.head()
        try:
            plan = gate.plan(self.sql, **self.terms)
            str(plan), plan.to_dict(), plan._repr_html_()
        except NoisegateError as refusal:
            return self.refused_too(gate, before, refusal)
        if gate.ledger.head() != before:
            raise Finding("a plan writes to the ledger")
        answer = self.asked(gate, plan, before)
        if isinstance(answer, Verdict):
            return answer
        GATES.paid(*self.place)
        if not plan.question.explain:
            self.require_price(plan, answer)
        self.require_shown(answer)
        self.require_repeated(gate, answer)
        if plan.question.explain:
            return Verdict(accepted=True, mark="EXPLAIN")
        if self.sampled is None:
            self.require_claims(gate)
        if self.world.loose and not LIMITED.search(self.sql):
            self.require_meaning(answer)
        return Verdict(accepted=True, mark=mark_of(plan.question))

    def refused_too(self, gate, before, refusal):
        """What the plan refuses is refused when asked, and costs nothing."""
        try:
            gate.sql(self.sql, **self.terms)
        except NoisegateError as other:
            if type(other) is not type(refusal):
                raise Finding(
                    "plan and question are refused otherwise", f"{refusal} / {other}"
                ) from other
        else:
            raise Finding("the plan is refused, the question is not", str(refusal))
        if gate.ledger.head() != before:
            raise Finding("a refusal is charged", str(refusal))
        return refused(refusal)

    def asked(self, gate, plan, before):
        try:
            return gate.sql(self.sql, **self.terms)
        except OverBudget as refusal:
            if plan.fits:
                raise Finding("refused though the plan fits", str(refusal)) from refusal
            if gate.ledger.head() != before:
                raise Finding("a refusal is charged", str(refusal)) from refusal
            return refused(refusal)
        except NoisegateError as refusal:
            if "paid for" in str(
                refusal
            ):  # free SQL that fails over noisy numbers, a look that saw nothing
                return Verdict(accepted=True, mark="fails afterwards, as it says")
            where = "after" if gate.ledger.head() != before else "before"
            raise Finding(f"planned, then refused {where} the charge", str(refusal)) from refusal

    def require_price(self, plan, answer):
        paid, planned = answer.cost, plan.price
        found_later = any(bought.draft.keys for bought in plan.bought) or "choose" in self.terms
        if (found_later and "zcdp" in self.place[0]) or self.place[0] == "tight-rows":
            return  # less was measured: another point of the curve of ε and δ
        exact = paid.epsilon == planned.epsilon and paid.delta == planned.delta
        if not exact and not (
            found_later and paid.epsilon <= planned.epsilon and paid.delta <= planned.delta
        ):
            raise Finding("charged otherwise than planned", f"{paid} for {planned}")

    def require_shown(self, answer):
        json.loads(answer.to_json())
        (
            answer.to_arrow(0.95),
            str(answer),
            repr(answer),
            answer.to_csv(),
            answer._repr_html_(),
            answer.promise,
        )
        if answer.questions:
            answer.card().to_markdown()

    def require_repeated(self, gate, answer):
        head = gate.ledger.head()
        again = gate.sql(self.sql, **self.terms)
        if again.cost.epsilon or again.cost.delta or gate.ledger.head() != head:
            raise Finding("the same question is charged again", str(again.cost))
        if not again.table.equals(answer.table) and repr(again.rows) != repr(answer.rows):
            raise Finding("the same question has another answer")

    def require_claims(self, gate):
        """Without a unit, exact numbers move by at most the claim."""
        plan, source = gate.plan(self.sql, **self.terms), gate._curator._source
        queries = [
            q
            for bought in plan.bought
            for q in [*bought.draft.keys, *(p.query for p in bought.draft.parts)]
        ]
        for query in queries:
            here = collected(source, query)
            for other in self.world.neighbours[: 1 + len(self.sql) % 2]:
                there = collected(other, query)
                try:
                    require_claim(query, None, here, there)
                except AssertionError as error:
                    raise Finding("SENSITIVITY above the claim", repr(query.tally)) from error

    def require_meaning(self, answer):
        """What DuckDB says about the same rows, by the reading of the SQL and by its answer."""
        with engine_of(self.world) as con:
            try:
                result = con.execute(plain(self.sql))
                names, expected = [each[0] for each in result.description], result.fetchall()
            except (duckdb.Error, UnicodeError, OverflowError):
                return  # a cast that fails, an overflow: NULL here
            if not all(map(is_plain, expected)):
                return
            tables = GATES.of(*self.place).tables
            try:
                _, meant = exact_answer(con, self.sql, tables)
            except duckdb.Error as error:
                raise Finding("what was read cannot be run", str(error)) from error
        if not same_rows(meant, expected) and rounded(meant) != rounded(expected):
            raise Finding("read otherwise than DuckDB does", f"{meant} is not {expected}")
        self.require_numbers(answer, names, expected)

    def require_numbers(self, answer, names, expected):
        """Numbers are within their margins, group by group."""
        question = read(self.sql, GATES.of(*self.place).tables)
        if question.picked is None or len(question.blocks) != 1:
            return
        (block,) = question.blocks
        kinds = {each.name: each.function for each in block.aggregates}
        keys = {key.name: key for key in block.by}
        places = [i for i, name in enumerate(question.picked) if name in keys]
        if len({question.picked[i] for i in places}) < len(keys) or len(block.sets) > 1:
            return
        widths = list(answer.half_widths(ENOUGH))
        found = {tuple(short(row[i]) for i in places): n for n, row in enumerate(answer.rows)}
        open_keys = any(key.domain.keys is None for key in block.by)
        for row in expected:
            n = found.get(tuple(short(row[i]) for i in places))
            if n is None and not open_keys:
                raise Finding("a group is missing", f"{row} of {expected} in {answer.rows}")
            for i, name in enumerate(question.picked):
                if (
                    n is None
                    or kinds.get(name) not in {*COUNTS, Function.SUM, Function.AVG}
                    or row[i] is None
                ):
                    continue
                ours, width = answer.rows[n][i], widths[i] and widths[i][n]
                if (
                    width is not None
                    and not abs(float(ours) - float(row[i]))
                    <= width * 1.01 + abs(float(row[i])) * 1e-3 + 1e-2
                ):
                    raise Finding(
                        "a number is further off than its margin",
                        f"{ours} ± {width} is not {row[i]} ({names[i]})",
                    )


def mark_of(question):
    """What an accepted question is made of."""
    words = {"outer" if question.picked is None else "picked"}
    for block in question.blocks:
        words |= {each.function.name for each in block.aggregates}
        words |= set(
            re.findall(
                r"\b(Filter|Join|Matching|PerUnit|Project|Union|LEFT|Call\('\w+')",
                repr(block.relation),
            )
        )
        words |= {"sets"} if len(block.sets) > 1 else set()
        words |= {"open" if key.domain.keys is None else "keys" for key in block.by}
    return " ".join(sorted(words))


@contextmanager
def engine_of(world):
    """DuckDB with the raw rows, which divides by zero as we do."""
    with connection_of(world.name, world.folder.name).cursor() as con:
        yield con


@cache
def connection_of(name, folder):
    con = duckdb.connect(config={"threads": 1, "python_enable_replacements": "false", "enable_external_access": "false", "error_on_division_by_zero": "false"})  # fmt: skip
    seed = int(folder.split("-")[-2])
    for table, frame in world(name, seed).frames.items():
        con.register("raw", frame)
        con.execute(f"CREATE TABLE {table} AS SELECT * FROM raw")
        con.unregister("raw")
    return con


def plain(sql):
    return re.sub(
        r"WITH\s+DIFFERENTIAL_PRIVACY\s+OPTIONS\s*\([^)]*\)", "", sql, flags=re.IGNORECASE
    )


def is_plain(row):
    """Whether nothing in it is NaN, infinite or nested."""
    return all(
        isfinite(v) if isinstance(v, float) else not isinstance(v, list | dict | tuple) for v in row
    )


def short(value):
    """A value as text, numbers to six digits."""
    if isinstance(value, bool) or value is None:
        return str(value)
    try:
        return f"{float(value) + 0.0:.6g}"
    except (TypeError, ValueError, OverflowError):
        return str(value).removesuffix(" 00:00:00")


def rounded(rows):
    """Rows as a bag, whatever the last digits of their numbers are."""
    return Counter(tuple(map(short, row)) for row in rows)


TARGET = Sql()
