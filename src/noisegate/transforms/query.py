"""An exact question with its sensitivity: what a rule returns and a measurement takes."""

from dataclasses import asdict, dataclass
from typing import Any, final

from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import TableDomain
from noisegate.sources.source import Tally


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A tally, how far one unit can move it, and the rules that say so.

    ``l1`` and ``l2`` bound the change of the whole vector of cells under adding or removing one
    unit of ``table``. Only rules in this room make queries.
    """

    table: TableDomain
    tally: Tally
    l1: L1
    l2: L2
    path: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        """The question as plain values; equal for equal questions, so the ledger can compare."""
        tally = {name: value for name, value in asdict(self.tally).items() if value}
        return {
            "dataset": self.table.dataset,
            "count": _plain(tally),
            "snapshot": self.table.snapshot,
            "unit": self.table.unit.column or "row",
        }


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int) else str(value)
