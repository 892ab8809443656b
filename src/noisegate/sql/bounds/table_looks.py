"""Looks that are asked for by themselves: how large units are, and the range of a column."""

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any, ClassVar, TypeVar, final

from noisegate.algebra.expression import Call, Expression, Field
from noisegate.algebra.relation import Relation, Sampled, Table
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.order import JobOrder
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import inner_price
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.release import Release
from noisegate.sql.bounds.look import scale_of
from noisegate.sql.bounds.ranges import range_seen
from noisegate.sql.estimates.profiles import (
    Profile,
    range_query,
    rows_per_unit_query,
)
from noisegate.transforms.query import Query

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LookExpected:
    """What is looked at, and the scale of the noise in each number of units."""

    about: str
    scale: float

    def facts(self, confidence: Number) -> list[Fact]:  # noqa: ARG002 - as others
        """In words, one fact a line."""
        return [("look", self.about), ("noise", f"of scale {self.scale:.3g} in each number")]

    def margins(self, confidence: Number) -> dict[str, float | None]:  # noqa: ARG002 - as others
        """What a look shows depends on the rows."""
        return {self.about: None}

    def to_dict(self, confidence: Number) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        return {"look": self.about, "scale": self.scale}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LookJob(Measured[T, LookExpected]):
    """A look at a table; ``seen`` is what is made of it."""

    kind: str = "look"
    seen: Callable[[Release], T]

    def result(self, content: Release, receipt: Receipt) -> T:  # noqa: ARG002 - a look has none
        """What was seen."""
        return self.seen(content)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CapsOrder(JobOrder[Profile, LookExpected]):
    """How many units of a table have how many rows; see `Gate.caps`."""

    kind: ClassVar[str] = "caps"
    table: str
    epsilon: Number

    def job(self, desk: Desk) -> LookJob[Profile]:
        """The look, bought once; of a sample, scaled up."""
        sample, epsilon = desk.rules.sample, desk.epsilon(self.epsilon)
        query = rows_per_unit_query(_rows(_private(desk, self.table), sample))
        look = _measurement(query, desk.step(epsilon), sample)
        scale = scale_of(look) / float(sample or 1)

        def seen(release: Release) -> Profile:
            units = tuple(round(each / (sample or 1)) for each in release.values[0].tolist())
            return Profile(table=self.table, units=units, scale=scale)

        return _job(f"rows of each unit in {self.table}", epsilon, look, seen)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsOrder(JobOrder[tuple[Fraction, Fraction], LookExpected]):
    """A range that holds nearly all values of a column; see `Gate.bounds`."""

    kind: ClassVar[str] = "bounds"
    table: str
    column: str
    epsilon: Number
    rows_per_unit: int | None = None

    def job(self, desk: Desk) -> LookJob[tuple[Fraction, Fraction]]:
        """The look, bought once."""
        epsilon, domain = desk.epsilon(self.epsilon), _private(desk, self.table)
        step, sample = desk.step(epsilon), desk.rules.sample
        said = Terms(rows_per_unit=self.rows_per_unit).rows_per_unit or domain.rows_per_unit_max
        look = bounds_look(desk.curator, domain, self.column, step, sample, rows_per_unit=said)
        about = f"bounds of {self.column} in {self.table}"
        return _job(about, epsilon, look, lambda release: bounds_seen(look, release))


def _job(
    about: str, epsilon: Fraction, look: Measurement, seen: Callable[[Release], T]
) -> LookJob[T]:
    expected = LookExpected(about=about, scale=scale_of(look))
    return LookJob(sql=about, epsilon=epsilon, expected=expected, measurement=look, seen=seen)


def bounds_look(
    curator: Curator,
    domain: TableDomain,
    column: str,
    epsilon: Fraction,
    sample: Fraction | None = None,
    *,
    rows_per_unit: int | None = None,
) -> Measurement:
    """What to measure for the bounds of a column, of so many rows of a unit; if paid, as it was."""
    value: Expression = Field(column)
    if column in domain.columns and domain.columns[column].untyped:
        value = Call("to_number", (value,))
    rows = _rows(domain, sample)
    looks = [
        _measurement(
            range_query(rows, value, rows_per_unit=rows_per_unit, former=former), epsilon, sample
        )
        for former in (False, True)
    ]
    return next((each for each in looks if _is_paid(curator, each)), looks[0])


def _is_paid(curator: Curator, look: Measurement) -> bool:
    with suppress(Unsupported):  # not every engine could count digits once
        return curator.find(look) is not None
    return False


def _rows(domain: TableDomain, sample: Fraction | None) -> Relation:
    table = Table(domain)
    return table if sample is None else Sampled(table, sample)


def bounds_seen(look: Measurement, release: Release) -> tuple[Fraction, Fraction]:
    """The range that a look at bounds shows."""
    return range_seen(release.values[0].tolist(), scale_of(look), "bounds")


def _measurement(query: Query, epsilon: Fraction, sample: Fraction | None) -> Measurement:
    price = inner_price(epsilon, sample)
    noise = Geometric.for_epsilon(price, sensitivity=query.l1s[0])
    return Measurement(query=query, mechanisms=(noise,))


def _private(desk: Desk, table: str) -> TableDomain:
    found = {name.lower(): each for name, each in desk.curator.tables.items()}
    if table.lower() not in found or found[table.lower()].is_public:
        raise SpecError(
            f"There is no private table {table!r}.", fix="See gate.tables.", about="table"
        )
    return found[table.lower()]
