# %% [markdown]
# # Lab: what privacy does not promise
#
# Differential privacy promises that taking part adds next to nothing to what can be learnt about
# you. It does not promise that nothing can be learnt. Two stories, and three limits that follow
# from the definition.

# %% tags=["parameters"]
PEOPLE = 4_000

# %% tags=["hide"]
import altair as alt
import numpy as np
import pandas as pd

import noisegate as ng
from noisegate.lab.bounds import bounds
from noisegate.lab.ratios import laws
from noisegate.lab.unpromised import run

chance = np.random.default_rng(10)

# %% [markdown]
# ## The smoker who stayed at home
#
# A study finds that smokers fall ill more often. An insurer who knows that Bob smokes raises his
# premium. The study harmed him; his row did not, since the same is found without it.

# %%
smokes = chance.random(PEOPLE) < 0.3
ill = chance.random(PEOPLE) < np.where(smokes, 0.4, 0.1)
study = pd.DataFrame({"smokes": smokes, "ill": ill.astype(int)})
study.loc[0] = [True, 0]  # Bob
facts = {
    "smokes": {"type": "boolean", "nullable": False},
    "ill": {"type": "integer", "between": [0, 1]},
}
RISK = "SELECT smokes, AVG(ill) AS risk FROM study GROUP BY smokes"
found = {}
for name, rows in {"with Bob": study, "without Bob": study[1:]}.items():
    gate = ng.open(rows, table="study", epsilon=1, columns=facts)
    found[name] = gate.sql(RISK, epsilon=1).to_pandas(0.95)
risks = pd.concat([frame.assign(study=name) for name, frame in found.items()])
base = alt.Chart(risks[risks["smokes"]]).encode(y=alt.Y("study:N", title=None))
bars = base.mark_bar(color="#5b8cc0").encode(
    x=alt.X("risk:Q", title="risk of smokers", axis=alt.Axis(format="%"))
)
ends = base.transform_calculate(
    low="datum.risk - datum.risk_margin", high="datum.risk + datum.risk_margin"
)
(bars + ends.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")).properties(
    width=420, height=90
)

# %% [markdown]
# ## The average height
#
# Somebody knows that Ann is 5 cm taller than the average. Once the average is published, her height
# is known, whether or not she was measured. What others know already can make any useful answer
# harmful; no mechanism that is useful can rule this out. It can make sure that Ann's own row had no
# part in it.

# %%
pd.DataFrame(
    [(each.title, each.with_row, each.without_row, each.unit) for each in run(epsilon=1)],
    columns=["story", "with the row", "without it", ""],
).round(1)

# %% [markdown]
# ## A family is more than a person
#
# ε is for one unit. For k units who share a secret it is k ε: a household of five has five times
# the loss of one person. Where families are the worry, make the household the unit.

# %%
belief = pd.DataFrame(
    [
        {"ε": e, "people": k, "belief": 1 / (1 + np.exp(-k * e))}
        for e in np.linspace(0, 2, 41)
        for k in (1, 2, 5)
    ]
)
alt.Chart(belief).mark_line().encode(
    x="ε:Q",
    y=alt.Y(
        "belief:Q",
        title="an attacker's belief, from 50 %, at most",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0.5, 1]),
    ),
    color=alt.Color("people:N", title="people who share the secret"),
).properties(width=480, height=240)

# %% [markdown]
# ## The ratio is not zero
#
# With my row and without it, the answers have nearly the same law. Nearly: their ratio is between
# e^-ε and e^ε, and the shaded part is forbidden.

# %%
laws("geometric", epsilon=1, draws=20_000)

# %% [markdown]
# Gaussian noise crosses the line in its tails. That is what δ is for.

# %%
laws("gaussian", epsilon=1, draws=20_000)

# %% [markdown]
# Rounding, and the count itself, are beyond any ε.

# %%
laws("rounded", epsilon=1)

# %% [markdown]
# ## Accuracy has a price that nobody can avoid
#
# No ε-private mechanism has errors below these, however clever it is.

# %%
pd.DataFrame(
    [(each.task, each.error, each.least, each.reached) for each in bounds(epsilon=1)],
    columns=["task at ε = 1", "error", "nobody below", "here"],
).round(2)

# %% tags=["hide"]
# Both studies find a risk between 0.3 and 0.5, which misses by 0.1; at ε = 1 a mean of 1,200 smokers
# is off by more than 0.05 with probability below 1e-9, and the rows themselves are fixed.
risk = risks[risks["smokes"]]["risk"]
assert risk.between(0.3, 0.5).all()
assert laws("geometric", epsilon=1).forbidden == 0 < laws("gaussian", epsilon=1).forbidden
assert all(each.least <= each.reached for each in bounds(epsilon=1))
