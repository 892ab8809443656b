"""The audits of all mechanisms: worst-case neighbours, claim, draws and a broken copy, by name.

``noisegate audit --all`` and the tests run the same list. Mechanisms are audited at an ε where few
runs say most: about 2 or 3. A broken copy has a fifth too little noise, or as much less as is said;
its audit against the honest claim must end in a violation, which is the proof of power.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from noisegate.audit import (
    of_choices,
    of_learners,
    of_noise,
    of_programs,
    of_recipes,
    of_structures,
)
from noisegate.audit.audit import Audit
from noisegate.errors import SpecError


def audits() -> Mapping[str, Callable[[], Audit]]:
    """How to make each audit, by name, in the order of the tables."""
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
