"""A column of a policy: declared terms and the stored kind become one set of facts."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Final

from noisegate.errors import PolicyError, SpecError
from noisegate.frozen import replace
from noisegate.privacy.domain import Column, Key, Kind

# Families whose values can be read as one another, besides text, which anything can be.
_FAMILIES: Final = (
    {Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN},
    {Kind.DATE, Kind.TIMESTAMP},
)


def column_of(
    place: str,
    name: str,
    terms: Mapping[str, Any],
    *,
    stored: Kind | None = None,
    keys: Sequence[Key] = (),
) -> Column:
    """The facts of a column. ``keys`` are the values of the column that it references."""
    facts = {key: value for key, value in terms.items() if key != "references"}
    target, _, other = terms.get("references", "").partition(".")
    if target:
        facts["in"] = list(dict.fromkeys(key for key in keys if key is not None))
    if "between" in facts:
        facts["between"] = _of_one_scale(facts["between"], facts.get("type"), stored)
    try:
        column = Column.from_terms(name, facts, stored=stored)
        _require_bounds(column.kind, facts.get("between", ()))
    except SpecError as error:
        fix = error.fix if not target else f"Declare {other!r} of {target!r} with the same type."
        refusal = PolicyError(f"{place}: {error.problem}", fix=fix, about=error.about)
    else:
        _require_readable(place, column.kind, stored)
        return replace(column, references=(target, other)) if target else column
    raise refusal


def _of_one_scale(bounds: list[Any], declared: str | None, stored: Kind | None) -> list[Any]:
    """Bounds of a time as times: a day is not a microsecond. A date is when it starts."""
    kind = stored if declared is None else declared
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP.value) or datetime in map(type, bounds):
        return [datetime.combine(one, time()) if type(one) is date else one for one in bounds]
    return bounds


def _require_bounds(kind: Kind, bounds: Sequence[Any]) -> None:
    fitting = {Kind.DATE: date, Kind.TIMESTAMP: datetime}.get(kind)
    for one in bounds:
        if type(one) is not fitting if fitting else isinstance(one, date):
            raise SpecError(
                f"The bounds are not {kind.value}s, as the column is.",
                fix="Give bounds of the column's type, or declare another type.",
            )


def _require_readable(place: str, kind: Kind, stored: Kind | None) -> None:
    if stored in (None, Kind.TEXT, kind) or kind is Kind.TEXT:
        return
    if not any({kind, stored} <= family for family in _FAMILIES):
        raise PolicyError(
            f"{place}: it is declared as {kind.value} but stored as {stored.value}, so every "
            "value would be missing.",
            fix="Declare it as it is stored, or as text, or change how it is stored.",
            about="stored",
        )
