# %% [markdown]
# # Web logs: a user is more than a row
#
# A web site keeps a log of page views. Most users view a few pages, some view hundreds. Noise that
# hides one *row* hides a light user and exposes a heavy one. Here the unit is the user: everything
# that one of them ever did is protected together.
#
# The log is made up. Pages are not listed in advance: which of them exist is itself a secret, since
# a page may have been viewed by one user only.

# %% tags=["parameters"]
USERS = 6_000

# %% tags=["hide"]
import duckdb
import numpy as np
import pandas as pd

chance = np.random.default_rng(4)
often = np.clip(np.round(chance.pareto(1.6, USERS) * 4 + 1), 1, 400).astype(int)
log = pd.DataFrame({"user_id": np.repeat(np.arange(USERS), often)})
weight = 1 / np.arange(1, 301) ** 1.2
rank = chance.choice(np.arange(1, 301), len(log), p=weight / weight.sum())
log["page"] = np.where(rank == 1, "/", np.char.add("/page/", rank.astype(str)))
log["device"] = np.repeat(
    chance.choice(["phone", "laptop", "tablet"], USERS, p=[0.6, 0.33, 0.07]), often
)
start = np.repeat(chance.integers(0, 40, USERS), often)
log["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(
    start + chance.geometric(0.12, len(log)) - 1, unit="D"
)
log["ms"] = np.clip(chance.lognormal(5.2, 0.8, len(log)), 5, 60_000).round()
log = log[log["day"] <= "2026-02-25"].reset_index(drop=True)
log.loc[len(log)] = [17, "/draft/merger", "laptop", pd.Timestamp("2026-02-01"), 210.0]
log.to_parquet("views.parquet")
raw = duckdb.connect()
raw.sql("CREATE TABLE views AS FROM 'views.parquet'")
busy = log["user_id"].value_counts()
print(f"{len(log):,} views by {len(busy):,} users; the busiest made {busy.max()}")

# %% [markdown]
# ## The gate
#
# A user counts with at most 30 views, and in at most 8 groups of a question. The budget has a δ,
# which pays for groups that are found.

# %%
import noisegate as ng

facts = {
    "user_id": {"type": "integer"},
    "page": {},
    "device": {"in": ["phone", "laptop", "tablet"]},
    "day": {"type": "date", "between": ["2026-01-01", "2026-02-25"]},
    "ms": {"type": "number", "between": [0, 5000]},
}
terms = {
    "unit": "user_id", "rows_per_unit": 30, "groups_per_unit": 8,
    "epsilon": 6, "delta": 1e-6, "columns": facts,
}  # fmt: skip
gate = ng.open("views.parquet", **terms)
gate

# %% [markdown]
# ## Views, and what a contribution bound leaves out
#
# A few users have more than 30 views. Counting views leaves some of theirs out, and how many is
# private too. The answer says that it is a lower bound.

# %%
views = gate.sql("SELECT device, COUNT(*) AS views FROM views GROUP BY device", epsilon=0.5)
views

# %% [markdown]
# The gate can estimate what other bounds would lose, for a price that is paid once.

# %%
profile = gate.caps("views", epsilon=0.5)
for cap in (10, 30, 100):
    kept = 1 - profile.lost(cap)
    print(f"a bound of {cap:3} views per user keeps about {kept:.0%} of all views")

# %% [markdown]
# From now on the ± of such questions includes what the bound leaves out, as far as that estimate
# tells.

# %%
again = gate.sql(
    "SELECT device, COUNT(*) AS views FROM views GROUP BY device", epsilon=0.5, fresh=True
)
exact = raw.sql(again.sql).df().rename(columns={"views": "exact"})
again.to_pandas(0.95).merge(exact, on="device").round(0)

# %% [markdown]
# Counting *users* needs none of this: a user has one device, and counts once.

# %%
users = gate.sql(
    "SELECT device, COUNT(DISTINCT user_id) AS users FROM views GROUP BY device", epsilon=0.5
)
exact = raw.sql(users.sql).df().rename(columns={"users": "exact"})
users.to_pandas(0.95).merge(exact, on="device").round(1)

# %% [markdown]
# ## Pages that nobody listed
#
# Pages are found privately: a page is shown when so many users viewed it that one of them cannot
# decide whether it appears. The price has a δ. `/draft/merger`, viewed once, stays unseen.

# %%
pages = gate.sql(
    """SELECT page, COUNT(DISTINCT user_id) AS users FROM views
       GROUP BY page ORDER BY users DESC LIMIT 12""",
    epsilon=1,
)
assert "/draft/merger" not in pages["page"]
pages

# %% [markdown]
# ## Do users come back?
#
# One row per user first, exactly and inside the gate; then a question about users.

# %%
returns = gate.sql(
    """SELECT days, COUNT(*) AS users
       FROM (SELECT user_id, LEAST(COUNT(DISTINCT day), 8) AS days FROM views GROUP BY user_id)
       GROUP BY days ORDER BY days""",
    epsilon=0.5,
)
returns.plot(title="Users by the number of days on which they came (8: and more)")

# %% [markdown]
# ## Users day by day
#
# A series of 56 days. A user who comes on 8 days counts on 8 of them. Sums over days, such as a
# week of user-days, follow from the release at no cost.

# %%
daily = gate.release(
    "series",
    "SELECT day, COUNT(DISTINCT user_id) AS users FROM views GROUP BY day",
    epsilon=1,
)
daily.plot()

# %%
week = daily.query(day=("2026-01-12", "2026-01-18"))
truth = raw.sql(
    """SELECT SUM(n) FROM (SELECT day, COUNT(DISTINCT user_id) AS n FROM views
       WHERE day BETWEEN '2026-01-12' AND '2026-01-18' GROUP BY day)"""
).fetchall()[0][0]
print("user-days of a week:", week, "· exact, without a contribution bound:", truth)

# %% [markdown]
# ## How slow are pages?
#
# Quantiles have bounds on ranks and values; users with many views count for at most 30.

# %%
slow = gate.sql(
    """SELECT device, MEDIAN(ms) AS middle, QUANTILE_CONT(ms, 0.9) AS tenth
       FROM views GROUP BY device""",
    epsilon=1,
)
slow

# %% [markdown]
# ## What was paid
#
# The history is a list of events, not of prices: a sharper theorem can price them again later.

# %%
gate.history()[-6:]

# %%
print("spent", gate.spent, "· left", gate.remaining)
daily.card()

# %% tags=["hide"]
# The bars of `users` and `returns` are proven: all 11 numbers are within them at 1 - 1e-7, but for
# one run in 900,000. The page that one user viewed is shown with probability at most the δ of the
# question, 1e-8.
for answer, key in ((users, "device"), (returns, "days")):
    truth = dict(raw.sql(answer.sql).fetchall())
    told = zip(answer[key], answer["users"], answer.margins("0.9999999")["users"], strict=True)
    assert all(abs(n - truth.get(name, 0)) <= width for name, n, width in told)
assert gate.ledger.verify().ok
