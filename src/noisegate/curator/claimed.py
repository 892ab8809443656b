"""Numbers that a program makes of all rows, where a steward vouches for how far they move.

Nothing here can check the steward's word; so only the data set's own account may use it, and every
promise that is made of it says what it rests on. The program itself is locked in like any other.
"""

import json
from fractions import Fraction
from math import ceil
from typing import TypeAlias, final

import numpy as np

from noisegate.algebra.blocks import STEPS
from noisegate.curator.blocks import BlockMeasurement, said_of_blocks
from noisegate.curator.kept import Kept
from noisegate.curator.own import OwnMeasurement
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import to_record
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.noise.bits import Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import ExponentialEvent, GeometricEvent
from noisegate.sources.source import Source
from noisegate.transforms.blocks import BlockQuery
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedMeasurement:
    """One whole number from 0 to 2**20 of one block that holds all rows, with geometric noise."""

    query: BlockQuery
    noise: Geometric

    def __post_init__(self) -> None:
        tally = self.query.tally
        whole = tally.answers == 1 and tally.sample is None
        steps = tally.ranges == ((Fraction(0), Fraction(STEPS)),)
        if type(self.noise) is not Geometric or not (whole and steps):
            raise Unsupported(
                "A vouched statistic is one whole number about all rows.",
                fix=f"Use one block, one range from 0 to {STEPS}, and geometric noise.",
                about="claim",
            )

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses."""
        return frozenset({"programs"})

    @property
    def claim(self) -> str:
        """What the steward says by asking."""
        return (
            f"one unit with all its rows changes the result of {self.query.tally.program.name!r} "
            "by at most 1, and it always answers in time"
        )

    def event(self) -> GeometricEvent:
        """What one use is, for accounting.

        Claim: (1 / scale)-private, provided that `claim` is true. Adjacency: add/remove one unit.
        Why: geometric noise on a whole number that moves by at most 1 [GRS09]. Rounding: none; the
            answers are whole steps of the range already, and others are rounded to one.
        """
        return GeometricEvent(scale=self.noise.scale, sensitivity=L1(1))

    def question(self) -> str:
        """Canonical text: the program by its text, and that it is vouched for."""
        record = {"query": self.query.to_record(), "mechanisms": [to_record(self.noise)],
                  "claimed": self.claim}  # fmt: skip
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def draw(
        self, source: Source, bits: Bits, _kept: Kept | None = None
    ) -> tuple[Int64Array, None]:
        """The noisy number, of shape (1, 1). Reads rows; call it once paid."""
        said = said_of_blocks(self.query.tally, source, bits)
        return self.noise.sample(np.asarray(said, np.int64).reshape(1, 1), bits=bits), None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedChoice:
    """A choice among the scores that a program gives all rows at once, one for each output.

    ``sensitivity`` is the steward's word, in terms of the scores.
    """

    query: BlockQuery
    choice: Exponential
    sensitivity: Fraction

    def __post_init__(self) -> None:
        tally = self.query.tally
        whole = tally.answers == 1 and tally.sample is None and len(set(tally.ranges)) == 1
        plain = type(self.choice) is Exponential and not self.choice.monotone
        if type(self.sensitivity) is not Fraction or self.sensitivity <= 0 or not (whole and plain):
            raise Unsupported(
                "A vouched choice is one of scores about all rows, with a stated sensitivity.",
                fix="Use one block, one range for all scores, and a sensitivity above 0.",
                about="claim",
            )

    @property
    def steps(self) -> int:
        """How many steps of the grid a unit moves a score, if the claim is true.

        Why: scores are clamped to their range and rounded to the nearest of `STEPS` steps, which
            brings two of them further apart by less than one step.
        """
        low, high = self.query.tally.ranges[0]
        return min(STEPS, ceil(self.sensitivity * STEPS / (high - low)) + 1)

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses."""
        return frozenset({"programs"})

    @property
    def claim(self) -> str:
        """What the steward says by asking."""
        return (
            f"one unit with all its rows changes each score of {self.query.tally.program.name!r} "
            f"by at most {self.sensitivity}, and it always answers in time"
        )

    def event(self) -> ExponentialEvent:
        """What one use is, for accounting.

        Claim: ε-private with ε = 2 · factor · `steps`, provided that `claim` is true.
        Adjacency: add/remove one unit. Why: [MT07, Thm 6]. Rounding: in `steps`.
        """
        return self.choice.event(Fraction(self.steps))

    def question(self) -> str:
        """Canonical text: the program by its text, and that it is vouched for."""
        record = {"query": self.query.to_record(), "mechanisms": [to_record(self.choice)],
                  "claimed": self.claim}  # fmt: skip
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def draw(
        self, source: Source, bits: Bits, _kept: Kept | None = None
    ) -> tuple[Int64Array, None]:
        """The place of the chosen one, of shape (1, 1). Reads rows; call it once paid."""
        said = said_of_blocks(self.query.tally, source, bits)
        return self.choice.sample(np.asarray(said, np.int64).reshape(-1), bits=bits)[None], None


Vouched: TypeAlias = ClaimedMeasurement | ClaimedChoice | OwnMeasurement


def require_program(asked: object, *, steward: bool) -> None:
    """Refuse what is no program of ours, and one that is vouched for by anybody but the steward.

    A mechanism of a researcher's own is for those whom the policy allows it.
    """
    if type(asked) is OwnMeasurement and type(asked.query) is Query:
        return
    kinds = BlockMeasurement, ClaimedMeasurement, ClaimedChoice
    if type(asked) not in kinds or type(getattr(asked, "query", None)) is not BlockQuery:
        raise Unsupported("This is not a measurement.", fix="Make one with `Measurement`.")
    trusted = asked.query.tally.trusted  # type: ignore[attr-defined]  # of these kinds
    if (type(asked) is not BlockMeasurement or trusted) and not steward:
        raise Unsupported(
            "Only the steward can vouch for a program.",
            fix="Use gate.apply, on blocks of rows, with trusted=False.",
            about="steward",
        )
