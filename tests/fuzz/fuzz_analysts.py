"""Two analysts and one ledger: whoever asks pays, nobody else does, and their budgets hold together."""

import json
import warnings

from fuzz_target import PAID, Finding, NoisegateError, Target, Verdict, refused, shorter_lists
from hard_worlds import KINDS, world
from sql_grammar import FIELDS, Grammar

from noisegate import learners
from noisegate.errors import OverBudget

WHO = ("ana", "ben")
STEPS = {  # what is asked, of a gate for an ε
    "count": lambda gate, **terms: gate.sql("SELECT COUNT(*) FROM patients", **terms),
    "groups": lambda gate, **terms: gate.sql(
        "SELECT sex, SUM(age) AS a FROM patients GROUP BY sex", **terms
    ),
    "keys": lambda gate, **terms: gate.sql(
        "SELECT town, COUNT(*) AS n FROM patients GROUP BY town", **terms
    ),
    "sample": lambda gate, **terms: gate.sample("1/2").sql(
        "SELECT COUNT(*) FROM patients", **terms
    ),
    "histogram": lambda gate, **terms: gate.release(
        "histogram", table="patients", columns={"age": 20}, **terms
    ),
    "boxplot": lambda gate, **terms: gate.release(
        "boxplot", table="patients", columns={"weight": 10}, **terms
    ),
    "choice": lambda gate, **terms: gate.choose(
        "SELECT sex, COUNT(*) FROM patients GROUP BY sex", **terms
    ),
    "statistic": lambda gate, **terms: gate.statistic("age >= 65", table="patients", **terms),
    "scaler": lambda gate, fresh=False, **terms: learners.StandardScaler(**terms).fit(
        gate.matrix("patients", ["age", "weight"]), fresh=fresh
    ),
    "tree": lambda gate, fresh=False, **terms: learners.DecisionTreeClassifier(
        max_depth=2, **terms
    ).fit(gate.matrix("patients", ["age"], target="sex"), fresh=fresh),
}


class Analysts(Target):
    name = "analysts"

    def make(self, random):
        name = random.choice([*KINDS])
        tables = ("patients", "drugs", "codes") if name.endswith("rows") else tuple(FIELDS)
        steps = []
        for _ in range(random.randrange(2, 9)):
            what = random.choice([*STEPS, None]) or Grammar(random, tables).question()
            epsilon = random.choice(["0.1", "0.3", "0.9", "2", "0.001", "1/3"])
            steps.append([random.choice(WHO), what, epsilon, random.random() < 0.2])
        if random.random() < 0.5:  # the same once more, by either
            steps.append([random.choice(WHO), *random.choice(steps)[1:]])
        return json.dumps([name, random.choice([1, 3]), *steps])

    def check(self, text):
        name, budget, *steps = json.loads(text)
        gates = world(name).gates(WHO, budget)
        marks = [self.step(gates, *each) for each in steps]
        found = gates["ana"].ledger.verify()
        if not found.ok:
            raise Finding("the ledger does not verify", str(found.problems))
        return Verdict(accepted=any(paid for paid, _ in marks), marks=tuple({m for _, m in marks}))

    def step(self, gates, who, what, epsilon, fresh):
        """Ask, and compare all accounts with what they were."""
        gate, (other,) = gates[who], [gates[name] for name in WHO if name != who]
        root = gate._curator.account.partition("/")[0]
        before = balances(gate, other, root)
        ask = STEPS.get(what) or (lambda gate, **terms: gate.sql(what, **terms))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ask(gate, epsilon=epsilon, fresh=fresh)
        except NoisegateError as refusal:
            mark = refused(refusal).marks[0]
            after = balances(gate, other, root)
            if after != before and refusal.about not in PAID:
                raise Finding("a refused step is charged", f"{what}: {refusal}") from refusal
            if isinstance(refusal, OverBudget):
                mark = "OverBudget"
        else:
            mark, after = what if what in STEPS else "sql", balances(gate, other, root)
        mine, theirs, all_of_it = (now.charge - then.charge for now, then in zip(after, before))  # noqa: B905
        if theirs.amount or theirs.delta:
            raise Finding("another analyst is charged", f"{what}: {theirs}")
        if mine != all_of_it:
            raise Finding("the data set is charged otherwise", f"{what}: {mine}, {all_of_it}")
        if not all(now.charge <= now.limit for now in after):
            raise Finding("a budget is exceeded", f"{what}: {after}")
        return mine.amount > 0, mark

    def shorter(self, text):
        name, budget, *steps = json.loads(text)
        for fewer in shorter_lists(steps):
            yield json.dumps([name, budget, *fewer])


def balances(gate, other, root):
    names = (gate._curator.account, other._curator.account, root)
    return [gate.ledger.balance(name) for name in names]


TARGET = Analysts()
