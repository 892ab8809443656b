# %% [markdown]
# # A hospital: which wards are full, and who comes back
#
# A hospital wants to publish how its wards are used. Patients have several visits, visits have
# prescriptions, and a prescription knows its patient only through the visit. Nobody should be
# able to tell from the published numbers whether one particular patient was ever treated.
#
# The rows are made up, so this page may show the exact answers beside the private ones. With real
# patients only the private column would exist.

# %% tags=["parameters"]
PATIENTS = 4_000

# %% tags=["hide"]
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

chance = np.random.default_rng(1)
WARDS = ["emergency", "surgery", "medicine", "children", "eyes"]

patients = pd.DataFrame(
    {
        "patient_id": np.arange(PATIENTS),
        "birth_year": (2025 - np.clip(chance.gamma(5, 10, PATIENTS), 0, 99)).astype(int),
        "sex": chance.choice(["f", "m"], PATIENTS),
    }
)
often = np.clip(chance.geometric(0.4, PATIENTS), 1, 12)  # visits of each patient
visits = pd.DataFrame({"patient_id": np.repeat(np.arange(PATIENTS), often)})
visits.insert(0, "visit_id", np.arange(len(visits)))
visits["ward"] = chance.choice(WARDS, len(visits), p=[0.38, 0.17, 0.25, 0.14, 0.06])
visits["day"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(
    chance.integers(0, 365, len(visits)), unit="D"
)
visits["cost"] = np.clip(chance.gamma(2, 260, len(visits)), 20, 3_000).round(2)
per_visit = chance.integers(0, 3, len(visits))
prescriptions = pd.DataFrame({"visit_id": np.repeat(visits["visit_id"], per_visit)})
prescriptions["drug"] = chance.choice(
    ["paracetamol", "ibuprofen", "amoxicillin", "penicillin", "insulin"], len(prescriptions)
)
drugs = pd.DataFrame(
    {
        "drug": ["paracetamol", "ibuprofen", "amoxicillin", "penicillin", "insulin"],
        "class": ["pain", "pain", "antibiotic", "antibiotic", "hormone"],
    }
)
Path("hospital").mkdir()
raw = duckdb.connect()
tables = {"patients": patients, "visits": visits, "prescriptions": prescriptions, "drugs": drugs}
for name, frame in tables.items():
    frame.to_csv(f"hospital/{name}.csv", index=False)
    raw.sql(f"CREATE TABLE {name} AS FROM 'hospital/{name}.csv'")

# %% [markdown]
# ## The steward writes a policy
#
# The policy says whose rows these are, what is public about them, and what may be spent. `via`
# follows the foreign key from a prescription to its visit, where the patient is named. Two
# analysts have shares; together they can never spend more than the budget.

# %%
_ = Path("hospital.toml").write_text("""
name = "hospital"
source = "hospital"
protects = "patient"
snapshot = "2025"

[budget]
epsilon = 3
delta = 1e-7

[analysts]
ana = 2
ben = 1.5

[tables.patients]
unit = "patient_id"
rows_per_unit = 1

[tables.patients.columns]
birth_year = { type = "integer", between = [1925, 2025] }
sex = { in = ["f", "m"] }

[tables.visits]
unit = "patient_id"
rows_per_unit = 12
groups_per_unit = 5

[tables.visits.columns]
visit_id = { type = "integer" }
ward = { in = ["emergency", "surgery", "medicine", "children", "eyes"] }
day = { type = "date", between = [2025-01-01, 2025-12-31] }
cost = { type = "number", between = [0, 3000] }

[tables.prescriptions]
unit = { column = "patient_id", via = ["visit_id -> visits.visit_id"] }
rows_per_unit = 24

[tables.prescriptions.columns]
visit_id = { type = "integer" }
drug = { references = "drugs.drug" }

[tables.drugs]
public = true
key = ["drug"]
""")
# %% [markdown]
# ## The analyst practises
#
# With `practice=True` the gate answers from made-up rows that fit the policy. It is free, and a
# good place to get the SQL right.

# %%
import noisegate as ng

FULL = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
with ng.open("hospital.toml", analyst="ana", practice=True) as rehearsal:
    practised = rehearsal.sql(FULL, epsilon=0.5)
print(practised.promise)

# %% [markdown]
# ## The plan is free
#
# It shows price and error before anything is spent, and reads no row. A patient may have twelve
# visits, so the noise has to hide all twelve.

# %%
ana = ng.open("hospital.toml", analyst="ana")
ana.plan(FULL, epsilon=0.5)

# %% [markdown]
# Counting patients instead of visits needs less noise: in one ward, a patient counts once.

# %%
PATIENTS_BY_WARD = "SELECT ward, COUNT(DISTINCT patient_id) AS patients FROM visits GROUP BY ward"
ana.plan(PATIENTS_BY_WARD, epsilon=0.5)

# %% [markdown]
# ## The question
#
# The ± is a 95 % confidence interval around the exact number, for each number by itself.

# %%
answer = ana.sql(PATIENTS_BY_WARD, epsilon=0.5)
answer

# %% [markdown]
# The rows are made up, so we may look: the question is plain SQL, and DuckDB answers it exactly.


# %%
def beside(answer, key, value):
    """The private answer beside the exact one."""
    exact = raw.sql(answer.sql).df().rename(columns={value: "exact"})
    frame = answer.to_pandas(0.95).merge(exact[[key, "exact"]], on=key)
    frame["off by"] = (frame[value] - frame["exact"]).abs()
    return frame.round(2)


beside(answer, "ward", "patients")

# %% [markdown]
# Averages are measured as a sum and a count, and the price is split to make the error least.

# %%
costs = ana.sql("SELECT ward, AVG(cost) AS cost FROM visits GROUP BY ward", epsilon=1)
beside(costs, "ward", "cost")

# %% [markdown]
# ## Who comes back within a month?
#
# A correlated sub-query over the rows of one patient is allowed: whatever it computes is still
# about that patient. Ben asks; he has a share of his own.

# %%
ben = ng.open("hospital.toml", analyst="ben")
back = ben.sql(
    """SELECT COUNT(DISTINCT patient_id) AS back FROM visits v WHERE EXISTS (
         SELECT 1 FROM visits w
         WHERE w.patient_id = v.patient_id AND w.day > v.day AND w.day <= v.day + 30)""",
    epsilon=0.5,
)
print(back.value, "±", back.margin, "· exact:", raw.sql(back.sql).fetchall()[0][0])

# %% [markdown]
# Prescriptions join a public list of drugs. The patient is found along the foreign key, two
# tables away.

# %%
classes = ben.sql(
    """SELECT d.class, COUNT(*) AS n FROM prescriptions p JOIN drugs d USING (drug)
       GROUP BY d.class""",
    epsilon=0.5,
)
beside(classes, "class", "n")

# %% [markdown]
# ## What was released is free from now on
#
# Another order, a share, a rank: all of it follows from released numbers. So does the same
# question from another analyst.

# %%
shares = ben.sql(
    """SELECT ward, COUNT(DISTINCT patient_id) AS patients,
              RANK() OVER (ORDER BY COUNT(DISTINCT patient_id) DESC) AS place
       FROM visits GROUP BY ward ORDER BY place""",
    epsilon=0.5,
)
assert shares.free
shares

# %% [markdown]
# ## A release, with its card
#
# A release is published once and used from then on. The steward would save it as a file; the card
# states what was measured, what is guaranteed, and which entries of the ledger stand behind it.

# %%
months = ana.release(
    "series",
    "SELECT DATE_TRUNC('month', day) AS month, COUNT(DISTINCT patient_id) AS patients "
    "FROM visits GROUP BY month",
    workload="cells",
    groups_per_unit=12,
    epsilon=0.5,
)
months.plot()

# %%
months.card()

# %% [markdown]
# ## The budget left
#
# Ana has spent her share, and the gate refuses before it reads a row.

# %% tags=["refused"]
ana.sql("SELECT AVG(birth_year) AS year FROM patients", epsilon=0.5)

# %%
pd.DataFrame(
    {
        "spent": {name: str(gate.spent) for name, gate in {"ana": ana, "ben": ben}.items()},
        "left": {name: f"{gate.remaining:left}" for name, gate in {"ana": ana, "ben": ben}.items()},
    }
)

# %% [markdown]
# Ben has used a part of his share, but both together have spent all that the data set has. So
# nothing is left for him either. Anybody with the ledger can check it: the chain, every price, every sum, every stored answer.

# %%
checked = ana.ledger.verify()
assert checked.ok
print("ledger verified:", checked.ok)

# %% tags=["hide"]
# No cap cuts anything off here, so each ± is that of the noise, which is proven. At a confidence of
# 1 - 1e-7 the 20 numbers below are all within it, but for one run in 500,000.
SURE = "0.9999999"


def within(answer, key, value):
    exact = dict(raw.sql(f"SELECT {key}, {value} FROM ({answer.sql})").fetchall())
    widths = answer.margins(SURE)[value]
    told = zip(answer[key], answer[value], widths, strict=True)
    return all(abs(noisy - exact[name]) <= width for name, noisy, width in told)


assert within(answer, "ward", "patients")
assert within(costs, "ward", "cost")
assert within(classes, "class", "n")
assert abs(back.value - raw.sql(back.sql).fetchall()[0][0]) <= back.margins(SURE)["back"][0]
