"""Any SQL through the whole gate: refused before the charge, or answered as priced, meant and claimed."""

import json
import re

from fuzz_target import Finding, NoisegateError, Target, Verdict, refused, shorter_lists
from hard_worlds import KINDS, world
from sql_grammar import FIELDS, Grammar
from sql_oracle import marks_of, meaning_of, require_claims, short

from noisegate.errors import OverBudget
from noisegate.sql.question import Function
from noisegate.sql.reading.reader import read

ENOUGH = 0.999999999  # confidence of margins: 1e-9 false alarms for each number
COUNTS = {Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS, Function.COUNT_DISTINCT}


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
        terms = {"world": name, "seed": random.choice([0, 0, 0, 1])}
        if name.startswith("loose"):
            terms["epsilon"] = random.choice([300, 3000, 30_000]) if name == "loose" else 300
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
        if not plan.expected.question.explain:
            self.require_price(plan, answer)
        self.require_shown(answer)
        self.require_repeated(gate, answer)
        if plan.expected.question.explain:
            return Verdict(accepted=True, marks=("EXPLAIN",))
        self.require_claims(gate)
        if self.world.loose and self.sampled is None:
            self.require_meaning(answer)
        return Verdict(accepted=True, marks=marks_of(plan.expected.question))

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
                return Verdict(accepted=True, marks=("fails afterwards, as it says",))
            where = "after" if gate.ledger.head() != before else "before"
            raise Finding(f"planned, then refused {where} the charge", str(refusal)) from refusal

    def require_price(self, plan, answer):
        paid, planned = answer.cost, plan.price
        found_later = (
            any(bought.draft.keys for bought in plan.expected.bought) or "choose" in self.terms
        )
        if found_later and KINDS[self.place[0]][0] == "zcdp":
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
        require_claims(gate, gate.plan(self.sql, **self.terms), self.world)

    def require_meaning(self, answer):
        """What DuckDB says about the same rows."""
        compared = meaning_of(self.world, self.sql, GATES.of(*self.place).tables)
        if compared is not None:
            self.require_numbers(answer, *compared)

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


TARGET = Sql()
