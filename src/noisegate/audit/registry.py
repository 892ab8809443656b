"""The audits of all mechanisms: worst-case neighbours, claim, draws and a broken copy, by name.

``noisegate audit --all`` and the tests run the same list. Mechanisms are audited at an ε where few
runs say most: about 2 or 3. A broken copy has a fifth too little noise, or as much less as is said;
its audit against the honest claim must end in a violation, which is the proof of power.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.claims import claims_of
from noisegate.audit.distinguisher import Score
from noisegate.audit.draws import Each, Many
from noisegate.errors import SpecError
from noisegate.mechanisms.base import Mechanism

Cells: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[Cells, Cells]

_FIFTH: Final = "a fifth too little noise"


def many(
    name: str,
    pair: tuple[Mechanism[Any], Mechanism[Any]],
    cells: Pair,
    neighbours: str,
    **terms: Any,  # noqa: ANN401 - those of Audit
) -> Audit:
    """An audit of a mechanism, and of its broken copy, that draws all runs at once."""
    kind = terms.pop("kind", Many)
    draws, broken = (tuple(kind(each, side) for side in cells) for each in pair)
    return _audit(name, pair[0], (draws, broken), neighbours, {"trials": 400_000} | terms)


def each(
    name: str,
    pair: tuple[Mechanism[Any], Mechanism[Any]],
    cells: Pair,
    neighbours: str,
    *,
    width: int = 1,
    **terms: Any,  # noqa: ANN401 - those of Audit
) -> Audit:
    """An audit of a mechanism, and of its broken copy, that draws run by run."""
    draws, broken = (tuple(Each(each, side, width) for side in cells) for each in pair)
    return _audit(name, pair[0], (draws, broken), neighbours, {"trials": 7_000} | terms)


def _audit(
    name: str,
    mechanism: Mechanism[Any],
    draws: Any,  # noqa: ANN401 - two pairs of draws
    neighbours: str,
    terms: dict[str, Any],
) -> Audit:
    """``moved`` is the sensitivity between the neighbours, from which the claim follows."""
    said = dict(terms)
    moved = said.pop("moved", 1)
    claims = said.pop("claims", None) or claims_of(mechanism.event(moved))
    return Audit(
        name=name, claims=claims, draws=draws[0], broken=draws[1], neighbours=neighbours,
        broken_words=said.pop("broken_words", _FIFTH), **said,
    )  # fmt: skip


def at_least(value: float) -> Score:
    """The event that the first number is this or more."""
    return lambda outputs: (outputs[:, 0] >= value).astype(np.float64)


def weaker(mechanism: Mechanism[Any], **shares: Any) -> Any:  # noqa: ANN401 - a mechanism of its kind
    """A copy with fields times a share: scales below 1, factors above."""
    fields = {name: getattr(mechanism, name) * share for name, share in shares.items()}
    return replace(mechanism, **fields)  # type: ignore[type-var]  # mechanisms are dataclasses


def audits() -> Mapping[str, Callable[[], Audit]]:
    """How to make each audit, by name, in the order of the tables."""
    from noisegate.audit import (  # noqa: PLC0415 - they use this
        of_choices,
        of_learners,
        of_noise,
        of_programs,
        of_recipes,
        of_structures,
    )

    found: dict[str, Callable[[], Audit]] = {}
    for room in (of_noise, of_choices, of_structures, of_recipes, of_learners, of_programs):
        found |= room.AUDITS
    return MappingProxyType(found)


def audit_named(name: str) -> Audit:
    """One audit of the list."""
    known = audits()
    if name not in known:
        raise SpecError(
            f"There is no audit {name!r}.", fix="See the names with: noisegate audit --list."
        )
    return known[name]()
