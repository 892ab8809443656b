"""Any arguments for releases, choices, sessions and learners: refused before the charge, or a result.

A case is one Python call, in which ``gate`` is a gate of a hard world.
"""

import ast
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
from fuzz_target import PAID, Finding, NoisegateError, Target, Verdict, name_of, refused
from hard_worlds import world
from sql_grammar import Grammar

import noisegate as ng
from noisegate import learners

SQL = '"SELECT COUNT(*) FROM visits GROUP BY ward, BIN(cost, 100)"'
WARD = '"SELECT ward, COUNT(*) FROM visits GROUP BY ward"'
CALLS = [  # that are accepted, each a name and its arguments
    f'gate.release("histogram", {SQL}, epsilon=0.5)',
    'gate.release("histogram", table="patients", columns={"age": 10}, epsilon=0.5, method="tree", where="smoker")',
    'gate.release("table", table="visits", columns={"ward": None, "cost": [0, 10, 100]}, epsilon=1, workload="marginals")',
    'gate.release("histogram", table="patients", columns={"age": 1}, epsilon=1, workload=[{"age": (20, 39)}], rows_per_unit=1)',
    'gate.release("histogram", table="patients", columns={"age": 1}, epsilon=1, workload="prefixes", method="haar", groups_per_unit=1)',
    'gate.release("series", table="visits", columns={"day": "month"}, epsilon=1)',
    'gate.release("map", table="visits", columns={"cost": 100, "odd name": 1}, epsilon=1)',
    'gate.release("marginals", table="patients", columns={"sex": None, "region": None, "smoker": None}, epsilon=1)',
    'gate.release("cube", table="patients", columns={"sex": None, "region": None}, epsilon=1)',
    'gate.release("sparse", table="visits", columns={"visit_id": 1}, epsilon=1)',
    'gate.release("above", table="visits", columns={"ward": None}, epsilon=1, threshold=3)',
    'gate.release("boxplot", table="visits", columns={"cost": 10}, epsilon=1)',
    'gate.describe("visits", columns=["cost"], choose="bounds", epsilon=1)',
    'gate.release("cdf", table="patients", columns={"age": 1}, epsilon=1)',
    'gate.release_plan("synthetic", table="patients", columns=["age", "sex", "smoker"], epsilon=1, rows=100)',
    'gate.release_plan("questions", table="patients", workload=["SELECT COUNT(*) FROM patients WHERE age < 30"], epsilon=1)',
    'gate.release("crowd-histogram", table="patients", columns={"sex": None}, k=5, probability=0.1)',
    f'gate.release_plan("histogram", {SQL}, epsilon=0.5, method="mwem", rounds=3)',
    f'gate.release_plan("table", {SQL}, epsilon=0.5)',
    f"gate.choose({WARD}, epsilon=0.5)", f'gate.choose({WARD}, epsilon=0.5, k=2, method="noisy-max", gap=True, least=True)',
    f"gate.choose_plan({WARD}, epsilon=1, rows_per_unit=2, groups_per_unit=1)",
    f'gate.choose({WARD}, epsilon=0.5, prior={{"north": 3, "south": "1/2"}})',
    'gate.choose("SELECT SUM(CASE WHEN BIN(cost, 0.5) >= price THEN price END) FROM visits", candidates={"price": [1, 2.5], "w": [1, 2]}, prior="w", epsilon=1)',
    'gate.choose("SELECT COUNT(*) FILTER (WHERE at BETWEEN cost AND cost + 5) FROM visits", candidates={"at": (0, 90)}, epsilon=1)',
    'gate.auction("cost", prices=[1, 2.5, "10"], table="visits", epsilon=1, rows_per_unit=2)',
    'gate.choose_by_plan("programs/mean.py:mean", table="visits", columns=["cost"], candidates=["a", "b"], range=(0, 10), blocks=10, epsilon=1)',
    'gate.smooth("SELECT AVG(age) FROM patients", epsilon=1, trim=0.1, rows_per_unit=1)', 'gate.smooth_plan("SELECT AVG(age) FROM patients", epsilon=1, clip=10)',
    'gate.distance(columns=["age", "weight"], clusters=2, grid=4, radius=20, epsilon=1, table="patients")',
    'gate.many_plan({"age": 10, "sex": None}, table="patients", epsilon=1, questions=100, within=500, rows=2000)',
    'gate.many_plan({"age": 10}, table="patients", epsilon=1, questions=10, surprises=3, start=1, confidence=0.9, sure=True, rows=30)',
    'gate.apply_plan("programs/mean.py:mean", table="visits", columns=["cost"], range=(0, 10), blocks=10, epsilon=1, seconds=1, memory=100)',
    'gate.apply_plan(print, "SELECT cost FROM visits", range=(0, 10), rows=100, epsilon=1, aggregate="median", default=3, resample=2)',
    'gate.smooth("SELECT MEDIAN(age) FROM patients", epsilon=1, rows_per_unit=1)',
    'gate.smooth_plan("SELECT ward, QUANTILE_CONT(cost, 0.9) AS q FROM visits GROUP BY ward", epsilon=1, delta=1e-6, beta=0.1, bound=3)',
    'gate.distance(columns=["age", "weight"], centers=[(0, 0), (50, 50)], radius=20, epsilon=1, table="patients")',
    'gate.distance("SELECT COUNT(*) FILTER (WHERE age < 3) AS a, COUNT(*) FILTER (WHERE age > 90) AS b FROM patients", epsilon=1)',
    'gate.distance_plan(columns=["age", "weight"], label="smoker", separators=[([1, -2], 30)], epsilon=1, table="patients")',
    'gate.graph("prescriptions", source="visit_id", target="days", nodes=range(30)).edges(epsilon=1)',
    'gate.statistic(["age >= 65", "weight / 200"], table="patients", epsilon=1, where="smoker")',
    'gate.statistic("age", table="patients", tolerance=0.1, rows=100, confidence=0.9)',
    'gate.caps("visits", epsilon=0.1)', 'gate.bounds("visits", "visit_id", epsilon=0.1)', 'gate.sample("1/10").sql("SELECT COUNT(*) FROM visits", epsilon=0.1)',
    'gate.sql("SELECT COUNT(*) FROM visits", epsilon=0.1, confidence=0.9, delta=1e-9, rows_per_unit=2, groups_per_unit=1)',
    'gate.sql("SELECT COUNT(*) FROM visits", epsilon=1, choose="caps")', 'gate.plan("SELECT AVG(cost) FROM visits", relative=0.1, rows=100, fresh=True)',
    'gate.table("visits").where("cost > 5", ward=["north"]).group_by("ward").agg(n="COUNT(*)").order_by("n DESC").plan(epsilon=1)',
    'gate.matrix("patients", ["age", "weight"], target="sex", where="smoker", rows_per_unit=2)',
    'learners.KMeans(n_clusters=2, epsilon=1).fit(gate.matrix("patients", ["age", "weight"]))',
    'learners.LinearRegression(epsilon=1).fit(gate.matrix("patients", ["age"], target="weight"))',
    'learners.GaussianNB(epsilon=1).fit(gate.matrix("patients", ["age", "weight"], target="sex"))',
    'learners.LogisticRegression(epsilon=1).fit(gate.matrix("patients", ["age"], target="region"))',
    'learners.PCA(n_components=1, epsilon=1).fit(gate.matrix("patients", ["age", "weight"]))',
    'learners.DecisionTreeClassifier(epsilon=1, max_depth=2).fit(gate.matrix("patients", ["age"], target="sex"))',
    "learners.KMeans(n_clusters=2, epsilon=1, bounds=(0, 1), memory=ng.memory(3)).fit(np.array([[0.1, 0.2], [0.3, 0.4], [0.9, 0.9]]))",
    "learners.GaussianNB(epsilon=1, bounds=(0, 1), classes=[0, 1], memory=ng.memory(3)).fit(np.array([[0.1], [0.3], [0.9]]), [0, 1, 1])",
    'learners.StandardScaler(epsilon=1, bounds=(0, 2), memory=ng.memory(3, delta=1e-6, accountant="zcdp")).fit(np.array([[0.1, 0.2], [0.9, 0.9]]))',
    'ng.open(FRAME, table="t", epsilon=1, delta=1e-6, unit="id", rows_per_unit=2, columns={"x": {"between": [0, 1]}, "g": {"in": ["a", "b"]}}).sql("SELECT g, SUM(x) FROM t GROUP BY g", epsilon=0.5)',
    'ng.open(FRAME, table="t", epsilon=1, analyst="ana", share=0.5, snapshot="2", accountant="pure").sql("SELECT COUNT(*) FROM t", epsilon=0.5)',
    'ng.memory(1, delta=0.1, accountant="zcdp").average(np.array([0.5, 0.1]), bounds=(0, 1), epsilon=0.5)',
]  # fmt: skip
VALUES = [
    "None", "0", "-1", "1", "2", "0.5", "1.5", "float('nan')", "float('inf')", "-float('inf')", "10**400", "-10**40", "1 << 63", "1 << 31", "1e308", "5e-324", "''", "'x'", "'nan'", "'1/3'", "'1e400'", "b''", "True", "False", "[]", "{}", "()", "set()",
    "object()", "Fraction(1, 3)", "Decimal('nan')", "Decimal('0.1')", "np.int64(3)", "np.float64('nan')", "[None]", "[1, 'a']", "[[]]", "{'age': 5}", "{'age': None}", "{'age': 0}", "{'age': float('nan')}", "{'age': -1}",
    "{'age': [1]}", "{'age': []}", "{'age': [3, 1, 2]}", "{'age': 'month'}", "{'nope': 1}", "{1: 2}", "{'ward': 10}", "{'day': 'century'}", "{'cost': 1e-9}", "{'town': None}", "{'secret': None}", "['age']", "['nope']", "['age', 'age']", "'age'", "'nope'",
    "'visits'", "'drugs'", "'patients'", "'auto'", "'tree'", "'ranges'", "'SELECT 1'", "'SELECT COUNT(*) FROM visits'", "'age > '", "'smoker; DROP TABLE x'", "'a' * 100000", "'\\0'", "'\\ud800'", "lambda *a: 0", "print", "range(3)", "iter([1])", "1j", "(0, 0)", "(1, 0)",
    "(0, float('inf'))", "[(0, 1)] * 3", "10**6", "1e-320", "type", "...", "Path('x')", "date(2024, 1, 1)", "'pure'", "'zcdp'", "'renyi-2'", "'cells'", "'marginals'", "[{'age': (20, 39)}]", "[{'age': (39, 20)}]", "[{'nope': 1}]", "[{'age': 'x'}]", "frozenset({'age'})", "[0.5, 0.9]",
]  # fmt: skip
NAMES = ["histogram", "table", "map", "series", "marginals", "cube", "sparse", "above", "boxplot", "cdf", "describe", "synthetic", "questions", "crowd-histogram", "crowd-points", "identity", "tree", "haar", "fourier", "grids", "kdtree", "privtree", "dawa", "mwem", "sketch", "planned", "seasonal", "totals", "nope", ""]  # fmt: skip
EXTRA = ["epsilon", "fresh", "rows", "rows_per_unit", "groups_per_unit", "where", "table", "columns", "method", "workload", "nope", "progress", "confidence", "within", "rounds", "k", "threshold", "delta", "limit", "cells", "degree", "bounds", "sure", "start", "surprises", "questions", "evidence", "blocks", "seconds", "sql", "name", "random_state", "n_clusters", "max_depth", "constraints", "probability", "weights", "size"]  # fmt: skip
FRAME = {"id": [1, 1, 2, 3], "x": [0.5, 0.1, float("nan"), 7.0], "g": ["a", "b", "a", None]}


