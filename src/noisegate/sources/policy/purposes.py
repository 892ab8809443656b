"""What data are used for: a purpose has a budget of its own, and says who may ask for it.

Claim: whatever is asked for a purpose is within the data set's budget, within the purpose's, and
    within the share of whoever asks, which is one for all purposes together: questions are asked
    from an account below both, and a charge is to all of them or to none. A purpose limits what is
    spent; it hides no answer from another purpose, since what was released once is free for
    everybody.
"""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.errors import Forbidden, PolicyError, SpecError
from noisegate.frozen import dataclass
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.policy.windows import Window

PURPOSE: Final = "for "  # how the account of a purpose begins
_MARKS: Final = frozenset("/: ")  # of the names of accounts and windows


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """A purpose as declared. ``analysts`` None: everybody who may ask at all."""

    name: str
    budget: ApproxDP
    window: Window
    analysts: frozenset[str] | None = None
    description: str = ""
    default: bool = False

    def require(self, analyst: str | None, today: date) -> None:
        """Refuse whoever may not ask for it, and everybody after its last day."""
        if self.analysts is not None and analyst not in self.analysts:
            raise Forbidden(
                f"You may not ask for the purpose {self.name!r}.",
                fix="Name another one, or ask the steward: analysts = [...] of the purpose.",
                about="purpose",
            )
        self.window.require(self.name, today)


def purposes_of(
    terms: Mapping[str, Any], budget: ApproxDP, analysts: Mapping[str, ApproxDP]
) -> Mapping[str, Purpose]:
    """The purposes of a policy, checked against its budget and its analysts."""
    found = {name: _purpose(name, said, budget) for name, said in terms.items()}
    for name, purpose in found.items():
        place = f"purposes.{name}"
        if not name or not name.isprintable() or _MARKS & set(name):
            raise PolicyError(f"{place}: this cannot be a name.", fix="Use letters, digits, _, -.")
        if not purpose.budget <= budget:
            raise PolicyError(
                f"{place}: it has more than the data set, {budget}.",
                fix="Lower its epsilon or delta, or raise the budget.",
            )
        if unknown := (purpose.analysts or frozenset()) - analysts.keys():
            raise PolicyError(
                f"{place}.analysts: {min(unknown)!r} has no share of the data set.",
                fix=f"Add a line under [analysts]: {min(unknown)} = ...",
            )
    if len([each for each in found.values() if each.default]) > 1:
        raise PolicyError(
            "purposes: more than one is the default.", fix="Leave default = true at one of them."
        )
    if found and any(name.startswith(PURPOSE) for name in analysts):
        raise PolicyError(
            f"analysts: where there are purposes, no name may begin with {PURPOSE!r}.",
            fix="Rename the analyst.",
        )
    return MappingProxyType(found)


def purpose_of(purposes: Mapping[str, Purpose], said: str | None) -> Purpose | None:
    """The purpose that was said, or the default; refuses none where the policy has some."""
    if said is not None and said not in purposes:
        known = f"Use one of: {', '.join(purposes)}." if purposes else "Leave it out."
        raise SpecError("The policy has no such purpose.", fix=known, about="purpose")
    if said is not None:
        return purposes[said]
    found = next((each for each in purposes.values() if each.default), None)
    if purposes and found is None:
        raise SpecError(
            "Say what it is asked for: this data set has a budget for each purpose.",
            fix=f"Name a purpose, one of: {', '.join(purposes)}. Nothing was spent.",
            about="purpose",
        )
    return found


def _purpose(name: str, terms: Mapping[str, Any], budget: ApproxDP) -> Purpose:
    return Purpose(
        name=name,
        budget=ApproxDP(terms["epsilon"], terms.get("delta", budget.delta)),
        window=Window(every=terms.get("every"), until=terms.get("until")),
        analysts=None if "analysts" not in terms else frozenset(terms["analysts"]),
        description=terms.get("description", ""),
        default=terms.get("default", False),
    )
