"""Any SQL, read and computed exactly: what DuckDB says about the same rows. No noise, so it is quick."""

import json

from fuzz_sql import Sql
from fuzz_target import NoisegateError, Verdict, refused
from hard_worlds import opened, world
from sql_grammar import FIELDS, Grammar
from sql_oracle import marks_of, meaning_of

from noisegate.sql.reading.reader import read


class Meaning(Sql):
    name, keeps_refusals = "meaning", False  # those of "sql" are the same

    def make(self, random):
        name = random.choice(["loose", "loose", "loose-rows"])
        tables = ("patients", "drugs", "codes") if name.endswith("rows") else tuple(FIELDS)
        terms = {"world": name, "seed": random.choice([0, 0, 0, 1])}
        return json.dumps(terms) + "\n" + Grammar(random, tables).any()

    def check(self, text):
        head, _, sql = text.partition("\n")
        terms = json.loads(head)
        asked = world(terms["world"], terms["seed"])
        tables = opened(asked.folder).tables
        try:
            question = read(sql, tables)
        except NoisegateError as refusal:
            return refused(refusal)
        if question.explain or not question.blocks or meaning_of(asked, sql, tables) is None:
            return Verdict(accepted=False, marks=("cannot be compared",))
        return Verdict(accepted=True, marks=marks_of(question))


TARGET = Meaning()
