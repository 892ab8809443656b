"""Audits of synthetic rows, sessions, crowds, robust numbers, choices, series and programs."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import exp, log
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

import noisegate
from noisegate.accounting.pure import pure_loss
from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats
from noisegate.audit.door import DoorRuns
from noisegate.audit.draws import weaker
from noisegate.audit.of_recipes import Asked, opened, rows
from noisegate.audit.path import path_audit
from noisegate.curator.surprises import SurpriseSpec, open_surprises
from noisegate.desk.desk import Desk
from noisegate.frozen import replace
from noisegate.gate import Gate
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.sql.choices.choice import Method
from noisegate.synthetic.pmw.online import Many, ManyOrder
from noisegate.synthetic.recipes import SYNTHESIZERS
from noisegate.transforms.strategy import Groups

_EPSILON: Final = 3
_NONE: Final = "no rows, or one"
_UNIT: Final = (0, 0, "a")
_FAR_OFF: Final = 1_000_000
_SESSIONS: Final = 9_000
_COLUMNS: Final = {"x": 16, "key": None}


def _made(name: str, ask: Any, **terms: Any) -> Audit:  # noqa: ANN401 - a run, and terms of path_audit
    usual: dict[str, Any] = {
        "opened": opened, "pair": (rows(_UNIT), rows()), "neighbours": _NONE,
    }  # fmt: skip
    return path_audit(name, ask, **usual | terms)


def _synthetic(method: str, **terms: Any) -> Audit:  # noqa: ANN401 - of path_audit
    asked = Asked("synthetic", {"columns": _COLUMNS, "method": method, "rows": 10})
    return _made(f"synthetic: {method}", asked, **terms)


_MEDIAN: Final = "SELECT MEDIAN(value) FROM data"
_BOUND: Final = 1 << 10


def values(*held: tuple[int, int]) -> pa.Table:
    """A table of whole numbers, each so many times."""
    listed = [value for value, times in held for _ in range(times)]
    return pa.table({"value": pa.array(listed, pa.int64())})


def _of_values() -> Gate:
    facts = {"value": {"between": [0, 1 << 20]}}
    return noisegate.open(values((1, 1)), columns=facts, practice=True, delta="1e-6")


def _jump(near: int, far: int) -> dict[str, Any]:
    """The median jumps over a gap, and a larger one comes a step nearer; see `_local_quantile`."""
    base = (0, 40), (_BOUND, near), (far, 40 - near)
    words = f"40 values of 0, {near} of {_BOUND}, {40 - near} of {far}, with and without one more"
    return {
        "opened": _of_values, "pair": (values(*base, (far, 1)), values(*base)), "tries": 1,
        "trials": 400_000, "neighbours": words,
    }  # fmt: skip


def _choose(method: Method, gate: Gate) -> object:
    sql = "SELECT key, COUNT(*) FROM data GROUP BY key"
    return gate.choose(sql, epsilon=_EPSILON, method=method, fresh=True)


def _graph(number: str, gate: Gate) -> object:
    found = gate.graph(source="x", target="y", nodes=range(4))
    return getattr(found, number)(epsilon=_EPSILON, fresh=True)


def _local_graph(number: str, gate: Gate) -> object:
    found = gate.graph(source="x", target="y", nodes=range(10))
    return getattr(found, number)(epsilon=2, beta="0.125", fresh=True)


def mean_of(held: dict[str, Any]) -> float:
    """A program on a block of rows."""
    return float(held["x"].mean()) if held["x"].size else 0.0


def _session(spec: SurpriseSpec, gate: Gate) -> tuple[float, float, float]:
    """One session and one question, about the unit's cell, whose guess is far too high."""
    cells = spec.cells.tally.cells  # type: ignore[union-attr]
    block = Groups(np.minimum(np.arange(cells, dtype=np.int32), 1), 2)  # the first, and the rest
    guesses = np.array([_FAR_OFF, 0], np.int64)
    with open_surprises(gate.door, spec, name="audit", request_id=gate.door.fresh_id()) as session:
        told = session.ask(block, guesses)
    return float(told.near), float(told.side), float(told.number or 0)


def _many() -> Audit:
    """A session whose number has 19/20 of the price; its questions go to the door itself.

    The guess is a surprise but for e^-10000, so the number decides: all of its share is reached.
    """
    gate, key = opened(), {"key": None}
    order = ManyOrder(columns=key, epsilon=_EPSILON, surprises=1, start=0, rows=10)
    usual = Many(Desk(gate.door, gate.rules), order).bargain.spec
    band = replace(usual.band, threshold_scale=Fraction(20), query_scale=Fraction(20))
    spec = replace(usual, band=band, number=Geometric(scale=Fraction(10, 19)))
    short = replace(spec, band=weaker(spec.band), number=weaker(spec.number))
    honest, broken = (
        tuple(DoorRuns(opened=opened, rows={"data": held}, ask=partial(_session, each))
              for held in (rows(), rows(_UNIT)))
        for each in (spec, short)
    )  # fmt: skip
    return Audit(
        name="many: a surprise", claims={0.0: float(pure_loss(spec.event()).epsilon)},
        draws=(honest[0], honest[1]), broken=(broken[0], broken[1]), neighbours=_NONE,
        broken_words="a fifth too little noise in every draw", trials=_SESSIONS, reachable=0.95,
        event=_surprised,
        why="comparisons, a twentieth of the price, are sure; 'outside-band' audits them",
    )  # fmt: skip


