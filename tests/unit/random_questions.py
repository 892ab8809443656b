"""SQL put together at random, over the tables of `reading_oracle`."""

CONDITIONS = {
    "p": [
        "p.age > 40",
        "p.smoker",
        "p.region = 'north'",
        "p.weight < 80",
        "p.age IS NULL",
        "NOT p.smoker",
        "p.name LIKE '%e%'",
        "p.age BETWEEN 7 AND 51",
        "p.born > '1973-01-01'",
        "p.region IS DISTINCT FROM 'north'",
        "p.region <> 'north'",
        "p.region IS NOT NULL",
        "NOT (p.age < 40 OR p.region = 'south')",
        "YEAR(p.born) = 1973",
        "p.born BETWEEN '1973-01-01' AND '1973-12-31'",
        "UPPER(p.region) = 'NORTH'",
        "p.age // 10 IN (3, 5)",
        "LENGTH(p.region) > 3",
        "CASE WHEN p.age > 50 THEN p.smoker ELSE p.region = 'north' END",
        "COALESCE(p.region, 'none') = 'none'",
    ],
    "v": [
        "v.cost > 10",
        "v.code = 'A1'",
        "v.cost IS NULL",
        "YEAR(v.seen) = 2024",
        "v.code IN ('A1', 'B2')",
        "v.code <> 'A1'",
        "DATE_TRUNC('month', v.seen) = '2024-02-01'",
        "v.seen < '2024-06-01'",
    ],
    "c": ["c.chapter = 'A'", "c.chapter IS NULL", "c.code > 'A1'"],
    "k": ["k.n > 1", "k.n IS NULL", "k.t > 20"],
    "b": ["b.amount > 1"],
}
SUBS = {
    "w": [  # where v is there always
        "v.cost >= (SELECT MAX(z.cost) FROM visits z WHERE z.patient_id = v.patient_id)",
        "CASE WHEN EXISTS (SELECT 1 FROM bills z WHERE z.visit_id = v.visit_id) THEN v.cost > 6 ELSE TRUE END",
        "v.visit_id > COALESCE((SELECT MIN(z.visit_id) FROM visits z WHERE z.patient_id = v.patient_id AND z.code = v.code), 0)",
    ],
    "p": [
        "EXISTS (SELECT 1 FROM visits z WHERE z.patient_id = p.patient_id AND z.cost > p.age)",
        "(p.smoker OR NOT EXISTS (SELECT 1 FROM visits z WHERE z.patient_id = p.patient_id AND z.cost < p.weight))",
        "(SELECT COUNT(*) FROM visits z WHERE z.patient_id = p.patient_id AND z.code <> 'B2') > 1",
        "(p.region NOT IN (SELECT region FROM regions WHERE country = 'X') OR p.age > 50)",
        "p.patient_id IN (SELECT patient_id FROM visits WHERE cost > 10)",
        "EXISTS (SELECT 1 FROM visits z WHERE z.patient_id = p.patient_id AND z.code = 'A1')",
        "p.region IN (SELECT region FROM regions WHERE country = 'Y')",
        "p.patient_id NOT IN (SELECT patient_id FROM visits GROUP BY patient_id HAVING COUNT(*) > 1)",
    ],
    "v": [
        "v.code IN (SELECT code FROM codes)",
        "NOT EXISTS (SELECT 1 FROM codes y WHERE y.code = v.code AND y.chapter = 'A')",
        "v.visit_id IN (SELECT visit_id FROM bills WHERE amount > 1)",
        "v.visit_id IN (SELECT visit_id FROM bills GROUP BY visit_id HAVING COUNT(*) > 1)",
    ],
}
KEYS = {
    "p": [
        "p.region",
        "p.smoker",
        "p.age",
        "p.age + 1",
        "FLOOR(p.weight / 20) * 20",
        "YEAR(p.born)",
        "MONTH(p.born)",
        "ISODOW(p.born)",
        "(p.age > 50)",
        "COALESCE(p.region, 'none')",
        "CASE p.region WHEN 'north' THEN 'N' ELSE 'rest' END",
        "UPPER(p.region)",
        "CASE WHEN p.age > 50 THEN 'old' ELSE 'young' END",
    ],
    "v": ["v.code", "YEAR(v.seen)", "LEFT(v.code, 1)", "DATE_TRUNC('month', v.seen)"],
    "c": ["c.chapter", "LOWER(c.chapter)"],
    "k": ["k.n"],
    "b": ["ROUND(b.amount)"],
}
NUMBERS = {
    "p": ["p.age", "p.weight", "p.age + 1", "p.age * 0.15"],
    "v": ["v.cost", "v.cost * 2"],
    "c": ["LENGTH(c.code)"],
    "k": ["k.n", "k.t"],
    "b": ["b.amount"],
}
PER_PATIENT = (
    "(SELECT patient_id, COUNT(*) AS n, SUM(cost) AS t FROM visits {} GROUP BY patient_id {}) k"
)
PER_VISIT = (
    "(SELECT visit_id, COUNT(*) AS n, SUM(amount) AS t FROM bills {} GROUP BY visit_id {}) k"
)
BOTH = "(SELECT patient_id, age, smoker, region, weight, name, born FROM patients UNION ALL SELECT patient_id, visit_id, TRUE, code, cost, code, NULL FROM visits) p"
WINDOWS = [
    "(SELECT *, COUNT(*) OVER (PARTITION BY patient_id) AS n, SUM(cost) OVER (PARTITION BY patient_id ORDER BY visit_id) AS t FROM visits {}) k",
    "(SELECT *, RANK() OVER w AS n, LAG(cost) OVER w AS t FROM visits {} WINDOW w AS (PARTITION BY patient_id ORDER BY visit_id DESC)) k",
    "(SELECT *, ROW_NUMBER() OVER (PARTITION BY patient_id, code ORDER BY visit_id) AS n, MAX(cost) OVER (PARTITION BY patient_id ORDER BY visit_id ROWS 1 PRECEDING) AS t FROM visits {} QUALIFY n = 1 OR t > 6) k",
    "(SELECT *, NTILE(2) OVER (PARTITION BY patient_id ORDER BY visit_id) AS n, AVG(cost) OVER (PARTITION BY patient_id ORDER BY visit_id ROWS 1 PRECEDING) AS t FROM visits {}) k",
    "(SELECT *, DENSE_RANK() OVER (PARTITION BY patient_id ORDER BY code) AS n, FIRST_VALUE(cost) OVER (PARTITION BY patient_id ORDER BY seen, visit_id) AS t FROM visits {}) k",
]
SETS = [
    f"(SELECT patient_id, LENGTH(code) AS n, cost AS t FROM visits {word} SELECT patient_id, 2, cost FROM visits WHERE code <> 'A1') k"
    for word in ("INTERSECT", "EXCEPT", "UNION")
]
ROWS = [
    *((source, "k") for source in SETS),
    *((source.format(where), "k") for source in WINDOWS for where in ("", "WHERE cost > 6")),
    ("patients p", "p"), ("visits v", "vw"), (BOTH, "p"), ("(SELECT * FROM patients WHERE age > 10) p", "p"),
    ("patients p {} visits v ON p.patient_id = v.patient_id AND v.cost > 6", "pv"),
    ("patients p {} visits v USING (patient_id) LEFT JOIN codes c ON v.code = c.code AND c.chapter = 'A'", "pvc"),
    ("visits v {} codes c USING (code)", "vcw"), ("codes c JOIN visits v ON v.code = c.code", "vc"),
    ("codes c RIGHT JOIN visits v ON v.code = c.code", "vc"), ("bills b {} visits v USING (visit_id)", "bv"),
    ("visits v JOIN bills b ON v.visit_id = b.visit_id", "bv"), ("visits v CROSS JOIN codes c", "vc"),
    ("patients p {} " + PER_PATIENT.format("WHERE cost > 6", "") + " ON p.patient_id = k.patient_id", "pk"),
    (PER_PATIENT.format("", "HAVING SUM(cost) < 100") + " JOIN patients p USING (patient_id)", "pk"),
    (PER_VISIT.format("", "HAVING COUNT(*) > 1"), "k"), (PER_VISIT.format("WHERE amount > 1", ""), "k"),
    ("visits v {} " + PER_VISIT.format("", "") + " ON v.visit_id = k.visit_id", "vk"),
    (PER_VISIT.format("", "") + " JOIN visits v USING (visit_id) JOIN patients p USING (patient_id)", "vkp"),
    ("(SELECT v.visit_id, code, COUNT(*) AS n, MAX(amount) AS t FROM visits v JOIN bills b ON b.visit_id = v.visit_id GROUP BY ALL) k", "k"),
    ("(SELECT DISTINCT visit_id, amount AS t, LENGTH(code) AS n FROM bills JOIN visits USING (visit_id)) k", "k"),
    ("regions r, codes c, patients p, visits v WHERE v.code = c.code AND v.patient_id = p.patient_id AND r.region = p.region", "cvp"),
    (PER_PATIENT.format("", "HAVING COUNT(*) > 1"), "k"), ("codes c, visits v, patients p WHERE v.code = c.code AND v.patient_id = p.patient_id", "cvp"),
]  # fmt: skip
AGGREGATES = [
    "SUM({} + 1)",
    "SUM(2 * {} - 0.5)",
    "SUM(-{})",
    "AVG(3 - {})",
    "COUNT(*)",
    "SUM({})",
    "AVG({})",
    "COUNT({})",
    "MIN({})",
    "MAX({})",
    "VAR_SAMP({})",
    "MEDIAN({})",
    "COUNT(DISTINCT {})",
    "STDDEV_POP({})",
]