class Orders(Target):
    name = "orders"

    def make(self, random):
        tree = ast.parse(random.choice(CALLS), mode="eval")
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for _ in range(random.choice([0, 1, 1, 1, 1, 2, 3])):
            self.change(random, random.choice(calls))
        try:
            return f"# {random.choice(['tight', 'tight-zcdp', 'loose'])}\n{ast.unparse(tree)}"
        except ValueError:  # a keyword twice
            return self.make(random)

    def change(self, random, call):
        value = ast.parse(random.choice(VALUES), mode="eval").body
        places = [*range(len(call.args)), *call.keywords]
        way = random.random()
        if way < 0.12:
            said = {each.arg for each in call.keywords}
            call.keywords.append(
                ast.keyword(random.choice([e for e in EXTRA if e not in said]), value)
            )
        elif way < 0.2 and places:
            place = random.choice(places)
            (call.args.pop if isinstance(place, int) else call.keywords.remove)(place)
        elif (
            way < 0.27
            and call.args
            and isinstance(call.func, ast.Attribute)
            and "release" in call.func.attr
        ):
            call.args[0] = ast.Constant(random.choice(NAMES))
        elif places:
            place = random.choice(places)
            sql = (
                isinstance(place, int)
                and isinstance(call.args[place], ast.Constant)
                and " FROM " in str(call.args[place].value)
            )
            if sql and random.random() < 0.6:
                value = ast.Constant(Grammar(random).any())
            if isinstance(place, int):
                call.args[place] = value
            else:
                place.value = value

    def check(self, text):
        head, _, call = text.partition("\n")
        name = head.removeprefix("# ")
        gate = self.gate_of(name)
        before, spent = gate.ledger.head(), gate.spent
        known = {
            "gate": gate,
            "ng": ng,
            "np": np,
            "learners": learners,
            "Fraction": Fraction,
            "Decimal": Decimal,
            "Path": Path,
            "FRAME": frame(),
            "date": __import__("datetime").date,
        }
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = eval(call, known)
                if hasattr(result, "__enter__"):
                    with result:
                        pass
                str(result), repr(result)
        except NoisegateError as refusal:
            if gate.spent != spent and refusal.about not in PAID:
                raise Finding(
                    f"a refused order is charged: {name_of(refusal)}", str(refusal)
                ) from refusal
            return refused(refusal)
        except (TypeError, ValueError) as error:
            if name_of(error).endswith(" in "):
                return Verdict(accepted=False, marks=("no call",))
            if gate.ledger.head() == before and (is_about_arguments(error) or "learners." in call):
                return Verdict(
                    accepted=False, marks=(type(error).__name__,)
                )  # as scikit-learn has it
            raise
        if "plan(" in call.partition("(")[0] + "(" and gate.ledger.head() != before:
            raise Finding("a plan is charged")
        return Verdict(accepted=True, marks=(f"{call.partition('(')[0]} {type(result).__name__}",))

    def gate_of(self, name):
        gate, asked = KEPT.get(name, (None, 99))
        if asked > 30:
            gate, asked = world(name).gate(), 0
        KEPT[name] = gate, asked + 1
        return gate

    def shorter(self, text):
        head, _, call = text.partition("\n")
        try:
            tree = ast.parse(call, mode="eval")
        except SyntaxError:
            return
        for place, node in enumerate(ast.walk(tree)):
            parts = (
                getattr(node, "keywords", None)
                or getattr(node, "elts", None)
                or getattr(node, "args", None)
            )
            if not isinstance(parts, list):
                continue
            for at in range(len(parts)):
                other = ast.parse(call, mode="eval")
                twin = next(each for n, each in enumerate(ast.walk(other)) if n == place)
                del (getattr(twin, "keywords", None) or getattr(twin, "elts", None) or twin.args)[
                    at
                ]
                yield head + "\n" + ast.unparse(other)


KEPT = {}


def is_about_arguments(error):
    """Whether Python itself refused the call: a name or a number of arguments that is not there."""
    words = str(error)
    return "argument" in words and (
        "unexpected keyword" in words
        or "required" in words
        or "positional" in words
        or "multiple values" in words
    )


def frame():
    import pyarrow as pa

    return pa.table(FRAME)


TARGET = Orders()