def _surprised(outputs: Floats) -> Floats:
    """A surprise below, and a number of at most 0."""
    return np.asarray((outputs[:, 1] == -1) & (outputs[:, 2] <= 0), np.float64)


_K4: Final = tuple((a, b, "a") for a, b in combinations(range(4), 2))
_GRAPH: Final[dict[str, Any]] = {
    "pair": (rows(*_K4), rows(*_K4[1:])), "tries": 1,
    "neighbours": "all edges among four vertices, and all but one",
}  # fmt: skip


def _fourth(outputs: Floats) -> Floats:
    """The unit's candidate was chosen: with exponential noise e^ε times as often as without it."""
    return np.asarray(outputs[:, 1] == 0, np.float64)


_OTHERS: Final = ((16, 0, "b"), (16, 0, "c"), (16, 0, "d"))
_CHOICE: Final[dict[str, Any]] = {
    "pair": (rows(*_OTHERS, _UNIT), rows(*_OTHERS)), "tries": 1, "trials": 60_000,
    "neighbours": "three candidates with one row each, and a fourth with one or none",
    "event": _fourth, "reachable": 1.0,
}  # fmt: skip
_GUMBEL: Final[dict[str, Any]] = _CHOICE | {  # it wins with 1/4, or 1 of 1 + 3 e^ε
    "trials": 120_000, "reachable": log((1 + 3 * exp(_EPSILON)) / 4) / _EPSILON,
    "why": "a candidate that nearly never wins would tell all, too rarely",
}  # fmt: skip
_AT_BORDER: Final[dict[str, Any]] = {
    "pair": (rows(*(_UNIT,) * 9), rows(*(_UNIT,) * 8)), "tries": 1, "trials": 1_000_000,
    "neighbours": "8 and 9 people in one cell, where a crowd is 8", "reachable": 0.89,
    "why": "the δ is used up by cells of exactly a crowd, the ε by larger ones",
}  # fmt: skip
_SHARED: Final = tuple((hub, other, "a") for hub in (0, 1) for other in range(2, 10))
_POINT: Final = "the density of Student's t passes e^ε at one point, and no event is a point"
_LOCAL: Final[dict[str, Any]] = {"why": _POINT}
_JOINED: Final[dict[str, Any]] = _LOCAL | {
    "pair": (rows(*_SHARED, (0, 1, "a")), rows(*_SHARED)),
    "tries": 1,
    "trials": 400_000,
    "neighbours": "two vertices that share 8 others, joined and not joined",
}
_CROWD: Final[dict[str, Any]] = {"probability": "1/2", "epsilon": 1}

_BELOW: Final = tuple(
    f"SELECT COUNT(*) FROM data WHERE x < {end}"  # noqa: S608 - of no user
    for end in (16, 33)
)
_NAMED: Final[Mapping[str, tuple[Any, Mapping[str, Any]]]] = {
    "release: questions": (Asked("questions", {"workload": _BELOW}), {}),
    "release: series": (
        lambda gate: gate.release("series", columns={"x": 1}, until=32, horizon=33,
                                  epsilon=_EPSILON), {}),
    "statistic": (
        lambda gate: gate.statistic(["x >= 16", "y >= 16"], epsilon=_EPSILON, fresh=True),
        {"pair": (rows((32, 32, "a")), rows())}),
    "choose: exponential": (partial(_choose, "exponential"), _GUMBEL),
    "choose: permute-and-flip": (partial(_choose, "permute-and-flip"), _CHOICE),
    "choose: noisy-max": (partial(_choose, "noisy-max"), _CHOICE),
    "crowd-histogram": (Asked("crowd-histogram", {
        "columns": {"key": None}, "delta": "1e-2", **_CROWD}), _AT_BORDER),
    "crowd-points": (Asked("crowd-points", {
        "columns": {"x": 16}, "crowd": 8, **_CROWD}), _AT_BORDER),
    "smooth: median": (
        lambda gate: gate.smooth(_MEDIAN, epsilon=2, fresh=True), _jump(12, 124_400) | _LOCAL),
    "smooth: propose-test-release": (
        lambda gate: gate.smooth(_MEDIAN, epsilon=_EPSILON, fresh=True, method="ptr",
                                 bound=_BOUND, delta="1e-3"),
        _jump(5, 1 << 19)),
    "distance": (
        lambda gate: gate.distance(epsilon=_EPSILON, fresh=True, columns=["x"],
                                   centers=[[16], [32]], radius=1), {}),
    **{f"graph: {number}": (partial(_graph, number), _GRAPH)
       for number in ("edges", "degrees", "min_cut", "bipartite_distance")},
    **{f"graph: {number}": (partial(_local_graph, number), _JOINED)
       for number in ("triangles", "two_stars")},
    "apply: mean": (
        lambda gate: gate.apply(mean_of, columns=["x"], range=(0, 32), blocks=2, epsilon=_EPSILON,
                                seconds=0.5, rehearse=False, fresh=True),
        {"pair": (rows((32, 32, "a")), rows()), "tries": 1}),
}  # fmt: skip


def _of(name: str) -> Audit:
    ask, terms = _NAMED[name]
    return _made(name, ask, **terms)


AUDITS: Final[Mapping[str, Callable[[], Audit]]] = MappingProxyType(
    {f"synthetic: {method}": partial(_synthetic, method) for method in SYNTHESIZERS}
    | {name: partial(_of, name) for name in _NAMED}
    | {"many: a surprise": _many}
)
