"""What a contribution bound does to the numbers of a block, in words."""

from collections.abc import Sequence
from typing import Final

from noisegate.algebra.relation import Table
from noisegate.sql.bounds.looks import owner_table
from noisegate.sql.bounds.sized import own_rows
from noisegate.sql.drafts.purchase import Purchase
from noisegate.sql.drafts.words import capped_words
from noisegate.sql.estimates.losses import lost_of
from noisegate.sql.estimates.profiles import Profile

_MODEL: Final = (
    "A private estimate from these rows says that the contribution bound loses about {lost}: "
    "counts and sums are raised by that, and the ± includes its uncertainty. This part rests on a "
    "model of how rows are distributed over units, and is not proven."
)


def _named(profile: Profile) -> str:
    """What a cap loses some of."""
    if profile.sums:
        return "what they add to sums"
    return "the groups that units are in" if profile.people else "them"


def clipping(bought: Purchase, profiles: Sequence[Profile], cap: int | None) -> tuple[str, ...]:
    """What a cap does to the numbers of a block, in words: what it loses, or how to find out.

    None where no number is about capped rows.
    """
    block = bought.draft.block
    capped = capped_words(block, bought.draft.drawn, known=bool(profiles))
    if not capped or cap is None:
        return capped
    lost = [(each, lost_of(bought, each)) for each in profiles]
    shares = [
        f"{each.loss.share:.1%} of {_named(profile)}" for profile, each in lost if each is not None
    ]
    if shares:
        return (*capped, _MODEL.format(lost=" and ".join(shares)))
    look = (
        'choose="caps" in place of the cap estimates it from the rows of this question, and chooses'
    )
    if isinstance(own_rows(block), Table):
        look = f"gate.caps({owner_table(block).name!r}, epsilon=...) estimates it, for a price"
    return (*capped, f"How much a contribution bound of {cap} rows loses is not known: {look}.")
