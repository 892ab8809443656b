"""Any SQL, planned only: what it would measure moves by at most the claim. No noise, so it is quick."""

import json

from fuzz_sql import Sql
from fuzz_target import NoisegateError, Verdict, refused
from hard_worlds import opened, world
from sql_grammar import FIELDS, Grammar
from sql_oracle import marks_of, require_claims


class Claims(Sql):
    name, keeps_refusals = "claims", False  # those of "sql" are the same

    def make(self, random):
        name = random.choice(["tight", "tight-zcdp", "tight-rows", "tight-many"])
        tables = ("patients", "drugs", "codes") if name.endswith("rows") else tuple(FIELDS)
        terms = {"world": name, "seed": random.choice([0, 0, 0, 1]), "epsilon": 1}
        if random.random() < 0.1:
            terms["sample"] = random.choice(["1/2", "1/50", 0.9])
        terms |= random.choice(
            [
                {},
                {},
                {"rows_per_unit": 1},
                {"groups_per_unit": 1},
                {"rows_per_unit": 50, "groups_per_unit": 7},
            ]
        )
        return json.dumps(terms) + "\n" + Grammar(random, tables).any()

    def check(self, text):
        head, _, sql = text.partition("\n")
        terms = json.loads(head)
        asked = world(terms.pop("world"), terms.pop("seed"))
        gate, sampled = opened(asked.folder), terms.pop("sample", None)
        gate = gate if sampled is None else gate.sample(sampled)
        try:
            plan = gate.plan(sql, **terms)
        except NoisegateError as refusal:
            return refused(refusal)
        require_claims(gate, plan, asked)
        return Verdict(accepted=True, marks=marks_of(plan.expected.question))


TARGET = Claims()
