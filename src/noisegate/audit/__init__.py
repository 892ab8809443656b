"""Empirical privacy audits: a lower bound on ε, measured, to hold against the ε that is claimed.

Two neighbours, the worst that are known, differ in one unit. Many independent runs on each; a
distinguisher learns from one half of the runs which neighbour an output comes from; the other half
counts how often it is right. Clopper-Pearson bounds on the two rates give ε ≥ ln((p - δ) / q) in
both directions, which an honest mechanism exceeds at most once in 1 / alpha audits, whatever the
distinguisher learned. No private row is read, and nothing is charged: all rows are made up.

A mechanism. A draw is a function from a count to as many runs, a run a row of numbers:

>>> import numpy as np
>>> from noisegate.audit import Audit, Extent
>>> from noisegate.mechanisms.additive.geometric import Geometric
>>> fair, unfair = Geometric(scale=1), Geometric(scale="0.8")
>>> def on(mechanism, count): return lambda runs: mechanism.sample(np.full(runs, count))
>>> audit = Audit(
...     name="geometric", claims={0: 1}, neighbours="counts of 1 and of 0",
...     draws=(on(fair, 1), on(fair, 0)), broken=(on(unfair, 1), on(unfair, 0)),
... )
>>> result = audit.run(Extent(trials=40_000), alpha=1e-6)
>>> result.verdict, 0.85 < result.lower_bound <= result.claim
('no violation', True)
>>> audit.run(Extent(trials=40_000), broken=True).verdict
'violation'

A question through the door, on made-up rows of a policy or a table; `question_audit` finds the unit
that moves the exact answer most:

>>> import noisegate, pyarrow
>>> from noisegate.audit import question_audit
>>> def opened():
...     facts = {"age": {"between": [0, 100]}}
...     return noisegate.open(pyarrow.table({"age": [1]}), columns=facts, practice=True)
>>> audit = question_audit(opened, "SELECT SUM(age) AS s FROM data", epsilon=4)
>>> audit.claims, audit.run(Extent(trials=400)).is_violation
({0.0: 4.0}, False)

Anything else that a gate does (releases, learners): `DoorRuns` with a function from a gate to a row
of numbers. With outputs at hand, `bound(ones, others, claims=...)` is all of the statistics.

Read `bounds.py` first; `audit.py` lists the audits of all mechanisms, recipes, learners
and programs; `path.py` says how those of several draws are made.
"""

from typing import Any

_HOME = {
    "Audit": "audit",
    "Bound": "bounds",
    "DoorRuns": "door",
    "Extent": "runs",
    "Result": "audit",
    "bound": "bounds",
    "claims_of": "confidence",
    "question_audit": "neighbours",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name, imported when first used
    from importlib import import_module  # noqa: PLC0415 - keeps `noisegate --help` quick

    if name not in _HOME:
        raise AttributeError(f"module 'noisegate.audit' has no attribute {name!r}")
    return getattr(import_module(f"noisegate.audit.{_HOME[name]}"), name)
