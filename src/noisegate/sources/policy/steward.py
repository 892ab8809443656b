"""The steward's own account: a share of the budget for looks at the data by whoever answers for it.

Claim: none of its own. What is asked from it is charged to the data set as well, like any
    analyst's question, so all of it together keeps the budget of the data set.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from noisegate.errors import PolicyError
from noisegate.privacy.loss import ApproxDP

STEWARD: Final = "steward"  # who asks from it


def steward_of(
    terms: Mapping[str, Any] | None, budget: ApproxDP, analysts: Collection[str]
) -> ApproxDP | None:
    """What the steward may spend; None where the policy does not say."""
    if terms is None:
        return None
    share = ApproxDP(terms["epsilon"], terms.get("delta", budget.delta))
    if STEWARD in analysts:
        raise PolicyError(
            f"analysts.{STEWARD}: this is the name of the steward's own account.",
            fix="Rename the analyst, or leave out [steward].",
            about="name",
        )
    if not share <= budget:
        raise PolicyError(
            f"steward: the share is larger than the budget, {budget}.",
            fix="Lower the share, or raise the budget.",
        )
    return share
