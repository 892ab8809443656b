# %% [markdown]
# # A school district: how many A students?
#
# A district publishes how many of its students have an A. Two harmless numbers, one for all
# students and one for all but those named Frank, tell what Frank's grade is. This is the oldest
# attack on statistics, and the first example of why noise is needed.
#
# Students, grades and schools are made up. A student has a grade in each of several subjects.

# %% tags=["parameters"]
STUDENTS = 6_000

# %% tags=["hide"]
from pathlib import Path

import altair as alt
import duckdb
import numpy as np
import pandas as pd

chance = np.random.default_rng(5)
SCHOOLS = ["Ash", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine"]
SUBJECTS = ["maths", "languages", "science", "history", "sport"]
NAMES = ["Ann", "Bo", "Carl", "Dina", "Eva", "Gita", "Hugo", "Ida", "Jo", "Kim"]

strength = dict(zip(SCHOOLS, chance.normal(0, 0.35, len(SCHOOLS)), strict=True))
students = pd.DataFrame(
    {
        "student_id": np.arange(STUDENTS),
        "name": chance.choice(NAMES, STUDENTS),
        "school": chance.choice(
            SCHOOLS, STUDENTS, p=np.linspace(3, 1, 10) / np.linspace(3, 1, 10).sum()
        ),
        "year": chance.integers(5, 13, STUDENTS),
    }
)
students.loc[11, "name"] = "Frank"
talent = chance.normal(0, 1, STUDENTS) + students["school"].map(strength)
grades = students[["student_id"]].merge(pd.DataFrame({"subject": SUBJECTS}), how="cross")
points = talent.to_numpy()[grades["student_id"]] * 11 + 70 + chance.normal(0, 9, len(grades))
grades["points"] = np.clip(points, 0, 100).round().astype(int)
grades["a"] = grades["points"] >= 85
schools = pd.DataFrame({"school": SCHOOLS, "area": ["town"] * 5 + ["country"] * 5})
Path("district").mkdir()
raw = duckdb.connect()
for name, frame in {"students": students, "grades": grades, "schools": schools}.items():
    frame.to_csv(f"district/{name}.csv", index=False)
    raw.sql(f"CREATE TABLE {name} AS FROM 'district/{name}.csv'")


def exactly(sql):
    return raw.sql(sql).fetchall()[0][0]


# %% [markdown]
# ## Two exact numbers

# %%
A_IN_MATHS = """SELECT COUNT(*) AS n FROM students s JOIN grades g USING (student_id)
                WHERE subject = 'maths' AND a"""
everybody, others = exactly(A_IN_MATHS), exactly(A_IN_MATHS + " AND name <> 'Frank'")
print(f"{everybody} - {others} = {everybody - others}: so much for Frank's secret")

# %% [markdown]
# ## A gate in front of the district
#
# The student is the unit in both tables. The names cannot be asked about at all.

# %%
_ = Path("district.toml").write_text("""
name = "district"
source = "district"
protects = "student"
snapshot = "2026"

[budget]
epsilon = 5
delta = 1e-7

[analysts]
board = 4
press = 1

[tables.students]
unit = "student_id"
rows_per_unit = 1

[tables.students.columns]
student_id = { type = "integer" }
name = { hidden = true }
school = { references = "schools.school" }
year = { type = "integer", between = [5, 12] }

[tables.grades]
unit = "student_id"
rows_per_unit = 5
groups_per_unit = 5

[tables.grades.columns]
subject = { in = ["maths", "languages", "science", "history", "sport"] }
points = { type = "integer", between = [0, 100] }
a = { type = "boolean" }

[tables.schools]
public = true
key = ["school"]
""")
# %%
import noisegate as ng

board = ng.open("district.toml", analyst="board")
press = ng.open("district.toml", analyst="press")

# %% tags=["refused"]
press.sql(A_IN_MATHS + " AND name <> 'Frank'", epsilon=0.5)

# %% [markdown]
# Frank has one number in the student list, and whoever knows it can still ask around it. The gate
# answers, because no question is forbidden for being clever: the noise covers one student.

# %%
A_BY_ID = "SELECT COUNT(*) AS n FROM grades WHERE subject = 'maths' AND a"
first = press.sql(A_BY_ID, epsilon=0.25)
second = press.sql(A_BY_ID + " AND student_id <> 11", epsilon=0.25)
off = first.margin + second.margin
print(f"{first.value} - {second.value} = {first.value - second.value} ± {off:.0f}")

# %% [markdown]
# ## Schools: disjoint parts, one price
#
# A student is at one school, so questions about different schools are about different students.
# Together they cost what the dearest of them costs. Here ten schools are asked at ε = 0.5 each.

# %%
before = board.spent.epsilon
parts = board.partition("school", table="students", several="first")
rows = []
for school, part in parts.items():
    told = part.sql("SELECT AVG(year) AS year, COUNT(*) AS n FROM students", epsilon=0.5)
    count, width = told["n"][0], told.margins()["n"][0]
    rows.append(
        (school, count, width, exactly(f"SELECT COUNT(*) FROM students WHERE school = '{school}'"))
    )
print(f"ten schools, together for {float(board.spent.epsilon - before):g}")
pd.DataFrame(rows, columns=["school", "students", "±", "exact"]).round(1)

# %% [markdown]
# ## Grades by school and subject
#
# A student has five grades, one in each subject, so they add up to five in this table. A histogram
# release makes the counts whole, non-negative and consistent.

# %%
table = board.release(
    "histogram",
    """SELECT s.school, g.subject, COUNT(*) AS n FROM students s JOIN grades g USING (student_id)
       WHERE a GROUP BY s.school, g.subject""",
    epsilon=1,
)
table.plot()

# %%
maths = table.query(subject="maths")
print("A in maths, all schools:", maths, "· exact:", everybody)

# %% [markdown]
# ## How points are spread
#
# The distribution of a student's mean, one row per student first: the bound is one again. The band
# holds everywhere at once.

# %%
spread = board.release(
    "cdf",
    """SELECT COUNT(*) FROM (SELECT student_id, AVG(points) AS mean FROM grades GROUP BY student_id)
       GROUP BY BIN(mean, 5)""",
    epsilon=0.5,
)
spread.plot()

# %% [markdown]
# ## Which schools are large?
#
# To learn only *which* counts reach a threshold costs less than all the numbers, when few do: all
# the noes together are paid once. The gate asks in turn until two schools said yes.

# %%
large = board.compare(
    STUDENTS // 7,
    [f"SELECT COUNT(*) FROM students WHERE school = '{school}'" for school in schools["school"]],
    count=2,
    epsilon=0.5,
)
large

# %% [markdown]
# ## The budget, and the card
#
# The board and the press draw from one budget. The card of the table names its ledger entries, and
# `verify` finds them.

# %%
pd.DataFrame(
    {
        name: {"spent": str(gate.spent), "left": f"{gate.remaining:left}"}
        for name, gate in {"board": board, "press": press}.items()
    }
).T

# %%
card = table.card()
assert card.verify(board.ledger) == []
card

# %% tags=["hide"]
# The bars of counts are proven. Noise exceeds five times its 95 % with probability 0.05^5 = 3e-7, so
# that one of these 12 numbers is off by more in one run of 250,000.
assert abs(first.value - everybody) <= 5 * first.margin
assert all(abs(count - truth) <= 5 * width for _, count, width, truth in rows)
assert abs(maths.value - everybody) <= 5 * maths.margin
assert board.ledger.verify().ok
