# %% [markdown]
# # Gallery of releases
#
# One release of each kind, with the command that made it, its picture and its card. The rows are
# those of [examples](../../../examples/README.md), which are made up; every command runs there as it
# stands. `--budget` is given with the first question about a file.

# %% tags=["parameters"]
DRAW = True

# %% tags=["hide"]
import contextlib
import io
import shlex
import shutil
import sys
from base64 import b64encode
from html import escape
from pathlib import Path

import noisegate as ng
from noisegate.cli import main

shutil.copytree(Path(ng.__file__).parents[2] / "examples", "examples")
cards = []


class Published:
    """A picture above its card."""

    def __init__(self, picture, card):
        self.picture, self.card = picture, card

    def _repr_html_(self):
        held = b64encode(self.picture.encode()).decode()
        card = escape(self.card).replace("\n", "&#10;")
        return (
            f'<img alt="chart" src="data:image/svg+xml;base64,{held}">'
            f"<details><summary>Release card</summary><pre>{card}</pre></details>"
        )


def noisegate(command):
    """Run a command in the folder of examples; its picture and its card."""
    saved = ["--save", "made.svg"] if DRAW else []
    with contextlib.chdir("examples"), contextlib.redirect_stdout(io.StringIO()):
        before = sys.argv
        sys.argv = ["noisegate", *shlex.split(command), "--save", "made.md", *saved]
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, command
        finally:
            sys.argv = before
        cards.append(Path("made.md").read_text())
        return Published(Path("made.svg").read_text() if DRAW else "", cards[-1])


# %% [markdown]
# ## Histogram

# %%
noisegate("""
    release histogram people.csv --columns age=10,ward --type age=integer --between age=0,109
    --keys ward=north,south,west --epsilon 1 --budget 20 --delta 1e-3
""")

# %% [markdown]
# ## Series
#
# Patients by quarter, of a table with several rows per person: a patient counts in at most three
# quarters, and in each of them once. Running totals are drawn above, single quarters below.

# %%
noisegate("""
    release series clinic/visits.csv
    "SELECT COUNT(DISTINCT patient_id) AS patients FROM visits GROUP BY DATE_TRUNC('quarter', day)"
    --unit patient_id --rows-per-unit 8 --groups-per-unit 3 --type day=date --between
    day=2024-01-01,2025-12-31 --type cost=number --between cost=0,800 --keys
    ward=north,south,east,west --epsilon 2 --budget 20
""")

# %% [markdown]
# ## Map
#
# Two axes in order, here quarters and costs. Boxes are split where there are many rows.

# %%
noisegate("""
    release map clinic/visits.csv --columns day=quarter,cost=100 --unit patient_id
    --rows-per-unit 8 --groups-per-unit 3 --type day=date --between day=2024-01-01,2025-12-31
    --type cost=number --between cost=0,800 --keys ward=north,south,east,west --method
    quadtree --epsilon 4
""")

# %% [markdown]
# ## Box plot
#
# Five quantiles of each group, by ranks; the medians have an error bar of their own.

# %%
noisegate("""
    release boxplot people.csv --columns age,ward --type age=integer --between age=0,109
    --keys ward=north,south,west --epsilon 2
""")

# %% [markdown]
# ## Distribution function
#
# The band holds everywhere at once.

# %%
noisegate("""
    release cdf people.csv --columns age=5 --type age=integer --between age=0,109 --keys
    ward=north,south,west --epsilon 1
""")

# %% [markdown]
# ## Marginals
#
# All tables of two of the columns, consistent with each other.

# %%
noisegate("""
    release marginals clinic/visits.csv --columns ward,day=quarter --unit patient_id
    --rows-per-unit 8 --groups-per-unit 3 --type day=date --between day=2024-01-01,2025-12-31
    --type cost=number --between cost=0,800 --keys ward=north,south,east,west --epsilon 1
""")

# %% [markdown]
# ## Which groups reach a threshold
#
# Only yes or no for each question; noes cost next to nothing.

# %%
noisegate("""
    release above people.csv --columns age=10 --type age=integer --between age=0,109 --keys
    ward=north,south,west --epsilon 1 --option threshold=120 --option
    questions=age=0:19,age=20:39,age=40:59,age=60:79,age=80:109
""")

# %% [markdown]
# ## Crowd
#
# Exact counts of a secret sample, scaled up; cells below a crowd are hidden.

# %%
noisegate("""
    release crowd-histogram people.csv --columns age=10 --type age=integer --between
    age=0,109 --keys ward=north,south,west --epsilon 1 --option probability=1/2 --option
    delta=1e-5
""")

# %% [markdown]
# ## Synthetic rows
#
# The picture shows the distribution of the rows that were made, not of the original ones.

# %%
noisegate("""
    release synthetic clinic.csv --columns ward,age --keys ward=north,south --between
    age=0,109 --type age=integer --epsilon 1 --budget 20 --rows 1000
""")

# %% [markdown]
# ## A question
#
# Answers of `ask` have pictures and cards too.

# %%
noisegate("""
    ask clinic.toml
    "SELECT ward, AVG(cost) AS cost FROM visits GROUP BY ward"
    --epsilon 1 --analyst ana
""")

# %% tags=["hide"]
assert all(card.startswith("# Release card") for card in cards)
assert len(set(cards)) == 10
