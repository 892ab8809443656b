"""Learning a finite class: the hypothesis with nearly the fewest errors, by a private choice.

    learn_class(gate, "BIN(age, 5) >= t", "sick", candidates={"t": range(0, 100, 5)}, epsilon=1)

Every finite class can be learnt privately, from about ln(size) / (ε · error) rows besides those
that learning needs anyway [KLNRS11].
"""

from collections.abc import Sequence
from math import ceil, log
from typing import TYPE_CHECKING, Any, Final, final

from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of, whole_count
from noisegate.sql.choices.choice import Choice, ChoiceOrder
from noisegate.sql.choices.on_interval import Given
from noisegate.sql.spelling import table_named

if TYPE_CHECKING:
    from noisegate.desk.card import Card

LISTED_MAX: Final = 100  # hypotheses that are written out


@final
@dataclass(frozen=True, slots=True)
class Learnt:
    """The chosen hypothesis, as a condition; and the choice, with its price and promise."""

    hypothesis: str
    choice: Choice

    def excess(self, confidence: Number = USUAL) -> float:
        """How many more rows it may get wrong than the best of the class, at this confidence."""
        return self.choice.shortfall(confidence)

    def card(self, confidence: Number = USUAL) -> "Card":
        """The release card of the choice."""
        return self.choice.card(confidence)


def class_order(
    hypothesis: str | Sequence[str],
    label: str,
    *,
    table: str,
    candidates: Given | str | None = None,
    where: str | None = None,
    **terms: Any,  # noqa: ANN401 - of `ChoiceOrder`
) -> ChoiceOrder:
    """The choice of the hypothesis with the fewest rows that it gets wrong.

    A row without a label, or of which a hypothesis says neither yes nor no, counts for none.
    """
    kept = "" if where is None else f" WHERE {where}"
    if isinstance(hypothesis, str):
        if candidates is None:
            raise SpecError(
                "A class needs more than one hypothesis.",
                fix='Give candidates for its parameters, {"t": [1, 2]}, or several hypotheses.',
                about="class",
            )
        counted = f"COUNT(*) FILTER (WHERE ({hypothesis}) <> ({label}))"
    else:
        if candidates is not None or not 2 <= len(hypothesis) <= LISTED_MAX:
            raise SpecError(
                f"There are {len(hypothesis):,} hypotheses.",
                fix=f"List 2 to {LISTED_MAX}; or give one with parameters, and candidates.",
                about="class",
            )
        counted = ", ".join(
            f'COUNT(*) FILTER (WHERE ({each}) <> ({label})) AS "{place}"'
            for place, each in enumerate(hypothesis)
        )
    sql = f"SELECT {counted} FROM {table}{kept}"  # noqa: S608 - it is read, not run
    return ChoiceOrder.make(sql=sql, candidates=candidates, least=True, **terms)


def learnt_of(
    hypothesis: str | Sequence[str], candidates: Given | str | None, choice: Choice
) -> Learnt:
    """What a choice says about hypotheses."""
    if not isinstance(hypothesis, str):
        return Learnt(hypothesis[int(str(choice.winner))], choice)
    winner = choice.winner if isinstance(choice.winner, tuple) else (choice.winner,)
    names = list(candidates) if not isinstance(candidates, str | None) else []
    told = ", ".join(f"{n} = {v}" for n, v in zip(names, winner, strict=False)) or str(
        choice.winner
    )
    return Learnt(f"{hypothesis} with {told}", choice)


def learn_class(
    gate: Any,  # noqa: ANN401 - a gate, here or elsewhere
    hypothesis: str | Sequence[str],
    label: str,
    *,
    candidates: Given | str | None = None,
    table: str | None = None,
    fresh: bool = False,
    **terms: Any,  # noqa: ANN401 - of `ChoiceOrder`, and where
) -> Learnt:
    """The hypothesis of a finite class with nearly the fewest errors.

    ``hypothesis`` is a condition with parameters, whose ``candidates`` are listed as for
    `gate.choose`; or a list of conditions. ``label`` is what they are to say.
    """
    order = class_order(
        hypothesis, label, table=table_of(gate, table), candidates=candidates, **terms
    )
    return learnt_of(hypothesis, order.candidates, gate.run(order, fresh=fresh))


def table_of(gate: Any, table: str | None) -> str:  # noqa: ANN401 - a gate
    """The table that is meant: the named one, or the only private one."""
    return table_named(gate.tables, table)


def class_rows_needed(
    *,
    size: int,
    error: Number,
    epsilon: Number,
    confidence: Number = USUAL,
    population: bool = True,
) -> int:
    """How many rows, one for each unit, a class of this size needs.

    Claim: with them the chosen hypothesis errs on a share of at most ``error`` more than the best
        of the class, with the confidence: of the rows, or with ``population`` of what they were
        drawn from. Why: the choice loses at most ln(size / β) / ε rows, as errors only grow when a
        unit comes [KLNRS11, Sec. 3]. For a population that has half of ``error`` and of β, and
        all shares are within a quarter of ``error`` by Hoeffding's bound for all of the class.

    >>> class_rows_needed(size=1000, error="0.1", epsilon=1), class_rows_needed(
    ...     size=1000, error="0.1", epsilon=1, population=False)
    (9032, 100)
    """
    count, off = whole_count(size, name="size"), float(positive(error, name="error"))
    price, failure = float(positive(epsilon, name="epsilon")), float(failure_of(confidence))
    if not population:
        return ceil(log(count / failure) / (price * off))
    noise = log(2 * count / failure) / (price * off / 2)
    drawn = log(4 * count / failure) / (2 * (off / 4) ** 2)
    return ceil(max(noise, drawn))
