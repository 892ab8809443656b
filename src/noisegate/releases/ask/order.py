"""What all orders of releases share: the rows, the price, and caps; see `Gate.release`."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Final, TypedDict

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from noisegate.desk.desk import Desk
from noisegate.desk.job import Job, Progress
from noisegate.desk.order import Box, Columns, E_co, JobOrder, Json, Options, R_co
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, field, fields, replace
from noisegate.releases.cells.workload import Workload
from noisegate.transforms.checks import CAP_MAX

_COUNT: Final = exp.Count(this=exp.Star(), big_int=True)


class RunTerms(TypedDict, total=False):
    """How an order is run, which is no part of it. A plan has no progress."""

    fresh: bool
    progress: Progress | None


class PriceTerms(RunTerms, total=False):
    """The table of a release, and its price."""

    table: str | None
    epsilon: Number | None
    rows_per_unit: int | None


class RowsTerms(PriceTerms, total=False):
    """The same of some rows."""

    where: str | None


class CellsTerms(RowsTerms, total=False):
    """The same of cells; instead of columns, a release may have SQL."""

    columns: Columns | None


class TableTerms(CellsTerms, total=False):
    """A table by one of several methods, each with options of its own; see docs/releases.md."""

    axes: str
    method: str
    workload: str | Sequence[Box] | Workload | None
    groups_per_unit: int | None
    average: bool
    axis: int
    branching: int | None
    c: int
    c_second: int
    choice: Number
    cuts: Number
    depth: int | None
    first: Number
    frequencies: int | None
    harmonics: int
    least: int
    look: Number
    margins: Number
    medians: Number
    parents: Sequence[Sequence[int]]
    partition: Number
    prune: float | None
    ratio: Number | None
    replays: int
    rounds: int | None
    salt: int
    signed: bool
    size: int | None
    thrift: Number
    threshold: int
    total: Number | None
    weights: str
    width: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOrder(JobOrder[R_co, E_co]):
    """A release by its ``name``."""

    kind: ClassVar[str] = "release"
    name: str

    def __post_init__(self) -> None:
        JobOrder.__post_init__(self)
        caps = {each.name for each in fields(self)} & {"rows_per_unit", "groups_per_unit"}
        for cap in (getattr(self, name) for name in caps):
            if cap is not None and not 1 <= cap <= CAP_MAX:
                raise SpecError(
                    "A contribution bound per unit is out of range.",
                    fix=f"Use a whole number from 1 to {CAP_MAX}.",
                    about="cap",
                )

    def to_dict(self) -> Json:
        """With its name, even where it has but one."""
        return {"kind": self.kind, "name": self.name} | JobOrder.to_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsOrder(ReleaseOrder[R_co, E_co]):
    """A release of cells: ``sql`` says which, or ``columns`` of a ``table``.

    ``estimates``: whether a contribution bound that nobody declared is estimated for it;
    ``shares``: its numbers are shares of the rows that count, which a bound hardly changes.
    """

    estimates: ClassVar[bool] = True
    shares: ClassVar[bool] = False
    sql: str | None = None
    table: str | None = None
    columns: Columns | None = None
    where: str | None = None
    epsilon: Number | None = None
    rows_per_unit: int | None = None

    def made(self, desk: Desk, *, fresh: bool) -> Job[Any, R_co, E_co]:
        """The job; where nothing bounds the rows of a unit, with a bound that is estimated."""

        def bounded(cap: int, epsilon: Number) -> Job[Any, R_co, E_co]:
            order = replace(self, rows_per_unit=cap, epsilon=epsilon)
            return ReleaseOrder.made(order, desk, fresh=fresh)

        try:
            return ReleaseOrder.made(self, desk, fresh=fresh)
        except Unsupported as refusal:
            sql = self._rows(desk)
            bounded_by = self.rows_per_unit is not None or not self.estimates
            if refusal.about != "cap" or bounded_by or sql is None:
                raise
            from noisegate.releases.ask.asking import capped  # noqa: PLC0415 - where it is needed

            found = capped(desk, sql, self.epsilon, bounded, asked=self.sql, shares=self.shares)
            if found is None:
                raise
        return found

    def _rows(self, desk: Desk) -> str | None:
        """SQL that counts the same rows, without groups where that is known."""
        if self.sql is not None:
            return ungrouped(self.sql) or self.sql
        private = [each.name for each in desk.curator.tables.values() if not each.is_public]
        table = self.table or (private[0] if len(private) == 1 else None)
        if table is None:
            return None
        named = '"{}"'.format(table.replace('"', '""'))
        rows = f"{named} WHERE {self.where}" if self.where else named
        return f"SELECT COUNT(*) AS n FROM {rows}"  # noqa: S608 - read as any question


def ungrouped(sql: str) -> str | None:
    """The rows of a plain COUNT by groups, in one number; None of all else, and beside hints."""
    if "/*" in sql or "--" in sql or "OPTIONS" in sql.upper():
        return None
    try:
        select = parse_one(sql, dialect="duckdb")
    except SqlglotError:  # the reader knows more forms
        return None
    if type(select) is not exp.Select or not select.args.get("group"):
        return None
    items = [each.unalias() for each in select.selects if each.find(exp.AggFunc)]
    if items != [_COUNT]:
        return None
    select.set("group", None)
    return select.select(exp.alias_(_COUNT, "n"), append=False).sql(dialect="duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOrder(CellsOrder[R_co, E_co]):
    """A table by a ``method``, with its ``options``, for a ``workload``."""

    method: str = "auto"
    workload: str | Sequence[Box] | Workload | None = None
    groups_per_unit: int | None = None
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        exact = {n: str(v) if isinstance(v, Fraction) else v for n, v in self.options.items()}
        object.__setattr__(self, "options", exact)  # as ledgers keep them
        CellsOrder.__post_init__(self)


def agreed(inner: Terms, order: CellsOrder[R_co, E_co], groups: int | None = None) -> Terms:
    """What the caller says goes before what the SQL says."""
    said = order.epsilon
    return Terms(
        epsilon=inner.epsilon if said is None else fraction(said, name="epsilon"),
        within=inner.within if said is None else None,
        relative=inner.relative if said is None else None,
        rows_per_unit=order.rows_per_unit or inner.rows_per_unit,
        groups_per_unit=groups or inner.groups_per_unit,
    )
