"""Audits of synthetic rows, sessions, crowds, robust numbers, choices, series and programs."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from noisegate.audit.audit import Audit
from noisegate.audit.of_recipes import Asked, opened, rows
from noisegate.audit.path import path_audit
from noisegate.gate import Gate

_EPSILON: Final = 3
_NONE: Final = "no rows, or one"
_UNIT: Final = (0, 0, "a")
_COLUMNS: Final = {"x": 16, "key": None}


def _made(name: str, ask: Any, **terms: Any) -> Audit:  # noqa: ANN401 - a run, and terms of path_audit
    usual = {
        "opened": opened, "pair": (rows(_UNIT), rows()), "neighbours": _NONE,
    }  # fmt: skip
    return path_audit(name, ask, **usual | terms)


def _synthetic(method: str, **terms: Any) -> Audit:  # noqa: ANN401 - of path_audit
    asked = Asked("synthetic", {"columns": _COLUMNS, "method": method, "rows": 10})
    return _made(f"synthetic: {method}", asked, **terms)


def _questions() -> Audit:
    asked = [f"SELECT COUNT(*) FROM data WHERE x < {end}" for end in (4, 8)]
    return _made("release: questions", Asked("questions", {"workload": asked}))


def _smooth(gate: Gate) -> object:
    return gate.smooth("SELECT MEDIAN(x) FROM data", epsilon=_EPSILON, fresh=True)


def _ptr(gate: Gate) -> object:
    sql = "SELECT MEDIAN(x) FROM data"
    return gate.smooth(sql, method="ptr", bound=1, delta="1e-3", epsilon=_EPSILON, fresh=True)


def _distance(gate: Gate) -> object:
    ends = {"columns": ["x"], "centers": [[16], [32]], "radius": 1}
    return gate.distance(epsilon=_EPSILON, fresh=True, **ends)


def _choose(method: str, gate: Gate) -> object:
    sql = "SELECT key, COUNT(*) FROM data GROUP BY key"
    return gate.choose(sql, epsilon=_EPSILON, method=method, fresh=True)


def _graph(number: str, gate: Gate) -> object:
    found = gate.graph(source="x", target="y", nodes=range(8))
    return getattr(found, number)(epsilon=_EPSILON, fresh=True)


def _statistic(gate: Gate) -> object:
    return gate.statistic(["x >= 16", "y >= 16"], epsilon=_EPSILON, fresh=True)


def mean_of(held: dict[str, Any]) -> float:
    """A program on a block of rows."""
    return float(held["x"].mean()) if held["x"].size else 0.0


def _apply(gate: Gate) -> object:
    return gate.apply(
        mean_of, columns=["x"], range=(0, 32), blocks=2, epsilon=_EPSILON, seconds=0.02,
        rehearse=False, fresh=True,
    )  # fmt: skip


def _series(gate: Gate) -> object:
    return gate.release("series", columns={"x": 1}, until=32, horizon=33, epsilon=_EPSILON)


_MIDDLE: Final = (rows(*(((16, 16, "a"),) * 4), (32, 32, "a")), rows(*(((16, 16, "a"),) * 4)))
_TIED: Final = (rows((0, 0, "a")), rows())
_EDGES: Final = (
    rows((0, 1, "a"), (1, 2, "a"), (2, 3, "a"), (0, 2, "a")),
    rows((0, 1, "a"), (1, 2, "a"), (2, 3, "a")),
)

AUDITS: Final[Mapping[str, Callable[[], Audit]]] = MappingProxyType({
    **{f"synthetic: {method}": partial(_synthetic, method)
       for method in ("independent", "chosen", "mst", "aim", "mwem-pgm", "auto")},
    "release: questions": _questions,
    "release: series": partial(_made, "release: series", _series),
    "statistic": partial(_made, "statistic", _statistic, pair=(rows((32, 32, "a")), rows())),
    "choose: exponential": partial(_made, "choose: exponential", partial(_choose, "exponential")),
    "choose: permute-and-flip": partial(
        _made, "choose: permute-and-flip", partial(_choose, "permute-and-flip")),
    "choose: noisy-max": partial(_made, "choose: noisy-max", partial(_choose, "noisy-max")),
    "crowd-histogram": partial(_made, "crowd-histogram", Asked("crowd-histogram", {
        "columns": {"key": None}, "probability": "1/2", "delta": "1e-2"})),
    "crowd-points": partial(_made, "crowd-points", Asked("crowd-points", {
        "columns": {"x": 16}, "probability": "1/2", "crowd": 20})),
    "smooth: median": partial(_made, "smooth: median", _smooth, pair=_MIDDLE),
    "smooth: propose-test-release": partial(_made, "smooth: propose-test-release", _ptr, pair=_MIDDLE),
    "distance": partial(_made, "distance", _distance),
    **{f"graph: {number}": partial(_made, f"graph: {number}", partial(_graph, number), pair=_EDGES)
       for number in ("edges", "degrees", "triangles", "two_stars", "min_cut", "bipartite_distance")},
    "apply: mean": partial(_made, "apply: mean", _apply, pair=(rows((32, 32, "a")), rows())),
})  # fmt: skip
