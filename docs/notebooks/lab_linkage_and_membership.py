# %% [markdown]
# # Lab: linkage and membership
#
# Removing names is not enough. What is left of a row may be unique, and what is left of a table may
# tell who was in it. Seven attacks, each on raw answers, on a classic defence, and on a gate.
#
# The solid line in each picture is what ε allows any attacker, however clever; the dashed one is
# guessing. Rates are measured in 100 trials and err by about 4 %: an attack that reaches its bound is
# above it in half of all runs.

# %% tags=["parameters"]
TIMES = 100

# %% tags=["hide"]
import altair as alt
import numpy as np
import pandas as pd

from noisegate.lab.attacks.run import tried

chance = np.random.default_rng(8)

# %% [markdown]
# ## Linkage by age, town and sex
#
# **Raw answers**: a table without names. How many people are alone with their age, town and sex?

# %%
towns = chance.choice(200, 10_000, p=(lambda w: w / w.sum())(1 / np.arange(1, 201)))
table = pd.DataFrame(
    {"age": chance.integers(0, 95, 10_000), "town": towns, "sex": chance.integers(0, 2, 10_000)}
)
sizes = table.groupby(["age", "town", "sex"]).size()
print(f"{(sizes == 1).sum() / len(table):.0%} of 10,000 people are the only one of their kind")

# %% [markdown]
# **A classic defence**: 5-anonymity makes values coarser until five people look alike. Their
# illnesses are still a short list, and sometimes there is only one.
#
# **The gate** answers a count by illness of just such people, with noise that hides one of them.

# %%
(linkage,) = tried(["linkage"], epsilon=1, times=TIMES)
linkage

# %% [markdown]
# ## Two hospitals, one patient
#
# **Raw answers**: two tables without names, of two hospitals. Who was in both has one illness that
# both list. **A classic defence**: each table is 5-anonymous, and the two together are not.
# Anonymity does not compose. **Two gates** do: each spends ε, and together they allow what one gate
# allows that spends 2 ε.

# %%
(hospitals,) = tried(["two-hospitals"], epsilon=1, times=TIMES)
hospitals

# %% [markdown]
# ## Four films name the viewer
#
# Ratings are sparse: hardly two people rated the same few films. **Raw answers**: who knows four
# films that somebody rated finds the one record that has all of them, and reads the rest. **A
# classic defence** leaves out a fifth of all ratings. **The gate** counts the viewers who have
# these films and the secret one. A rating more or less changes one record for another, so the bound
# is that of 2 ε.

# %%
(ratings,) = tried(["ratings"], epsilon=1, times=TIMES)
ratings

# %% [markdown]
# ## Membership in a table of means
#
# **Raw answers**: only means are published, of 800 traits of 40 people. Each mean leans a little
# towards everybody inside. The leanings add up.

# %%
p = chance.uniform(0.1, 0.9, 800)
inside = chance.random((40, 800)) < p
means = inside.mean(axis=0)
outside = chance.random((40, 800)) < p
lean = pd.DataFrame(
    {
        "leaning": np.r_[(inside - p) @ (means - p), (outside - p) @ (means - p)],
        "who": ["inside"] * 40 + ["outside"] * 40,
    }
)
alt.Chart(lean).mark_tick(thickness=2).encode(
    x="leaning:Q", y=alt.Y("who:N", title=None), color=alt.Color("who:N", legend=None)
).properties(width=560, height=90, title="How far each person agrees with 800 published means")

# %% [markdown]
# **A classic defence**: means rounded to one decimal. **The gate**: noise for one person grows with
# the number of means that are told.

# %%
(tracing,) = tried(["tracing"], epsilon=1, times=TIMES)
tracing

# %% [markdown]
# ## Membership in a model
#
# **Raw answers**: a regression with nearly as many weights as rows passes close to each row it was
# fitted to. Who knows the target's row looks at its error. **A classic defence**: a ridge penalty.
# **The gate**: its learner fits noisy sums, in which no row stands out.

# %%
(model,) = tried(["model"], epsilon=1, times=TIMES)
model

# %% [markdown]
# ## The person with green hair
#
# One person in town has green hair. **Raw answers**: a model of the sick has a weight for green
# hair only if that person was in the study. **A classic defence**: a penalty makes the weight
# smaller, not zero. **The gate**: every weight has noise, with the person and without.

# %%
(green,) = tried(["green-hair"], epsilon=1, times=TIMES)
green

# %% [markdown]
# ## Disguised rows
#
# "Synthetic" may mean little. **Raw answers**: real rows with a blur. **A classic defence**: rows
# between real neighbours (SMOTE). Both fill the place around an unusual person exactly if that
# person is there. **The gate**: rows that follow from noisy tables, which also fill places where
# nobody is.

# %%
(synthetic,) = tried(["synthetic"], epsilon=1, times=TIMES)
synthetic

# %% tags=["hide"]
# A gate that keeps ε fails with probability below 1e-6 for each attack. Slow attacks are played a
# half or a quarter as often.
from scipy.stats import binom

for found in (linkage, hospitals, ratings, tracing, model, green, synthetic):
    times = max(2, TIMES // {"model": 2, "synthetic": 4}.get(found.name, 1))
    assert found.raw.success > 0.8
    assert binom.sf(round(found.gate.success * times) - 1, times, found.bound) > 1e-6
