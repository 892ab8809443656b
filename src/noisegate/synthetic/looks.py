"""Paid looks at columns before they are cut: bounds that nobody declared, and bins of like size.

A look is a question like any other: bought once, kept in the ledger, free afterwards. All looks
together cost a fifth of the price.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final, final

from noisegate.desk.based import Based
from noisegate.desk.desk import Desk
from noisegate.desk.terms.price import Step
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import Event
from noisegate.sql.bounds.looks import SHARE
from noisegate.sql.bounds.table_looks import bounds_look, bounds_seen
from noisegate.sql.job import question_job
from noisegate.sql.spelling import quoted, without_null
from noisegate.synthetic.basis import Wanted
from noisegate.synthetic.columns import Bounds

CHOICES: Final = ("bounds", "bins")
_LEVELS: Final = tuple(Fraction(place, 20) for place in range(1, 20))
_NOT_YET: Final = (Fraction(0), Fraction(1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found, by columns; ``based`` are the looks, ``missing`` what the others lose."""

    bounds: Mapping[str, Bounds]
    edges: Mapping[str, tuple[Fraction, ...]]
    based: Based
    missing: tuple[Event, ...]
    words: tuple[str, ...]

    def cut(self, wanted: Wanted) -> Wanted:
        """The columns, with the bins that were found."""
        return replace(wanted, columns={**wanted.columns, **self.edges})


@final
class Looks:
    """What is to be found for some columns, for a part of a ``step``."""

    def __init__(
        self,
        desk: Desk,
        wanted: Wanted,
        choose: Any,  # noqa: ANN401 - one of `CHOICES`, or several
        step: Fraction,
        rows_per_unit: int | None,
    ) -> None:
        listed = (choose,) if isinstance(choose, str) else tuple(choose or ())
        if unknown := set(listed) - set(CHOICES):
            raise SpecError(
                f"{min(unknown)!r} cannot be chosen.",
                fix=f"Choose {' or '.join(CHOICES)}.",
                about="choice",
            )
        self._desk, self._wanted = desk, wanted
        self._unbounded = wanted.unbounded if "bounds" in listed else ()
        self._uncut = _uncut(wanted, self._unbounded) if "bins" in listed else ()
        count = len(self._unbounded) + len(self._uncut)
        self._each = Step(step * SHARE / max(1, count))
        self.steps = (self._each,) * count
        self._terms = Terms(epsilon=self._each, rows_per_unit=rows_per_unit)

    def seen(self, *, pay: bool = False) -> Seen:
        """What is known so far: free. With ``pay``, all of it: what is missing is bought.

        Until a column is looked at, its values are taken to be from 0 to 1, in the usual bins.
        """
        bounds: dict[str, Bounds] = {}
        edges: dict[str, tuple[Fraction, ...]] = {}
        based = Based()
        missing: list[Event] = []
        words: list[str] = []
        for name in self._unbounded:
            domain = self._wanted.domain
            cap = domain.rows_per_unit_max or self._terms.rows_per_unit
            door = self._desk.curator
            look = bounds_look(door, domain, name, self._each, rows_per_unit=cap)
            release = door.measure(look) if pay else door.find(look)
            found = None if release is None else self._wide(name, bounds_seen(look, release))
            bounds[name] = found or _NOT_YET
            based += Based.on([] if release is None else [release])
            missing += [] if found else [look.event()]
            words.append(
                _words("bounds", name, found and " to ".join(f"{float(each):g}" for each in found))
            )
        for name in self._uncut:
            limits = bounds.get(name) or self._wanted.domain.columns[name].between or _NOT_YET
            sql = self._sql(name, bounds.get(name))
            job = question_job(self._desk, sql, self._terms)
            known = pay or job.is_paid(self._desk.curator)
            missing += [] if known else [job.expected.event]
            if known:
                answer, event = self._desk.run(job), job.again(fresh=True).expected.event
                based += Based(
                    events=(event,), questions=answer.questions, request_ids=answer.request_ids
                )
                (levels,) = answer.rows
                cut = edges_of(levels, limits, whole=self._kind(name) is Kind.INTEGER)
                edges |= {name: cut} if len(cut) > 2 else {}
            words.append(
                _words(
                    "bins", name, f"{len(edges.get(name, ())) - 1} of like size" if known else None
                )
            )
        return Seen(
            bounds=bounds,
            edges=edges,
            based=based,
            missing=tuple(missing),
            words=tuple(words),
        )

    def _kind(self, name: str) -> Kind:
        return self._wanted.domain.columns[name].kind

    def _wide(self, name: str, bounds: Bounds) -> Bounds:
        """Bounds with room between them, and whole for whole numbers."""
        low, high = bounds
        if self._kind(name) is Kind.INTEGER:
            low, high = Fraction(floor(low)), Fraction(ceil(high))
        return low, max(high, low + 1) if low == high else high

    def _sql(self, name: str, bounds: Bounds | None) -> str:
        """The quantiles of a column, which are measured together."""
        value = quoted(name)
        if bounds is not None:
            held = f"LEAST(GREATEST({value}, {_decimal(bounds[0])}), {_decimal(bounds[1])})"
            value = without_null(value, held, self._wanted.domain.columns[name])
        asked = (
            f"QUANTILE_CONT({value}, {float(level)}) AS q{place}"
            for place, level in enumerate(_LEVELS)
        )
        return f"SELECT {', '.join(asked)} FROM {quoted(self._wanted.domain.name)}"  # noqa: S608 - read, never run


def edges_of(levels: Sequence[float], bounds: Bounds, *, whole: bool) -> tuple[Fraction, ...]:
    """Edges of bins between quantiles; a whole number that many rows have gets a bin of its own.

    >>> bounds = Fraction(0), Fraction(99)
    >>> [int(edge) for edge in edges_of([0, 0, 0, 7, 12.2], bounds, whole=True)]
    [0, 1, 7, 12, 100]
    """
    low, high = bounds
    near = [Fraction(floor(level)) if whole else Fraction(f"{level:.3g}") for level in levels]
    often = {level + 1 for level, count in Counter(near).items() if whole and count > 1}
    inner = sorted({edge for edge in (*near, *often) if low < edge < high + whole})
    return (low, *inner, high + whole)


def _uncut(wanted: Wanted, bounded: Sequence[str]) -> tuple[str, ...]:
    """Numeric columns with bounds, of which nobody says how to cut them."""
    facts, unit = wanted.domain.columns, wanted.domain.unit
    return tuple(
        name
        for name, how in wanted.columns.items()
        if how is None
        and facts[name].kind.is_numeric
        and facts[name].keys is None
        and (facts[name].between is not None or name in bounded)
        and (unit is None or name != unit.column)
    )


def _words(what: str, name: str, found: str | None) -> str:
    if found is None:
        return (
            f"the {what} of {name}: estimated first, for a part of ε; the errors shown are "
            "without it"
        )
    return f"the {what} of {name}, as estimated: {found}"


def _decimal(number: Fraction) -> str:
    """A number as SQL reads it; found bounds are powers of two."""
    return f"{float(number):.25f}".rstrip("0").rstrip(".")
