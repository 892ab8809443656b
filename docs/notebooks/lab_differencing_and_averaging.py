# %% [markdown]
# # Lab: differencing and averaging
#
# Every attack of the lab is played three times on made-up people: on raw answers, on a classic
# defence, and on a real gate. This page has the two oldest ones. Both need nothing but counts.
#
# Where an attacker guesses whether one person is in a table, both being as likely before, an
# ε-private answer lets nobody be right more often than e^ε / (1 + e^ε): 73 % at ε = 1. The solid
# line in each picture is this bound, the dashed one is guessing. Rates are measured in 100 trials and
# err by about 4 %: an attack that reaches its bound is above it in half of all runs.

# %% tags=["parameters"]
TIMES = 100

# %% tags=["hide"]
from fractions import Fraction

import altair as alt
import duckdb
import numpy as np
import pandas as pd

import noisegate as ng
from noisegate.lab.attacks.run import tried

chance = np.random.default_rng(6)

# %% [markdown]
# ## Differencing: everybody, and everybody but her
#
# ### Raw answers
#
# Two large counts differ in one person. Their difference is that person's secret.

# %%
people = pd.DataFrame({"id": np.arange(800), "ill": chance.random(800) < 0.3})
people.loc[17, "ill"] = True
ALL, BUT = "SELECT COUNT(*) AS n FROM people WHERE ill", " AND id <> 17"
raw = duckdb.connect()
raw.register("people", people)
exact = [raw.sql(sql).fetchall()[0][0] for sql in (ALL, ALL + BUT)]
print(exact, "so person 17 is", "ill" if exact[0] > exact[1] else "well")

# %% [markdown]
# ### A classic defence: hide small groups
#
# Both groups are large, so nothing is hidden, and the difference is as before.


# %%
def suppressed(sql, least=5):
    n = raw.sql(sql).fetchall()[0][0]
    return n if n >= least else None


print([suppressed(sql) for sql in (ALL, ALL + BUT)])

# %% [markdown]
# ### The gate
#
# Each count has noise that hides one person, and both are paid from one budget. The difference of
# the two is far less certain than the one person that it should reveal.

# %%
facts = {"id": {"type": "integer", "between": [0, 799]}, "ill": {"type": "boolean"}}
gate = ng.open(people, table="people", epsilon=1, columns=facts)
both = [gate.sql(sql, epsilon=0.5) for sql in (ALL, ALL + BUT)]
print(*(f"{each.value} ± {each.margin}" for each in both), "· left:", gate.remaining)

# %% [markdown]
# How often is the attacker right, over many made-up worlds?

# %%
(differencing,) = tried(["differencing"], epsilon=1, times=TIMES)
differencing

# %% [markdown]
# ## Averaging: the same question again
#
# ### Raw answers
#
# An exact count needs no second question. So the classic defence adds noise.
#
# ### A classic defence: new noise for each answer
#
# Independent noise averages out. After 600 questions the mean is off by about a tenth.

# %%
noise = chance.laplace(0, 2, 600)  # ε = ½ for each single answer
running = pd.DataFrame(
    {
        "questions": np.arange(1, 601),
        "mean of all answers": exact[0] + noise.cumsum() / np.arange(1, 601),
    }
)
line = alt.Chart(running).mark_line(color="#e08214").encode(
    x="questions:Q", y=alt.Y("mean of all answers:Q", scale=alt.Scale(zero=False))
)  # fmt: skip
rule = alt.Chart(pd.DataFrame({"y": [exact[0]]})).mark_rule(strokeDash=[4, 3]).encode(y="y:Q")
(line + rule).properties(
    width=560, height=220, title="New noise each time: the mean finds the exact count (dashed)"
)

# %% [markdown]
# ### The gate
#
# A question has one answer. The same words, other words for the same question, and the next
# analyst all get the same draw. A new draw costs its price, and the budget ends.

# %%
fresh = ng.open(people, table="people", epsilon=1, columns=facts)
words = [ALL, "select count( * ) as n from PEOPLE where ill", "SELECT n FROM (" + ALL + ")"]
told = [fresh.sql(sql, epsilon=Fraction(1, 2)) for sql in words]
print({each.value for each in told}, "paid:", [str(each.cost) for each in told])

# %% tags=["refused"]
for _ in range(3):
    print(fresh.sql(ALL, epsilon=0.5, fresh=True).value)

# %%
(averaging,) = tried(["averaging"], epsilon=1, times=TIMES)
averaging

# %% tags=["hide"]
# A gate that keeps ε fails here with probability below 1e-6 for each attack.
from scipy.stats import binom

assert exact[0] - exact[1] == 1
assert len({each.value for each in told}) == 1
for found in (differencing, averaging):
    assert found.raw.success == 1
    assert found.classic.success == 1
    assert binom.sf(round(found.gate.success * TIMES) - 1, TIMES, found.bound) > 1e-6
