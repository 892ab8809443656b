"""Random SQL: a wide grammar over the hard tables, and mutations of SQL that people wrote."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIELDS = {  # by kind; names as SQL writes them
    "patients": {
        "whole": ["patient_id", "birth_year", "age"], "number": ["weight", "income"],
        "text": ["name", "sex", "region", "town"], "date": ["born"], "truth": ["smoker"], "time": [],
    },
    "visits": {
        "whole": ["visit_id", "patient_id", '"odd name"'], "number": ["cost"], "text": ["ward", "code"],
        "date": ["day"], "truth": ['"select"'], "time": ["seen"],
    },
    "prescriptions": {
        "whole": ["visit_id", "days"], "number": ["dose"], "text": ["drug"], "date": [], "truth": [], "time": [],
    },
    "drugs": {"whole": ["price"], "number": [], "text": ["drug", "class"], "date": [], "truth": [], "time": []},
    "codes": {"whole": [], "number": [], "text": ["code", "chapter"], "date": [], "truth": [], "time": []},
}  # fmt: skip
LITERALS = {
    "whole": ["0", "1", "-1", "2", "7", "10", "51", "1_000", "9223372036854775807", "-9223372036854775808",
              "9223372036854775808", "170141183460469231731687303715884105728", "4611686018427387904"],
    "number": ["0.0", "0.5", "-2.5", "1e2", "1e308", "1e-300", "1e999", ".1", "12.35", "0.1", "1e-20", "70.5"],
    "text": ["'north'", "'A1'", "''", "'%'", "'a''b'", "'é'", "'12'", "'1e999'", "'2020-02-30'", "'m'", "'Lund'"],
    "date": ["DATE '2024-01-01'", "DATE '1969-12-31'", "'2025-06-30'", "DATE '0001-01-01'", "DATE '9999-12-31'"],
    "time": ["TIMESTAMP '2024-06-06 06:06:06'", "'2024-01-01 00:00:00'"],
    "truth": ["TRUE", "FALSE"],
}  # fmt: skip
FORMS = {  # {w} whole, {n} number (or whole), {t} text, {d} date, {m} moment, {b} truth, {lit} small literal
    "whole": [
        "{w} + {w}", "{w} - {w}", "{w} * {w}", "{w} // {w}", "{w} % {w}", "-{w}", "ABS({w})", "SIGN({n})", "LENGTH({t})",
        "YEAR({d})", "EXTRACT(month FROM {d})", "EXTRACT(dow FROM {d})", "DAYOFYEAR({d})", "WEEK({d})", "QUARTER({d})",
        "EXTRACT(hour FROM {m})", "DATE_DIFF('day', {d}, {d})", "DATE_DIFF('month', {d}, {d})", "{d} - {d}",
        "CAST({n} AS INTEGER)", "CAST({t} AS BIGINT)", "CAST({b} AS INTEGER)", "POSITION({tl} IN {t})", "LEAST({w}, {w})",
        "GREATEST({w}, {w}, {w})", "COALESCE({w}, {w})", "NULLIF({w}, {w})", "CASE WHEN {b} THEN {w} ELSE {w} END",
        "CASE {t} WHEN {tl} THEN {w} WHEN {tl} THEN {w} END", "IF({b}, {w}, {w})", "LEAST(GREATEST({w}, 0), 9)", "MOD({w}, 5)",
        "BIN({w}, 10)", "FLOOR({n})", "ROUND({n})", "TRUNC({n})", "CEIL({n})", "WIDTH_BUCKET({n}, 0, 100, 5)", "TRY_CAST({t} AS INT)",
        "STRLEN({t})", "EPOCH_MS({d})", "SECOND({m})", "DATE_DIFF('minute', {m}, {m})",
    ],
    "number": [
        "{n} + {n}", "{n} - {n}", "{n} * {n}", "{n} / {n}", "-{n}", "ABS({n})", "ROUND({n}, 1)", "ROUND({n}, {lit})", "SQRT({n})", "LN({n})",
        "LOG10({n})", "LOG({n})", "EXP({n})", "POWER({n}, {lit})", "FLOOR({n} / 10) * 10", "{n} % {n}", "CAST({w} AS DOUBLE)",
        "CAST({n} AS DECIMAL(10, 1))", "CAST({t} AS DOUBLE)", "LEAST({n}, 500)", "GREATEST({n}, {n})", "COALESCE({n}, 0)",
        "CASE WHEN {b} THEN {n} END", "CASE WHEN {b} THEN {n} WHEN {b} THEN {w} ELSE 0.5 END", "NULLIF({n}, 0)", "BIN({n}, 2.5, 1)",
        "LEAST(GREATEST({n}, -10), 100)", "{n} ** 2", "{n} ^ 2", "LOG2({n})", "AVG({n})", "{n}::DOUBLE", "MOD({n}, 7)", "{n} // {n}", "EPOCH({m})",
    ],
    "text": [
        "LOWER({t})", "UPPER({t})", "TRIM({t})", "LTRIM({t})", "RTRIM({t})", "SUBSTRING({t}, {lit}, {lit})", "LEFT({t}, {lit})",
        "RIGHT({t}, 2)", "REPLACE({t}, {tl}, {tl})", "{t} || {t}", "CONCAT({t}, '-', {w})", "CAST({n} AS VARCHAR)", "CAST({d} AS VARCHAR)",
        "CAST({b} AS VARCHAR)", "COALESCE({t}, 'none')", "CASE WHEN {b} THEN 'old' ELSE 'young' END", "NULLIF({t}, {tl})", "{w} || {t}",
        "CASE WHEN {b} THEN {t} WHEN {b} THEN 'x' END", "IFNULL({t}, '?')", "SUBSTR({t}, {lit})", "LEAST({t}, {t})", "CAST({m} AS VARCHAR)", "SPLIT_PART({t}, {tl}, {lit})", "LPAD({t}, 4, '0')", "RPAD({t}, {lit}, 'xy')", "REVERSE({t})", "REPEAT({t}, 2)",
        "REGEXP_EXTRACT({t}, '[a-z]+')", "REGEXP_REPLACE({t}, '[aeiou]', '-', 'g')", "STRFTIME({d}, '%Y-%m')", "STRFTIME({m}, '%H:%M')",
    ],
    "date": [
        "DATE_TRUNC('month', {d})", "DATE_TRUNC('week', {d})", "{d} + {lit}", "{d} + INTERVAL 7 DAY", "{d} - INTERVAL '2 weeks'", "MAKE_DATE({w}, 1, 31)",
        "CAST({t} AS DATE)", "CAST({m} AS DATE)", "COALESCE({d}, DATE '2024-01-01')", "CASE WHEN {b} THEN {d} END", "DATE_TRUNC('year', {d})",
        "{d} + INTERVAL 1 MONTH", "LEAST({d}, {d})", "{d} + INTERVAL ({w}) DAY", "DATE_ADD({d}, INTERVAL 1 DAY)", "{d} - INTERVAL 1 YEAR",
    ],
    "time": ["CAST({d} AS TIMESTAMP)", "DATE_TRUNC('hour', {m})", "DATE_TRUNC('minute', {m})", "{m} + INTERVAL 3 HOUR", "{m} + INTERVAL 1 DAY", "CAST({t} AS TIMESTAMP)"],
    "truth": [
        "{n} = {n}", "{n} <> {n}", "{w} < {w}", "{n} <= {lit}", "{n} > {n}", "{w} >= {lit}", "{t} = {tl}", "{t} <> {t}", "{d} < {d}", "{t} < {tl}",
        "{n} BETWEEN {n} AND {n}", "{w} NOT BETWEEN {lit} AND 60", "{w} IN (1, 51, {w})", "{t} IN ({tl}, {tl})", "{t} NOT IN ({tl}, NULL)",
        "{b} AND {b}", "{b} OR {b}", "NOT {b}", "{x} IS NULL", "{x} IS NOT NULL", "{b} IS TRUE", "{b} IS NOT FALSE", "{t} LIKE 'a%'",
        "{t} NOT LIKE '%e_'", "{t} ILIKE '%A%'", "STARTS_WITH({t}, {tl})", "CONTAINS({t}, {tl})", "{t} IS DISTINCT FROM {tl}", "{n} IS NOT DISTINCT FROM {n}",
        "{b} = {b}", "{n} = {t}", "{m} > {d}", "CAST({w} AS BOOLEAN)", "CASE WHEN {b} THEN {b} ELSE {b} END", "{t} LIKE '%!%' ESCAPE '!'", "{w} IS NULL = {b}",
        "{w} = ANY ([1, 2])", "REGEXP_MATCHES({t}, '.*')", "{t} ~ '^[a-m]'", "{t} SIMILAR TO 'n.*'", "{b} <> {b}", "({w}, {t}) = ({w}, {tl})", "{n} = {w}", "({b}) IS NULL", "{b} > FALSE",
    ],
}  # fmt: skip
KINDS = {"w": "whole", "t": "text", "d": "date", "m": "time", "b": "truth"}
AGGREGATES = [
    "COUNT(*)", "COUNT(*)", "COUNT({x})", "COUNT(DISTINCT {x})", "COUNT(DISTINCT {u}patient_id)", "SUM({n})", "SUM({w})", "AVG({n})", "AVG({w})", "VAR_SAMP({n})",
    "STDDEV_POP({n})", "STDDEV({n})", "MEDIAN({n})", "QUANTILE_CONT({n}, 0.9)", "MIN({n})", "MAX({w})", "CORR({n}, {n})", "COVAR_POP({n}, {w})", "COUNT_IF({b})",
    "SUM(CASE WHEN {b} THEN {n} END)", "SUM({n} * {n})", "AVG(LEAST(GREATEST({n}, 0), 100))", "SUM(LEAST(GREATEST({n}, -5), 10))", "SUM({w} + 0.5)", "VARIANCE({w})",
]  # fmt: skip
RARE = [  # mostly refused
    "MIN({d})", "MAX({t})", "SUM({b})", "SUM(DISTINCT {w})", "BOOL_OR({b})", "STRING_AGG({t}, ',')", "MODE({t})", "APPROX_COUNT_DISTINCT({x})", "ANY_VALUE({x})", "ARRAY_AGG({x})", "SUM(1)",
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {n})", "SUM(-1)", "COUNT(1)", "COUNT(NULL)", "ARG_MAX({t}, {n})", "KURTOSIS({n})", "PRODUCT({n})", "MEDIAN({d})", "QUANTILE_CONT({n}, [0.1, 0.9])",
    "MEAN({n})", "SUM(ALL {n})", "MAX({b})", "AVG({b})", "AVG({d})", "COUNT(DISTINCT ({w}, {t}))", "COUNT(DISTINCT {u}*)", "COUNT()", "SUM(NULL)", "AVG(1e308 * {w})", "MIN({n}, 2)", "MAD({n})", "FIRST({x})",
    "SUM({n}) WITHIN GROUP (ORDER BY {x})", "COUNT(*) FILTER (WHERE COUNT(*) > 1)", "SUM(COUNT(*))", "GROUPING({x})", "QUANTILE_CONT({n}, 2)", "QUANTILE_DISC({n}, 0.5)", "SUM({n} ORDER BY {x})", "COUNT(DISTINCT 1)",
]  # fmt: skip
SOURCES = [  # FROM, and which alias is which table
    ("patients {p}", {"p": "patients"}), ("visits {v}", {"v": "visits"}), ("prescriptions {r}", {"r": "prescriptions"}), ("drugs {g}", {"g": "drugs"}),
    ("patients {p} {join} visits {v} ON {p}.patient_id = {v}.patient_id", {"p": "patients", "v": "visits"}),
    ("patients {p} {join} visits {v} USING (patient_id)", {"p": "patients", "v": "visits"}),
    ("visits {v} {join} patients {p} ON {v}.patient_id = {p}.patient_id AND {v}.cost > 5", {"p": "patients", "v": "visits"}),
    ("visits {v} {join} codes {c} USING (code)", {"v": "visits", "c": "codes"}), ("visits {v} {join} codes {c} ON {v}.code = {c}.code AND {c}.chapter = 'A'", {"v": "visits", "c": "codes"}),
    ("visits {v} {join} prescriptions {r} ON {v}.visit_id = {r}.visit_id", {"v": "visits", "r": "prescriptions"}),
    ("prescriptions {r} {join} visits {v} USING (visit_id) {join} patients {p} USING (patient_id)", {"v": "visits", "r": "prescriptions", "p": "patients"}),
    ("prescriptions {r} {join} drugs {g} USING (drug)", {"r": "prescriptions", "g": "drugs"}), ("prescriptions {r} {join} drugs {g} ON {r}.drug = {g}.drug", {"r": "prescriptions", "g": "drugs"}),
    ("drugs {g}, prescriptions {r}", {"g": "drugs", "r": "prescriptions"}), ("patients {p}, codes {c}", {"p": "patients", "c": "codes"}),
    ("patients {p} CROSS JOIN drugs {g}", {"p": "patients", "g": "drugs"}), ("visits {v} JOIN visits w ON {v}.patient_id = w.patient_id", {"v": "visits"}),
    ("visits {v} JOIN visits w ON {v}.patient_id = w.patient_id AND {v}.visit_id < w.visit_id", {"v": "visits"}), ("visits {v} NATURAL JOIN patients {p}", {"v": "visits", "p": "patients"}),
    ("codes {c} RIGHT JOIN visits {v} ON {v}.code = {c}.code", {"v": "visits", "c": "codes"}), ("patients {p} FULL JOIN visits {v} USING (patient_id)", {"v": "visits", "p": "patients"}),
    ("patients {p} SEMI JOIN visits {v} USING (patient_id)", {"p": "patients"}), ("patients {p} ANTI JOIN visits {v} USING (patient_id)", {"p": "patients"}),
    ("patients {p} JOIN codes {c} ON {p}.age > 5", {"p": "patients", "c": "codes"}), ("visits {v} ASOF JOIN visits w ON {v}.patient_id = w.patient_id AND {v}.day >= w.day", {"v": "visits"}),
    ("patients {p} JOIN visits {v} ON {p}.patient_id = {v}.patient_id AND {p}.region = {v}.ward", {"p": "patients", "v": "visits"}), ("patients {p} JOIN visits {v} ON {p}.region = {v}.ward", {"p": "patients", "v": "visits"}),
    ("patients {p} LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM visits z WHERE z.patient_id = {p}.patient_id) l ON TRUE", {"p": "patients"}),
    ("patients {p} TABLESAMPLE 10%", {"p": "patients"}), ("range(5) {p}", {}), ("(VALUES (1), (2)) q(n), patients {p}", {"p": "patients"}),
]  # fmt: skip
CALM = 13  # the first ones are mostly accepted
DERIVED = [  # rows that a question is about, as table {p} of patients' or {v} of visits' columns
    ("(SELECT * FROM patients WHERE {b}) p", "patients"), ("(SELECT * FROM visits WHERE {b}) v", "visits"), ("(SELECT * FROM patients UNION ALL SELECT * FROM patients WHERE {b}) p", "patients"),
    ("(SELECT DISTINCT * FROM patients) p", "patients"), ("(SELECT * FROM visits ORDER BY cost LIMIT 10) v", "visits"), ("(SELECT * REPLACE (LEAST(cost, 100) AS cost) FROM visits) v", "visits"),
    ("(SELECT * EXCLUDE (name) FROM patients) p", "patients"), ("(SELECT *, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY day) AS k FROM visits) v", "visits"),
    ("(SELECT p.*, 1 AS one FROM patients p WHERE {b}) p", "patients"), ("(FROM visits) v", "visits"), ("(SELECT v.* FROM visits v JOIN patients p USING (patient_id) WHERE {b}) v", "visits"),
    ("(SELECT * FROM visits EXCEPT SELECT * FROM visits WHERE {b}) v", "visits"), ("(SELECT * FROM visits INTERSECT ALL SELECT * FROM visits) v", "visits"),
]  # fmt: skip
PER_UNIT = (
    "(SELECT patient_id, COUNT(*) AS n, SUM({n}) AS t, MAX({w}) AS m, AVG({n}) AS a, COUNT(DISTINCT {x}) AS d,"
    " MIN({d}) AS first FROM visits {where} GROUP BY patient_id {having}) k"
)
SUBQUERIES = [
    "{u}patient_id IN (SELECT patient_id FROM visits WHERE {vb})", "{u}patient_id NOT IN (SELECT patient_id FROM visits WHERE {vb})", "EXISTS (SELECT 1 FROM visits z WHERE z.patient_id = {u}patient_id)",
    "NOT EXISTS (SELECT 1 FROM visits z WHERE z.patient_id = {u}patient_id AND z.cost > 10)", "{t} IN (SELECT code FROM codes)", "{t} NOT IN (SELECT drug FROM drugs)", "{n} > (SELECT AVG(price) FROM drugs)",
    "{n} > (SELECT AVG(cost) FROM visits)", "{w} IN (SELECT price FROM drugs)", "{w} = (SELECT 7)", "{u}patient_id IN (SELECT patient_id FROM visits GROUP BY patient_id HAVING COUNT(*) > 2)",
    "EXISTS (SELECT 1 FROM codes WHERE chapter = 'A')", "{u}patient_id = ANY (SELECT patient_id FROM visits)", "{w} > ALL (SELECT price FROM drugs)", "EXISTS (SELECT 1 FROM codes y WHERE y.code = {t})", "NOT ({u}patient_id IN (SELECT patient_id FROM visits))",
]  # fmt: skip
OUTER = [  # around a question, over what it released
    "SELECT * FROM ({q}) q", "SELECT COUNT(*) AS groups FROM ({q}) q", "WITH q AS ({q}) SELECT * FROM q ORDER BY 1", "WITH q AS ({q}) SELECT a.* FROM q a, q b LIMIT 5",
    "SELECT *, ROW_NUMBER() OVER () AS place FROM ({q}) q", "({q}) UNION ALL ({q})", "SELECT ({q}) AS one", "WITH q AS MATERIALIZED ({q}) FROM q", "SELECT COLUMNS(*) FROM ({q}) q",
    "EXPLAIN {q}", "{q};", "({q})", "SELECT q.* FROM drugs g, ({q}) q", "WITH q(a) AS ({q}) SELECT a FROM q", "WITH RECURSIVE q AS ({q}) SELECT * FROM q", "SELECT 1 WHERE EXISTS ({q})",
    "SELECT * FROM ({q}) q QUALIFY ROW_NUMBER() OVER () < 3", "PIVOT ({q}) ON 1 USING COUNT(*)", "SELECT MAX(x0) AS x FROM ({q}) q", "SELECT x0, SUM(x0) OVER (ORDER BY x0) AS s FROM ({q}) q", "{q} -- and a remark", "/* first */ {q} /* noisegate: confidence=0.9 */",
    "SELECT CASE WHEN x0 > 3 THEN 1 END AS y FROM ({q}) q", "DESCRIBE {q}", "SELECT x0::TINYINT FROM ({q}) q", "SELECT 1 / x0 FROM ({q}) q", "CREATE TABLE z AS {q}", "SELECT * FROM ({q}) q JOIN drugs ON TRUE", "({q}) EXCEPT ({q})",
]  # fmt: skip
BOUNDED = {
    "patients": ["birth_year", "age", "weight", "income"], "visits": ['"odd name"', "cost"], "prescriptions": ["days"], "drugs": ["price"], "codes": [],
}  # fmt: skip
KEYS = [  # what is mostly accepted behind GROUP BY
    "{t}", "{t}", "{t}", "{b}", "{b}", "YEAR({d})", "EXTRACT(month FROM {d})", "DATE_TRUNC('year', {d})", "FLOOR({f} / 10) * 10", "BIN({f}, 25)", "{f} > 5", "UPPER({t})", "LEFT({t}, 1)", "{t} = {tl}",
    "CASE WHEN {b} THEN 'old' ELSE 'young' END", "CASE WHEN {f} > 3 THEN {tl} WHEN {b} THEN {tl} END", "COALESCE({t}, 'none')", "ROUND({f}, -1)", "{f} IS NULL", "LEAST({f} // 10, 3)", "CAST({f} / 50 AS INTEGER)", "{d}",
    "LENGTH({t})", "NULLIF({t}, {tl})", "SIGN({f})", "EXTRACT(dow FROM {d})", "WIDTH_BUCKET({f}, 0, 100, 5)", "CASE {t} WHEN {tl} THEN 1 ELSE 0 END", "LOWER({t}) || '!'", "TRUNC({f} / 40)", "CAST({b} AS INTEGER)", "{f} % 3",
]  # fmt: skip
ODD_NAMES = [
    "p",
    "v",
    '"p p"',
    '"select"',
    "é",
    '"a""b"',
    "P",
    "patients",
    "x0",
    '"1"',
    '""',
    "noisegate_0",
    '"x\ty"',
]


class Grammar:
    """Questions by one source of chance."""

    def __init__(self, random, tables=tuple(FIELDS)):
        self.random, self.tables = random, tables
        self.calm = self.chance(0.7)  # ask mostly for what is offered

    def chance(self, share):
        return self.random.random() < share

    # expressions

    def value(self, kind, scope, depth):
        """An expression of this kind over the aliases of ``scope``."""
        if not self.calm and self.chance(0.03):
            kind = self.random.choice(list(FORMS))
        if depth <= 0 or self.chance(0.35):
            return self.leaf(kind, scope)
        return self.filled(self.random.choice(FORMS[kind]), scope, depth - 1)

    def leaf(self, kind, scope):
        named = [(a, name) for a, table in scope.items() for name in FIELDS[table].get(kind, ())]
        if named and self.chance(0.8):
            alias, name = self.random.choice(named)
            return f"{alias}.{name}" if len(scope) > 1 or self.chance(0.5) else name
        if not self.calm and self.chance(0.1):
            return self.random.choice(
                ["NULL", "CURRENT_DATE", "RANDOM()", "missing", "p.*", "CAST(NULL AS INT)"]
            )
        return self.random.choice(LITERALS[kind][: 8 if self.calm else None])

    def bounded(self, scope):
        """A column with declared bounds."""
        named = [f"{a}.{name}" for a, table in scope.items() for name in BOUNDED[table]]
        return self.random.choice(named or ["7"])

    def filled(self, form, scope, depth, *, asked=False):
        """A form with its holes filled; ``asked``: as the argument of an aggregate."""
        unit = next((f"{a}." for a, t in scope.items() if t in ("patients", "visits")), "")

        def hole(match):  # noqa: PLR0911 - one for each kind of hole
            name = match[1]
            if name == "lit":
                return self.random.choice(
                    ["0", "1", "2", "-1", "10", "15", "99", "0.5", "NULL"][
                        : 5 if self.chance(0.8) else 9
                    ]
                )
            if name == "tl":
                return self.random.choice(LITERALS["text"])
            if name == "u":
                return unit
            if name == "f":
                return self.bounded(scope)
            if name == "vb":
                return self.value("truth", {"visits": "visits"}, 1)
            if name in "nw" and self.calm and asked and self.chance(0.85):
                return (
                    self.bounded(scope)
                    if name == "n" or self.chance(0.5)
                    else f"LEAST(GREATEST({self.value('whole', scope, depth)}, -3), 20)"
                )
            if name == "n":
                return self.value(self.random.choice(["number", "number", "whole"]), scope, depth)
            kind = KINDS.get(name) or self.random.choice(list(FORMS))
            return self.value(kind, scope, depth)

        return (
            "(" * (brackets := self.chance(0.3)) + re.sub(r"\{(\w+)\}", hole, form) + ")" * brackets
        )

    # questions

    def source(self):
        """What stands in FROM, its aliases, and a condition that it brings."""
        if self.chance(0.12):
            form, table = self.random.choice([d for d in DERIVED if d[1] in self.tables] or DERIVED)
            return self.conditioned(form, table), {form.split()[-1]: table}
        if "visits" in self.tables and self.chance(0.1):
            where = (
                "WHERE " + self.value("truth", {"visits": "visits"}, 1) if self.chance(0.3) else ""
            )
            having = "HAVING COUNT(*) > 1" if self.chance(0.2) else ""
            form = PER_UNIT.replace("{where}", where).replace("{having}", having)
            made = re.sub(
                r"\{(\w)\}", lambda m: self.filled(f"{{{m[1]}}}", {"visits": "visits"}, 1), form
            )
            if self.chance(0.3):
                return f"patients p {self.join()} {made} ON p.patient_id = k.patient_id", {
                    "p": "patients"
                }
            return made, {}
        calm = SOURCES[: None if not self.calm else CALM]
        usable = [each for each in calm if set(each[1].values()) <= {*self.tables}]
        form, scope = self.random.choice(usable)
        named = {
            key: key if self.chance(0.97) else self.random.choice(ODD_NAMES) for key in "pvrgc"
        }
        made = form.replace("{join}", self.join())
        return re.sub(r"\{(\w)\}", lambda m: named[m[1]], made), {
            named[a]: t for a, t in scope.items()
        }

    def conditioned(self, form, table):
        return re.sub(
            r"\{b\}",
            lambda _: self.value("truth", {table: table}, 1).replace(f"{table}.", ""),
            form,
        )

    def join(self):
        return self.random.choice(
            [
                "JOIN",
                "JOIN",
                "LEFT JOIN",
                "INNER JOIN",
                "RIGHT JOIN" if self.chance(0.2) else "JOIN",
            ]
        )

    def select(self, depth=2):
        """One SELECT with aggregates."""
        text, scope = self.source()
        keys = [
            self.key(scope)
            for _ in range(self.random.choice([0, 0, 1, 1, 2, 2 if self.calm else 3]))
        ]
        asked = [self.aggregate(scope, depth) for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
        if " k" in text and self.chance(0.7):
            asked = [
                self.random.choice(
                    [
                        "AVG(LEAST(k.n, 10))",
                        "COUNT(*)",
                        "SUM(LEAST(k.n, 5))",
                        "AVG(k.a)",
                        "SUM(LEAST(GREATEST(k.t, 0), 99))",
                        "MEDIAN(LEAST(k.d, 3))",
                        "SUM(k.m)",
                        "COUNT(k.t)",
                        "COUNT(k.first)",
                    ]
                )
            ]
        items = [
            f"{each} AS x{place}" if self.chance(0.9) else each
            for place, each in enumerate([*keys, *asked])
        ]
        if self.chance(0.02):
            items = ["*"]
        sql = f"SELECT {'DISTINCT ' if self.chance(0.03) else ''}{', '.join(items)} FROM {text}"
        conditions = [
            self.value("truth", scope, depth) for _ in range(self.random.choice([0, 0, 1, 2]))
        ]
        conditions += [self.filled(self.random.choice(SUBQUERIES), scope, 1)] * self.chance(0.15)
        if conditions:
            sql += " WHERE " + " AND ".join(conditions)
        if keys:
            sql += self.grouped(keys)
        return sql + self.tail(scope, asked, depth)

    def key(self, scope):
        if self.calm:
            return self.filled(self.random.choice(KEYS), scope, 0)
        kind = self.random.choice([*FORMS, "text", "truth"])
        return self.value(kind, scope, self.random.choice([0, 0, 0, 1, 2]))

    def aggregate(self, scope, depth):
        listed = RARE if not self.calm and self.chance(0.2) else AGGREGATES
        made = self.filled(
            self.random.choice(listed), scope, self.random.choice([0, 0, 1, depth]), asked=True
        )
        if self.chance(0.12):
            made += f" FILTER (WHERE {self.value('truth', scope, 1)})"
        if not self.calm and self.chance(0.1):
            made += self.random.choice([" OVER ()", " OVER (ORDER BY COUNT(*))"])
        if self.chance(0.08):
            made = self.random.choice(
                [
                    "{} + 1",
                    "-{}",
                    "{} / 2",
                    "ROUND({}, 1)",
                    "COALESCE({}, 0)",
                    "{} / COUNT(*)",
                    "CAST({} AS INTEGER)",
                    "CASE WHEN {} > 1 THEN 1 END",
                    "{} * 1e308",
                    "{} || 'x'",
                    "SQRT({})",
                ]
            ).replace("{}", made)
        return made

    def grouped(self, keys):
        places = ", ".join(str(place + 1) for place in range(len(keys)))
        names = ", ".join(f"x{place}" for place in range(len(keys)))
        listed = ", ".join(keys)
        return " GROUP BY " + self.random.choice([
            listed, listed, places, names, "ALL", f"ROLLUP ({listed})", f"CUBE ({names})", f"GROUPING SETS (({listed}), ())", f"{listed}, ()", "*",
        ][: 5 if self.chance(0.75) else 10])  # fmt: skip

    def tail(self, scope, asked, depth):
        tail = ""
        if self.chance(0.1):
            tail += " HAVING " + self.random.choice(
                [f"{self.random.choice(asked)} > 1", "COUNT(*) > 2", self.value("truth", scope, 1)]
            )
        if self.chance(0.03):
            tail += " QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*)) < 3"
        if self.chance(0.15):
            tail += " ORDER BY " + self.random.choice(
                [
                    "1",
                    "x0",
                    "COUNT(*) DESC",
                    "ALL",
                    self.random.choice(asked),
                    "1 DESC NULLS FIRST",
                    "9",
                    "RANDOM()",
                ]
            )
        if self.chance(0.08):
            tail += self.random.choice(
                [
                    " LIMIT 3",
                    " LIMIT 0",
                    " OFFSET 1",
                    " LIMIT 50%",
                    " LIMIT (SELECT 2)",
                    " LIMIT -1",
                    " LIMIT 99999999999999999999",
                ]
            )
        return tail

    def question(self):
        """A question, perhaps inside another, perhaps damaged."""
        sql = self.select()
        if self.chance(0.1):
            sql = f"WITH patients2 AS (SELECT * FROM patients), one AS ({sql}) SELECT * FROM one"
        for _ in range(self.random.choice([0, 0, 0, 1, 2])):
            if self.calm and self.chance(0.6):
                break
            sql = self.random.choice(OUTER).replace("{q}", sql)
        if self.chance(0.01):
            sql = sql.replace("WHERE ", f"WHERE {self.deep()} AND ", 1)
        return sql

    def deep(self):
        """Much nesting, in a few ways."""
        n = self.random.choice([20, 60, 300, 2000])
        return self.random.choice([
            "(" * n + "age > 1" + ")" * n, " OR ".join(["age = 1"] * n), "NOT " * n + "smoker", "-" * (n % 2) + "+".join(["age"] * n) + " > 1",
            "CASE WHEN age > 1 THEN " * n + "TRUE" + " END" * n, "age IN (" + ", ".join(map(str, range(n))) + ")", "COALESCE(" * n + "age" + ", 1)" * n + " > 0", "age" + "::INT" * n + " > 1",
        ])  # fmt: skip

    def mutated(self, sql):
        """The SQL with a few tokens lost, doubled, swapped, replaced."""
        tokens = re.findall(r"\s+|\w+|'[^']*'|\"[^\"]*\"|.", sql, re.DOTALL)
        for _ in range(self.random.choice([1, 1, 2, 4])):
            if not tokens:
                break
            at, other = self.random.randrange(len(tokens)), self.random.randrange(len(tokens))
            how = self.random.randrange(7)
            if how == 0:
                del tokens[at]
            elif how == 1:
                tokens.insert(at, tokens[other])
            elif how == 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            elif how == 3:
                tokens[at] = self.random.choice(
                    [
                        "NULL",
                        "*",
                        "(",
                        ")",
                        ",",
                        "0",
                        "''",
                        "NOT",
                        "DISTINCT",
                        "OVER ()",
                        ".",
                        "::",
                        "[1]",
                        "{'a': 1}",
                        "$1",
                        "?",
                        "@",
                        "\0",
                        "é",
                        "--",
                        "/*",
                        "*/",
                        ";",
                        "1e400",
                        "x -> x",
                        "COLUMNS(*)",
                        "ALL",
                    ]
                )
            elif how == 4:
                tokens[at] = self.value(
                    self.random.choice(list(FORMS)),
                    {t: t for t in self.random.sample(self.tables, 1)},
                    1,
                )
            elif how == 5:
                tokens[at:other] = []
            else:
                donor = re.findall(r"\w+|\S", self.random.choice(written()))
                tokens.insert(at, f" {self.random.choice(donor)} ")
        return "".join(tokens)

    def garbage(self):
        """Characters, mostly such as SQL has."""
        some = "SELECT FROM()*,.'\"-;/\\\n\t\0\x1b%_[]{}?$#@!é\u202e\ud800\U0001f468 0123456789"
        return "".join(
            self.random.choice(some) for _ in range(self.random.choice([0, 1, 5, 40, 200]))
        )

    def any(self):
        """Any SQL: of the grammar, of documents and tests, mutations of both, or garbage."""
        way = self.random.random()
        if way < 0.75:
            return self.question()
        if way < 0.82:
            return self.mutated(self.question())
        if way < 0.86:
            return self.random.choice(written())
        return self.mutated(self.random.choice(written())) if way < 0.985 else self.garbage()


@cache
def written():
    """SQL that stands in documents and tests."""
    found = []
    for file in sorted(
        [*ROOT.glob("docs/*.md"), *ROOT.glob("tests/*/*.py"), ROOT / "examples/questions.sql"]
    ):
        if "fuzz" in file.parts:
            continue
        text = file.read_text()
        found += re.findall(r"\"((?:SELECT|WITH) [^\"\n]{5,400})\"", text)
        if file.suffix != ".py":
            blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL) or [text] * (
                file.suffix == ".sql"
            )
            found += [each.strip() for block in blocks for each in block.split(";")]
        else:
            found += re.findall(r"^((?:SELECT|WITH) .{5,400})$", text, re.MULTILINE)
    return list(dict.fromkeys(each for each in found if each))
