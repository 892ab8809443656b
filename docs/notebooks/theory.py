# %% [markdown]
# # Theory in pictures
#
# From one person's row to crowds: the ideas that the gate is built on, in the order in which the
# five talks behind it tell them. Every picture is drawn by the library itself. Proofs stand beside
# the code; the table in [decks.md](../../decks.md) says where.

# %% tags=["parameters"]
SIDE = 255

# %% tags=["hide"]
import altair as alt
import numpy as np
import pandas as pd

import noisegate as ng
from noisegate.lab import intersections
from noisegate.lab.bounds import bounds
from noisegate.lab.crowds import compare, made_up
from noisegate.lab.ratios import laws
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.planning.reports import report
from noisegate.privacy.distance import L1
from noisegate.privacy.event import Repeated

chance = np.random.default_rng(11)

# %% [markdown]
# ## Two models
#
# *Interactive*: the rows stay behind a mechanism K, and whoever asks f gets f(DB) + noise.
# *Non-interactive*: a table, a map or synthetic rows are published once. A gate does both, and the
# promise is one: it is about the mechanism, never about a single output that "looks safe".
#
# ## With me and without me
#
# Take a count of people. K(DB - me) is the law of the answer without my row, K(DB + me) with it.
# If no answer is much likelier under one than under the other, then nothing that follows from the
# answer is much likelier because I took part:
#
# P[K(DB + me) = a] ≤ e^ε · P[K(DB - me) = a] for every answer a, and the other way round.
#
# In the picture the white band is what ε allows, and the shaded part is forbidden. Crosses are
# draws of the real mechanism.

# %%
laws("geometric", epsilon=1, draws=20_000)

# %% [markdown]
# An exact count fails for every ε, and so does a rounded one: some answers come from one of the
# two tables alone.

# %%
laws("raw", epsilon=1)

# %% [markdown]
# ## What somebody concludes
#
# By Bayes' rule, posterior odds are prior odds times the ratio above. So whatever was known before,
# the answer moves the odds about me by at most e^ε. This holds for every prior and needs no
# assumption about what else is known.

# %%
prior = np.linspace(0.01, 0.99, 99)
beliefs = pd.DataFrame([
    {"belief before": p, "at most after": p * np.exp(e) / (1 - p + p * np.exp(e)), "ε": f"{e:g}"}
    for e in (0.1, 0.5, 1, 3) for p in prior
])  # fmt: skip
alt.Chart(beliefs).mark_line().encode(
    x=alt.X("belief before:Q", axis=alt.Axis(format="%")),
    y=alt.Y("at most after:Q", axis=alt.Axis(format="%")), color="ε:N",
).properties(width=380, height=260)  # fmt: skip

# %%
print(ng.meaning(1))

# %% [markdown]
# ## Where geometric noise comes from
#
# Write α = e^-ε and p for the chance of the exact answer. A neighbour's count is one away, so the
# chance of being i away is at least α^i p. Turning the inequalities into equations makes p as large
# as it can be; the chances sum to one, which gives
#
# P[K(n) = m] = (1 - α) / (1 + α) · α^|m - n|.
#
# Clamping the answer into 0 to N does no harm: it is computed from the noisy number alone.

# %%
laws("truncated-geometric", epsilon=1, draws=20_000)

# %% [markdown]
# ## The exponential mechanism, and why it is the same
#
# To choose among outputs o that have a score q(DB, o), draw o with weight e^(ε q / 2Δ), where Δ is
# how far one row moves a score. If the outputs are all whole numbers and the score is -|o - n|, the
# weights add up to the same for every n. So the factor 2 is not needed, and the law is the geometric
# one.

# %%
same = laws("exponential", epsilon=1, draws=20_000)
print(f"largest difference of the two laws: {same.from_geometric:.1g}")
same

# %% [markdown]
# A median needs this. Its global sensitivity is the whole range, so plain noise would drown it. By
# ranks, one person moves a score by one: values are drawn by how far their rank is from the middle.

# %%
ages = np.clip(chance.normal(40, 12, 2_000), 0, 110).round().astype(int)
gate = ng.open(
    pd.DataFrame({"age": ages}), table="people", epsilon=10, columns={"age": {"between": [0, 110]}}
)
median = gate.sql("SELECT MEDIAN(age) AS median FROM people", epsilon=0.5)
print("by ranks:", median.value, "±", median.margin, "· exact:", np.median(ages))
print("noise for the whole range would have a scale of", 110 / 0.5)

# %% [markdown]
# ## Gaussian noise, and what δ is
#
# Gaussian noise crosses the line in its tails. The probability of landing there, beyond what ε
# allows, is δ. It buys better sums of many questions.

# %%
laws("gaussian", epsilon=1, draws=20_000)

# %% [markdown]
# ## Sensitivity, and a map at four prices
#
# Noise follows from what one person can change, and from nothing else: not from the number of
# people, and not from the number of cells. A person is in one cell of a map, so 65,025 counts cost
# what one count costs. The noise of a cell has a mean size of 1 / sinh ε, and the largest of n of
# them grows like ln(n) / ε.

