"""A distance that a program computes, on the steward's word that one unit moves it by 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Unpack, final

from noisegate.algebra.blocks import STEPS, Blocks, Program
from noisegate.algebra.schema import schema_of
from noisegate.curator.claimed import ClaimedMeasurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.order import JobOrder
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.distance import L1
from noisegate.programs.order import require_all_rows
from noisegate.programs.text import Function, completed, program_of
from noisegate.robust.distances import DistanceOrder, DistanceTerms
from noisegate.robust.paying import Found, RobustJob, Till
from noisegate.robust.plans import RobustExpected
from noisegate.sql.reading.reader import read
from noisegate.transforms.blocks import BlockQuery


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder(JobOrder[Answer, RobustExpected]):
    """A distance by a program; ``trusted`` is the steward's word that one unit moves it by 1."""

    kind: ClassVar[str] = "claim"
    program: Program
    trusted: bool = False
    epsilon: Number | None = None
    table: str | None = None
    columns: Sequence[str] = ()
    where: str | None = None
    seconds: Number = 10
    memory: int = 256

    def __post_init__(self) -> None:
        JobOrder.__post_init__(self)
        object.__setattr__(self, "program", completed(self.program))
        if not self.trusted:
            raise SpecError(
                "Nobody vouches that one unit changes the program's result by at most 1.",
                fix="The steward can, with trusted=True; others can use gate.apply, on blocks.",
            )

    def job(self, desk: Desk) -> RobustJob:
        """What the program says of all rows, with noise for a number that moves by 1."""
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

        till = Till(desk)
        require_all_rows(desk)
        epsilon = till.rules.price(self.epsilon)
        noise = Geometric.for_epsilon(till.inner(epsilon), sensitivity=L1(1))
        measurement = ClaimedMeasurement(query=_query(till, self), noise=noise)
        asked = f"the distance {self.program.name!r}"

        def finish(found: Found) -> Answer:
            table = pa.table({"distance": [found.values[0][0]]})
            words = f"Provided that {measurement.claim}, as declared."
            return found.answer(
                asked, table, lambda sure: (noise.interval(sure),), (words,), unsigned=True
            )

        return till.job(
            measurement, finish, asked=asked, epsilon=epsilon, provided=measurement.claim
        )


def distance_order(
    asked: Function | None = None, **terms: Unpack[DistanceTerms]
) -> DistanceOrder | ClaimOrder:
    """An order from what is said to `Gate.distance`."""
    said: dict[str, Any] = {**terms}
    if "trusted" in said or callable(asked):
        program = program_of(asked or "", imports=tuple(said.pop("imports", ())))
        return ClaimOrder.make(program=program, **said)
    return DistanceOrder.make(sql=asked, **said)


def _query(till: Till, order: ClaimOrder) -> BlockQuery:
    table = till.table(order.table)
    where = "" if order.where is None else f" WHERE {order.where}"
    sql = f"SELECT COUNT(*) FROM {table}{where}"  # noqa: S608 - it is read, not run
    (block,) = read(sql, till.curator.tables).blocks
    return BlockQuery(
        Blocks(
            relation=block.relation,
            columns=tuple(order.columns) or tuple(schema_of(block.relation)),
            program=order.program,
            blocks=1,
            ranges=((Fraction(0), Fraction(STEPS)),),
            defaults=(Fraction(0),),
            seconds=positive(order.seconds, name="seconds"),
            memory=order.memory,
        )
    )
