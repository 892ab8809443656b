# %% [markdown]
# # Lab: noise and side channels
#
# A proof is about numbers on paper. Here are four ways in which a program can break it: noise in
# floating point, noise whose width depends on the rows, a price that depends on the rows, and time.
#
# Rates are measured in 100 trials and err by about 4 %: an attack that reaches the solid line, which
# ε allows to anybody, is above it in half of all runs.

# %% tags=["parameters"]
TIMES = 100

# %% tags=["hide"]
from math import exp, log

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa

import noisegate as ng
from noisegate.lab.attacks.run import tried
from noisegate.noise import discrete_laplace

chance = np.random.default_rng(9)

# %% [markdown]
# ## The last bits of a double
#
# **Raw answers** are exact. **A classic defence**: Laplace noise by the textbook is the logarithm
# of one of 2⁵³ random doubles. Here are all answers near 1 that it can give to a count of 0 and to a
# count of 1, in steps of 2⁻⁵³. The upper row has holes: whoever sees an answer there knows that the
# count was 1, whatever ε was.

# %%
FINE = 2**53


def answers(count, wholes, sign=1):
    """What textbook noise makes of a count, in steps from 1."""
    return {(count + sign * -log(whole / FINE) - 1) * FINE for whole in wholes}


near = round(exp(-1) * FINE)
possible = {
    "a count of 0": answers(0, range(near - 20, near + 21)),
    "a count of 1": answers(1, range(FINE - 30, FINE + 1))
    | answers(1, range(FINE - 30, FINE + 1), -1),
}
frame = pd.DataFrame(
    [
        {"exact": name, "step": step}
        for name, found in possible.items()
        for step in found
        if abs(step) <= 24
    ]
)
alt.Chart(frame).mark_tick(thickness=2).encode(
    x=alt.X("step:Q", title="steps of 2⁻⁵³ from 1"),
    y=alt.Y("exact:N", title=None),
    color=alt.Color("exact:N", legend=None),
).properties(width=560, height=80)

# %% [markdown]
# **The gate** adds whole numbers to whole numbers. Its samplers compare secure bits with the exact
# probability, so that the law drawn is the law claimed.

# %%
draws = np.bincount(np.abs(discrete_laplace(1, 100_000)), minlength=6)[:6] / 100_000
alpha = np.exp(-1)
law = np.array([(1 - alpha) / (1 + alpha) * alpha**k * (2 if k else 1) for k in range(6)])
pd.DataFrame({"|noise|": range(6), "drawn": draws, "law": law}).round(4)

# %%
(floats,) = tried(["floats"], epsilon=1, times=TIMES)
floats

# %% [markdown]
# ## Noise that fits the rows
#
# **Raw answers** are sums of incomes. **A classic defence** adds noise for the largest income *in
# the table*. Why hide a millionaire where there is none? Because then the width of the noise tells
# that there is one.

# %%
incomes = chance.integers(10, 90, 500)
sums = pd.concat(
    [
        pd.DataFrame(
            {
                "answer": rows.sum() - incomes.sum() + chance.laplace(0, rows.max(), 400),
                "table": name,
            }
        )
        for name, rows in {
            "without her": incomes,
            "with a millionaire": np.r_[incomes, 1_000],
        }.items()
    ]
)
alt.Chart(sums).mark_tick(opacity=0.4).encode(
    x=alt.X("answer:Q", title="noisy sum, less the sum without her"),
    y=alt.Y("table:N", title=None), color=alt.Color("table:N", legend=None),
).properties(width=560, height=90)  # fmt: skip

# %% [markdown]
# **The gate** takes the width from declared bounds, or from smooth bounds that one person hardly
# moves. A sum without bounds is refused.

# %% tags=["refused"]
rows = pa.table({"income": incomes})
ng.open(rows, table="people", epsilon=1).sql(
    "SELECT SUM(income) FROM people", epsilon=0.5, choose=[]
)

# %%
(width,) = tried(["width"], epsilon=1, times=TIMES)
width

# %% [markdown]
# ## The balance tells
#
# **Raw answers** are counts. **A classic defence** adds noise, and charges nothing where no row was
# read, or fails where a row cannot be read: the balance tells, whatever noise the answer has. **The
# gate** charges before it reads. The price follows from the question and the policy alone.

# %%
prices = []
for held in ([], [1], [1] * 1000):
    gate = ng.open(pa.table({"ill": pa.array(held, pa.int64())}), table="people", epsilon=1)
    gate.sql("SELECT COUNT(*) AS n FROM people WHERE 1 / ill > 0", epsilon=0.25)
    prices.append((len(held), str(gate.spent), str(gate.remaining)))
pd.DataFrame(prices, columns=["rows", "spent", "left"])

# %%
(budget,) = tried(["budget"], epsilon=1, times=TIMES)
budget

# %% [markdown]
# ## The clock tells
#
# **Raw answers** come when they are ready, and a function that is slow only where the target's row
# is read gives the row away. **A classic defence** adds noise to the answer and leaves the time.
# **The gate** refuses functions whose work depends on values, and the service lets answers go at
# fixed times. Whoever asks in a process of their own, as `noisegate ask` does, still has a clock:
# that is for stewards.

# %%
(timing,) = tried(["timing"], epsilon=1, times=TIMES)
timing

# %% tags=["hide"]
# The draws are off by more than 0.01 with probability below 1e-9 each; a gate that keeps ε fails
# with probability below 1e-6 for each attack.
from scipy.stats import binom

assert np.abs(draws - law).max() < 0.01
assert {s for s in possible["a count of 1"] if abs(s) < 20} - possible["a count of 0"]
assert len({spent for _, spent, _ in prices}) == 1
for found in (floats, width, budget, timing):
    assert found.raw.success > 0.8 or found is timing  # a busy machine has no clock
    assert binom.sf(round(found.gate.success * TIMES) - 1, TIMES, found.bound) > 1e-6