# %%
exact, drawn = intersections.run(side=SIDE)
pd.DataFrame(
    [
        (
            f"{float(each.epsilon):g}",
            each.mean_error,
            each.expected_mean,
            each.max_error,
            each.expected_max,
            each.auto_mean,
        )
        for each in drawn
    ],
    columns=["ε", "mean error", "closed form", "largest", "expected", "mean error of release map"],
).round(2)

# %%
intersections.picture(exact, drawn)

# %% [markdown]
# ## Prices add up
#
# q answers at ε each are together q ε-private. Sharper theorems count how unlikely it is that all
# of them lose at once, and grow with the square root of q. A ledger that stores events can be
# priced by any of them.

# %%
noise = Geometric.for_epsilon("0.1", sensitivity=L1(1))
rows = [
    {"questions": n, "theorem": each.method, "total": float(each.epsilon)}
    for n in (1, 5, 10, 20, 40, 70, 100, 150, 200)
    for each in report([Repeated(event=noise.event(L1(1)), count=n)], delta="1e-6")
    if each.epsilon is not None and each.method in ("basic", "advanced", "optimal", "zcdp")
]
alt.Chart(pd.DataFrame(rows)).mark_line(point=True).encode(
    x=alt.X("questions:Q", title="questions at ε = 0.1 each"),
    y=alt.Y("total:Q", title="ε of all together, δ = 10⁻⁶"),
    color="theorem:N",
).properties(width=460, height=260)

# %% [markdown]
# Answers about disjoint groups of people cost together what the dearest one does. And whatever is
# computed from released numbers is free.
#
# ## How many rows are enough?
#
# For k means of values up to b within γ, the rule of thumb is n = k b / (γ ε). It holds for one
# question in 63 % of cases. The library computes the number for a confidence, in any direction.

# %%
for k in (1, 10, 100):
    found = ng.enough(queries=k, bound=1, tolerance="0.01", epsilon=1)
    print(f"{k:3} questions: rule of thumb {k * 100:,} rows; for 95 %: {int(found.rows):,}")

# %% [markdown]
# ## What nobody can do better
#
# If every subset of n people could be counted within less than √n, the rows could be
# [reconstructed](lab_reconstruction.md). Lower bounds say how far any ε-private mechanism must be
# off; on a logarithmic scale, here is what the gate reaches.

# %%
limits = pd.DataFrame(
    [
        {"task": each.task, "error": value, "which": which}
        for each in bounds(epsilon=1)
        for which, value in (("nobody below", each.least), ("the gate", each.reached))
    ]
)
alt.Chart(limits).mark_point(size=110, filled=True).encode(
    x=alt.X("error:Q", scale=alt.Scale(type="log")),
    y=alt.Y("task:N", title=None, axis=alt.Axis(labelLimit=260)), color=alt.Color("which:N", title=None),
).properties(width=420, height=150)  # fmt: skip

# %% [markdown]
# ## Learning from noisy sums
#
# Whatever can be learnt from statistics of the rows (means, counts, how much a split helps) can be
# learnt from noisy ones. Trees, perceptrons, k-means and principal components need nothing else, so
# a learner that sees rows only through K is private, whatever it computes.
#
# ## Crowds
#
# Survey offices hide small counts and show the others exactly. That alone is not differentially
# private. If the rows are a *secret random sample*, it is: whoever is in a crowd of k blends in,
# whoever is not is ignored, and the sample hides who was asked. Hatched cells are hidden; the line
# is at k.

# %%
counts = made_up(6_000, 16)
towns = np.repeat([f"town {n + 1}" for n in range(16)], counts)
crowd_gate = ng.open(
    pd.DataFrame({"town": towns}), table="people", epsilon=4, delta=1e-3,
    columns={"town": {"in": [f"town {n + 1}" for n in range(16)]}},
)  # fmt: skip
crowd = crowd_gate.release(
    "crowd-histogram", columns={"town": None}, epsilon=1, probability="1/2", delta="1e-5"
)
crowd.plot()

# %%
ways = compare(made_up(100_000, 100), probability="1/10", crowd=36, delta="1e-6", trials=20)
pd.DataFrame(
    [(each.name, each.promise, each.of_people, each.hidden) for each in ways],
    columns=["way", "promise", "error of large counts", "hidden cells"],
).round(1)

# %% [markdown]
# Where all rows may be used, noise on all of them errs least. Where only a sample was asked, the
# sampling error is there anyway, and a crowd's counts are what was counted.
#
# Next: the lab shows what goes wrong without these rules, beginning with
# [differencing](lab_differencing_and_averaging.md).

# %% tags=["hide"]
# Laws are closed forms, without chance. A mean over 2,601 cells or more is off by a tenth with
# probability below 1e-4 for each of four prices.
assert laws("geometric", epsilon=1).forbidden == 0
assert same.from_geometric < 1e-15
assert all(0.9 < each.mean_error / each.expected_mean < 1.1 for each in drawn)
assert all(each.least <= each.reached for each in bounds(epsilon=1))
