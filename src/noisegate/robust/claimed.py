"""A distance that a program computes, on the steward's word that one unit moves it by 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import pyarrow as pa

from noisegate.algebra.blocks import STEPS, Blocks
from noisegate.algebra.schema import schema_of
from noisegate.curator.claimed import ClaimedMeasurement
from noisegate.desk.answer import Answer
from noisegate.desk.terms import checked, require_known
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.distance import L1
from noisegate.programs.text import Function, program_of
from noisegate.robust.paying import Found, Outcome, Till
from noisegate.sql.reading.reader import read
from noisegate.transforms.blocks import BlockQuery


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder:
    """What is asked for, as given by the caller; ``trusted`` is the steward's assertion."""

    trusted: bool = False
    epsilon: Number | None = None
    table: str | None = None
    columns: Sequence[str] = ()
    where: str | None = None
    seconds: Number = 10
    memory: int = 256
    imports: Sequence[str] = ()


def ask_claimed(
    till: Till, function: Function, terms: Mapping[str, Any], *, fresh: bool
) -> Outcome:
    """What the program says of all rows, with noise for a number that moves by 1."""
    order = _order(terms)
    if till.rules.sample is not None:
        raise SpecError(
            "A program whose sensitivity is vouched for sees all rows.",
            fix="Use the gate itself, not gate.sample(...).",
            about="sample",
        )
    epsilon = till.rules.price(order.epsilon)
    noise = Geometric.for_epsilon(epsilon, sensitivity=L1(1))
    measurement = ClaimedMeasurement(query=_query(till, function, order), noise=noise)
    asked = f"the distance {measurement.query.tally.program.name!r}"

    def finish(found: Found) -> Answer:
        table = pa.table({"distance": [found.values[0][0]]})
        words = f"Provided that {measurement.claim}, as declared."
        return found.answer(
            asked, table, lambda sure: (noise.interval(sure),), (words,), unsigned=True
        )

    return till.settle(
        measurement, finish, asked=asked, epsilon=epsilon, fresh=fresh, provided=measurement.claim
    )


def _order(terms: Mapping[str, Any]) -> ClaimOrder:
    require_known(terms, ClaimOrder)
    order = checked(ClaimOrder(**terms))
    if order.trusted is not True:
        raise SpecError(
            "Nobody vouches that one unit changes the program's result by at most 1.",
            fix="The steward can, with trusted=True; others can use gate.apply, on blocks of rows.",
        )
    return order


def _query(till: Till, function: Function, order: ClaimOrder) -> BlockQuery:
    table = till.table(order.table)
    where = "" if order.where is None else f" WHERE {order.where}"
    sql = f"SELECT COUNT(*) FROM {table}{where}"  # noqa: S608 - it is read, not run
    (block,) = read(sql, till.curator.tables).blocks
    return BlockQuery(
        Blocks(
            relation=block.relation,
            columns=tuple(order.columns) or tuple(schema_of(block.relation)),
            program=program_of(function, imports=tuple(order.imports)),
            blocks=1,
            ranges=((Fraction(0), Fraction(STEPS)),),
            defaults=(Fraction(0),),
            seconds=positive(order.seconds, name="seconds"),
            memory=order.memory,
        )
    )
