"""Two worlds that differ by one person, Eve, and all that an analyst can see of each.

Where noise hides a difference the tests do not sample it: they compare the exact numbers behind the
noise (`loss`), which is the most that any number of observations of this draw could tell apart.
"""

import re
import traceback
from fractions import Fraction

import numpy as np
import pyarrow as pa

import noisegate as ng
from noisegate.accounting.pure import pure_loss
from noisegate.algebra.tally import Distinct, Keys, Sums
from noisegate.curator.measurement import Measurement
from noisegate.sql.plan import shown_names

CANARY = "Zanzibar-7731"  # what Eve's rows say, and no message may
EVE = "Quagga-4417"  # her id
WARDS = ["north", "south", "attic"]  # nobody is in the attic
SCHEMA = pa.schema([
    ("who", pa.string()), ("name", pa.string()), ("ward", pa.string()), ("cost", pa.float64()),
    ("age", pa.int64()), ("big", pa.int64()), ("note", pa.string()),
])  # fmt: skip
COLUMNS = {
    "name": {"hidden": True},
    "ward": {"in": WARDS},
    "cost": {"between": [0, 100]},
    "age": {"between": [0, 120]},
}
ROWS_PER_UNIT, GROUPS_PER_UNIT = 3, 2


def row(who, *, name="", ward="north", cost=50.0, age=30, big=7, note="12"):
    return {
        "who": who, "name": name, "ward": ward, "cost": cost, "age": age, "big": big, "note": note,
    }  # fmt: skip


OTHERS = [
    row(
        f"p{i:02}", name=f"n{i}", ward=WARDS[i % 2], cost=float(i), age=20 + i % 50, note=str(i % 4)
    )
    for i in range(60)
]


def eve(**values):
    """A row of Eve's."""
    return row(EVE, **{"name": CANARY, "note": CANARY, **values})


def visits(*more):
    """The rows of all others, then the given ones."""
    return pa.Table.from_pylist([*OTHERS, *more], schema=SCHEMA)


def gate(rows, *, epsilon=1000, delta="1e-8", columns=None, **terms):
    """Our gate in front of visits; a person is a value of ``who``."""
    terms = {
        "unit": "who", "rows_per_unit": ROWS_PER_UNIT, "groups_per_unit": GROUPS_PER_UNIT, **terms,
    }  # fmt: skip
    terms = {name: value for name, value in terms.items() if value is not None}
    return ng.open(
        rows, table="visits", epsilon=epsilon, delta=delta, columns=columns or COLUMNS, **terms
    )


def worlds(*of_eve, **terms):
    """Our gates in front of a world with Eve's rows, and of one without."""
    return gate(visits(*of_eve), **terms), gate(visits(), **terms)


def measured(gate, plan):
    """What a question would measure: each measurement, and the exact numbers behind its noise."""
    source = gate._curator._source
    for bought in plan.expected.bought:
        parts = zip(bought.draft.parts, bought.mechanisms, strict=True)
        found = [Measurement(query=part.query, mechanisms=noises) for part, noises in parts]
        for each in (*bought.keys, *found):
            yield each, _exact(source, each.query.tally)


def _exact(source, tally):
    if isinstance(tally, Sums):
        return source.sums(tally)
    if isinstance(tally, Distinct):
        return source.distinct(tally)
    if isinstance(tally, Keys):
        held = source.keys(tally)
        keys = held.take(np.arange(held.counts.size))
        return dict(zip(keys, held.counts.tolist(), strict=True))
    return source.values(tally)


def loss(one, other, sql, **terms):
    """The ε by which the two worlds can be told apart by what a question measures, exactly.

    Geometric noise of scale s tells vectors at L1 distance d apart by d / s. Quantiles and keys are
    priced by how many values or keys of one person there are, so what is compared is that number.
    """
    plans = [gate.plan(sql, **{"epsilon": 1, "fresh": True, **terms}) for gate in (one, other)]
    assert planned(plans[0]) == planned(plans[1])
    total = Fraction(0)
    for (here, mine), (there, theirs) in zip(
        measured(one, plans[0]), measured(other, plans[1]), strict=True
    ):
        assert here.mechanisms == there.mechanisms
        if isinstance(here.query.tally, Sums | Distinct):
            for noise, a, b in zip(here.mechanisms, mine, theirs, strict=True):
                moved = sum(abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True))
                total += Fraction(moved) / noise.scale
            continue
        if isinstance(mine, dict):
            changed = [abs(mine.get(key, 0) - theirs.get(key, 0)) for key in {*mine, *theirs}]
            assert max(changed, default=0) <= 1
        else:
            changed = [_moved(a, b) for a, b in zip(mine, theirs, strict=True)]
        event = here.event()
        price = event.epsilon if hasattr(event, "epsilon") else pure_loss(event).epsilon
        total += Fraction(sum(changed), here.query.per_unit) * price
    return total


def _moved(one, other):
    """How many values must be added or removed."""
    values, sign = np.concatenate([one, other]), np.repeat([1, -1], [one.size, other.size])
    _, place = np.unique(values, return_inverse=True)
    return int(np.abs(np.bincount(place, weights=sign)).sum())


def seen(gate, sql, **terms):
    """All that a question shows apart from noisy numbers: a refusal, or keys, shape, price, words."""
    try:
        answer = gate.sql(sql, **{"epsilon": 1, "fresh": True, **terms})
    except ng.NoisegateError as refusal:
        return type(refusal).__name__, everything_in(refusal)
    table, question = answer.table, answer.plan.expected.question
    names = shown_names(question)
    keys = {names.get((block.name, key.name)) for block in question.blocks for key in block.by}
    exact = [
        table.column(name).to_pylist()
        for name in table.column_names
        if name in keys or pa.types.is_string(table.schema.field(name).type)
    ]
    words = (*answer.caveats, str(answer.guarantee), *planned(answer.plan))
    return "answer", table.column_names, table.num_rows, exact, answer.cost, words


def planned(plan):
    """A plan in words, but for errors that follow from counts that were released."""
    following = "AVG|VAR|STDDEV|CORR|/|MEDIAN|QUANTILE|PERCENTILE|MIN|MAX"
    ratios = re.search(following, plan.sql, re.IGNORECASE)
    return [fact for fact in plan.facts() if fact[0] != "error" or not ratios]


def everything_in(error):
    """An exception with its causes, contexts and arguments, as text; no lines of code."""
    found, rest = [], [error]
    while rest:
        each = rest.pop()
        if each is not None:
            found += [*traceback.format_exception_only(each), repr(each.args), repr(vars(each))]
            rest += [each.__cause__, each.__context__]
    return "\n".join(found)


def is_refused(*gates, sql):
    """Whether a question is refused for its words alone: alike everywhere, before it is paid."""
    before = [gate.spent for gate in gates]
    shown = [seen(gate, sql) for gate in gates]
    kinds = {kind for kind, *_ in shown}
    return (
        all(each == shown[0] for each in shown)
        and kinds <= {"Unsupported", "SpecError"}
        and before == [gate.spent for gate in gates]
    )
