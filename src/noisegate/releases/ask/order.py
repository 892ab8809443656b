"""What is asked of a release, as people say it, and as the names with own results read it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, final

from noisegate.desk.options import require_options
from noisegate.desk.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.releases.forms.boxplots import Asked
from noisegate.transforms.checks import CAP_MAX

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked for, as given by the caller; see `Gate.release`."""

    name: str
    sql: str | None = None
    table: str | None = None
    columns: Mapping[str, Any] | None = None
    where: str | None = None
    method: str = "auto"
    workload: Any = None
    epsilon: Number | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(
                "The name of the release is not a string.",
                fix='For example: release("histogram", …).',
                about="name",
            )
        for said in (self.table, self.where):
            if said is not None and not isinstance(said, str):
                raise SpecError(
                    "table and where must be strings.",
                    fix='For example: where="age > 17".',
                    about="text",
                )
        if self.columns is not None and not isinstance(self.columns, Collection):
            raise SpecError(
                "columns must be a dict by column name.",
                fix='For example: columns={"age": 5}.',
                about="columns",
            )
        for cap in (self.rows_per_unit, self.groups_per_unit):
            if cap is not None and (type(cap) is not int or not 1 <= cap <= CAP_MAX):
                raise SpecError(
                    "A contribution bound per unit is out of range.",
                    fix=f"Use a whole number from 1 to {CAP_MAX}.",
                    about="cap",
                )


def order_of(name: str, sql: str | None, terms: Mapping[str, Any]) -> Order:
    """An order from all that was said: what is not part of every order is an option."""
    known = {each.name for each in fields(Order)} - {"name", "sql", "options"}
    said = {term: value for term, value in terms.items() if term in known}
    options = {term: value for term, value in terms.items() if term not in known}
    return Order(name=name, sql=sql, **said, options=options)


def agreed(inner: Terms, order: Order) -> Terms:
    """What the caller says goes before what the SQL says."""
    said = order.epsilon is not None
    return Terms(
        epsilon=fraction(order.epsilon, name="epsilon") if said else inner.epsilon,  # type: ignore[arg-type]
        within=None if said else inner.within,
        relative=None if said else inner.relative,
        rows_per_unit=order.rows_per_unit or inner.rows_per_unit,
        groups_per_unit=order.groups_per_unit or inner.groups_per_unit,
    )


def own(kind: type[T], order: Order) -> T:
    """The order of a name with a result of its own, which has one method."""
    if order.method != "auto" or order.workload is not None or order.groups_per_unit is not None:
        raise SpecError(
            f"{order.name!r} has only one method.",
            fix="Leave out method, workload and groups_per_unit.",
            about="method",
        )
    shared = {
        each.name: getattr(order, each.name)
        for each in fields(kind)  # type: ignore[arg-type]
        if each.name in Order.__slots__
    }
    require_options(order.name, kind, order.options, shared)
    return kind(**shared, **order.options)


def boxes(order: Order) -> Asked:
    """The columns of a box plot."""
    if order.columns is None or order.sql is not None:
        raise SpecError(
            "A box plot needs columns: a number first, then groups.",
            fix='For example: columns={"cost": None, "ward": None}; whiskers=0.05 is optional.',
        )
    return own(Asked, replace(order, groups_per_unit=None))  # a cap that it has


def steps(order: Order) -> Order:
    """A distribution function is a series of numbers, by a method whose error is known."""
    if grown := {"until", "horizon"} & order.options.keys():
        raise SpecError(
            f"A distribution function has no option {min(grown)!r}.",
            fix='For data that grow, release a "series".',
        )
    return replace(order, name="series", method="tree" if order.method == "auto" else order.method)


def is_running(order: Order) -> bool:
    """A series that grows says until when its periods are complete."""
    running = order.name == "series" and "until" in order.options
    if running and (order.workload is not None or order.groups_per_unit is not None):
        raise SpecError(
            "A series that grows shows running totals only.", fix="Leave out workload and groups."
        )
    return running
