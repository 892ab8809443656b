"""What a service says about a table, as a gate in this process has it."""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final

from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.unit import PrivacyUnit

_DATED: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
}


def table_of(dataset: str, record: Mapping[str, Any]) -> TableDomain:
    """A table by its public facts. How its rows lead to their owner stays with the service."""
    unit = record["owner"]
    columns = {each["name"]: _column(each) for each in record["columns"]}
    return TableDomain(
        dataset=dataset,
        name=record["name"],
        unit=None if unit is None else PrivacyUnit(**unit),
        columns=columns,
        rows_per_unit_max=record["rows_per_unit"],
        groups_per_unit_max=record["groups_per_unit"],
    )


def _column(record: Mapping[str, Any]) -> Column:
    terms = {name: record[name] for name in ("type", "in", "between", "nullable")}
    if record["in"] is not None and (read := _DATED.get(record["type"])) is not None:
        terms["in"] = [read(key) for key in record["in"]]
    said = {name: value for name, value in terms.items() if value is not None}
    return Column.from_terms(record["name"], said)