SCALARS = [
    "(SELECT COUNT(*) FROM patients)", "(SELECT SUM(cost) FROM visits WHERE code = 'A1')",
    "(SELECT COUNT(*) FROM codes)", "(SELECT AVG(age) - COUNT(*) FROM patients)",
    "(SELECT COUNT(*) FROM visits HAVING COUNT(*) > (SELECT COUNT(*) FROM notes))",
]  # fmt: skip


def question(pick):
    """One random question."""

    def one(words):
        return pick.choice([word for table in tables for word in words.get(table, [])] or ["TRUE"])

    source, tables = pick.choice(ROWS)
    source = source.replace("{}", pick.choice(["JOIN", "LEFT JOIN"]))
    conditions = [
        f"({one(CONDITIONS)} {pick.choice(['AND', 'OR'])} {one(CONDITIONS)})"
        for _ in range(pick.randint(0, 2))
    ]
    conditions += [one(SUBS) for _ in range(pick.randint(0, 1))]
    keys = list(dict.fromkeys(one(KEYS) for _ in range(pick.randint(0, 2))))
    asked = [pick.choice(AGGREGATES).format(one(NUMBERS)) for _ in range(pick.randint(1, 3))]
    asked[0] += pick.choice(["", f" FILTER (WHERE {one(CONDITIONS)})"])
    if "p" in tables and pick.random() < 0.3:
        asked.append(f"COUNT(DISTINCT CASE WHEN {one(CONDITIONS)} THEN p.patient_id END)")
    if pick.random() < 0.2:
        asked.append(f"CAST(SUM({one(NUMBERS)} + 0.5) AS BIGINT)")
    if pick.random() < 0.4:
        asked.append(pick.choice([f"COUNT(*) / {pick.choice(SCALARS)}", pick.choice(SCALARS)]))
    items = [f"{text} AS x{place}" for place, text in enumerate(keys + asked)]
    sql = f"SELECT {', '.join(items)} FROM {source}"
    if conditions:
        sql += (" AND " if " WHERE v.code = c" in source else " WHERE ") + " AND ".join(conditions)
    if keys:
        sql += " GROUP BY " + pick.choice(
            [
                "ALL",
                ", ".join(keys),
                "x0" if len(keys) == 1 else "x0, x1",
                f"CUBE ({', '.join(keys)})",
            ]
        )
    having = f" HAVING COUNT(*) * 2 > {pick.choice(SCALARS)} OR COUNT(*) > 1"
    return sql + pick.choice(["", " HAVING COUNT(*) > 1", having])
