# %% [markdown]
# # Lab: reconstruction
#
# Dinur and Nissim showed in 2003 that answers which are too accurate to too many questions give
# away nearly the whole table. This is why noise has to grow with the number of questions, and why
# a gate has a budget.

# %% tags=["parameters"]
TIMES = 100

# %% tags=["hide"]
import altair as alt
import numpy as np
import pandas as pd
from scipy.optimize import linprog

from noisegate.lab.attacks.run import tried

chance = np.random.default_rng(7)

# %% [markdown]
# ## The table and the questions
#
# Forty people each have one secret bit. Each of 120 questions counts the bits of a random half of
# them. Who might be in the table is public; the bits are not.

# %%
PEOPLE, QUESTIONS = 40, 120
secret = chance.integers(0, 2, PEOPLE)
groups = chance.integers(0, 2, (QUESTIONS, PEOPLE))
counts = groups @ secret

# %% [markdown]
# ## By least squares
#
# ### Raw answers
#
# 120 equations for 40 unknowns: one line of linear algebra.


# %%
def least_squares(answers):
    return np.linalg.lstsq(groups, answers, rcond=None)[0] > 0.5


def found(guess):
    return (guess == secret).mean()


print(f"exact counts: {found(least_squares(counts)):.0%} of the bits are found")

# %% [markdown]
# ### A classic defence: rounding
#
# Errors below the square root of the number of people do not help.

# %%
print(f"rounded to multiples of 4: {found(least_squares(np.round(counts / 4) * 4)):.0%}")

# %% [markdown]
# ### The gate
#
# One budget of ε = 1 is shared by all 120 questions, so that each has ε = 1/120.

# %%
(squares,) = tried(["reconstruction"], epsilon=1, times=TIMES)
squares

# %% [markdown]
# How much noise is enough? Here is the share of bits found when each answer has Laplace noise of a
# given mean error. The vertical line is the square root of 40. The noise of the gate, for 120
# questions at ε = 1 together, has a mean error of 120.

# %%
sizes = np.geomspace(0.25, 120, 14)
tries = [
    {"mean error of an answer": size, "bits found": found(least_squares(counts + chance.laplace(0, size, QUESTIONS)))}
    for size in sizes for _ in range(20)
]  # fmt: skip
frame = pd.DataFrame(tries).groupby("mean error of an answer", as_index=False).mean()
axis = alt.X("mean error of an answer:Q", scale=alt.Scale(type="log"))
curve = alt.Chart(frame).mark_line(point=True, color="#5b8cc0").encode(
    x=axis, y=alt.Y("bits found:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0.4, 1]))
)  # fmt: skip
root = alt.Chart(pd.DataFrame({"x": [PEOPLE**0.5]})).mark_rule(strokeDash=[4, 3]).encode(x="x:Q")
(curve + root).properties(
    width=560, height=240, title="Reconstruction stops where errors exceed √n"
)

# %% [markdown]
# ## By linear programming
#
# ### Raw answers, and rounded ones
#
# A linear program looks for the bits whose answers err least in all. It also withstands a few
# answers that are far off.


# %%
def linear_program(answers):
    eye = np.eye(QUESTIONS)
    cost = np.r_[np.zeros(PEOPLE), np.ones(QUESTIONS)]
    sides = np.vstack([np.hstack([groups, -eye]), np.hstack([-groups, -eye])])
    limits = [(0, 1)] * PEOPLE + [(0, None)] * QUESTIONS
    return linprog(cost, sides, np.r_[answers, -answers], bounds=limits).x[:PEOPLE] > 0.5


wild = counts + np.where(chance.random(QUESTIONS) < 0.1, 30, 0)
print(f"exact: {found(linear_program(counts)):.0%}")
print(f"rounded to multiples of 4: {found(linear_program(np.round(counts / 4) * 4)):.0%}")
print(f"every tenth answer far off: {found(linear_program(wild)):.0%}")

# %% [markdown]
# ### The gate

# %%
(program,) = tried(["reconstruction-lp"], epsilon=1, times=TIMES)
program

# %% tags=["hide"]
# Forty bits are as good as forty trials: a gate that keeps ε fails with probability below 1e-6 each.
from scipy.stats import binom

assert found(least_squares(counts)) == found(linear_program(counts)) == 1
for each in (squares, program):
    assert each.raw.success == 1
    assert each.classic.success > each.bound
    assert binom.sf(round(each.gate.success * PEOPLE) - 1, PEOPLE, each.bound) > 1e-6
