"""Looks that are asked for by themselves: how large units are, and the range of a column."""

from fractions import Fraction

from noisegate.algebra.expression import Call, Expression, Field
from noisegate.algebra.relation import Relation, Sampled, Table
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.price import inner_price
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.release import Release
from noisegate.sql.bounds.looks import NO_RANGE, scale_of
from noisegate.sql.bounds.profiles import Profile, range_of, range_query, rows_per_unit_query
from noisegate.transforms.query import Query


def profile(
    curator: Curator, table: str, epsilon: Fraction, sample: Fraction | None = None
) -> Profile:
    """How many units have how many rows, measured once; of a sample, scaled up."""
    query = rows_per_unit_query(_rows(_private(curator, table), sample))
    release, scale = _measured(curator, query, inner_price(epsilon, sample))
    units = tuple(round(each / (sample or 1)) for each in release.values[0].tolist())
    return Profile(table=table, units=units, scale=scale / float(sample or 1))


def bounds(
    curator: Curator, table: str, column: str, epsilon: Fraction, sample: Fraction | None = None
) -> tuple[Fraction, Fraction]:
    """A range that holds nearly all values of a column, measured once."""
    look = bounds_look(_private(curator, table), column, epsilon, sample)
    return bounds_seen(look, curator.measure(look))


def bounds_look(
    domain: TableDomain, column: str, epsilon: Fraction, sample: Fraction | None = None
) -> Measurement:
    """What to measure for the bounds of a column."""
    cap, price = domain.rows_per_unit_max, inner_price(epsilon, sample)
    value: Expression = Field(column)
    if column in domain.columns and domain.columns[column].untyped:
        value = Call("to_number", (value,))
    query = range_query(_rows(domain, sample), value, rows_per_unit=cap)
    return Measurement(
        query=query, mechanisms=(Geometric.for_epsilon(price, sensitivity=query.l1s[0]),)
    )


def _rows(domain: TableDomain, sample: Fraction | None) -> Relation:
    table = Table(domain)
    return table if sample is None else Sampled(table, sample)


def bounds_seen(look: Measurement, release: Release) -> tuple[Fraction, Fraction]:
    """The range that a look at bounds shows."""
    found = range_of(release.values[0].tolist(), scale=scale_of(look))
    if found is None:
        raise Unsupported(
            "In the private estimate of bounds, no range stands out from the noise; the estimate "
            "was paid for.",
            fix=NO_RANGE,
            about="no-range",
        )
    return found


def _measured(curator: Curator, query: Query, epsilon: Fraction) -> tuple[Release, float]:
    noise = Geometric.for_epsilon(epsilon, sensitivity=query.l1s[0])
    release = curator.measure(Measurement(query=query, mechanisms=(noise,)))
    return release, float(noise.scale)


def _private(curator: Curator, table: str) -> TableDomain:
    found = {name.lower(): each for name, each in curator.tables.items()}
    if table.lower() not in found or found[table.lower()].is_public:
        raise SpecError(
            f"There is no private table {table!r}.", fix="See gate.tables.", about="table"
        )
    return found[table.lower()]
