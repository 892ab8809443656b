"""What is public about a data set: its tables and their declared facts, as plain values."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from noisegate.desk.display.prompt import plain_end
from noisegate.desk.sent import loss_texts
from noisegate.ledger.account import Balance, room_of
from noisegate.privacy.capability import CAPABILITIES
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.unit import protected

if TYPE_CHECKING:
    from noisegate.gate import Gate
    from noisegate.root import Hosted


def facts_of(hosted: "Hosted", gate: "Gate | None") -> dict[str, Any]:
    """A data set for people who may ask it. Nothing in here is derived from private rows."""
    policy = hosted.policy
    allowed = hosted.policy.allowed if gate is None else gate.door.allowed
    return {
        "name": policy.name,
        "protects": protected(units_of(hosted.tables.values())),
        "snapshot": policy.snapshot,
        "accountant": policy.accountant,
        "default_epsilon": number(policy.default_epsilon),
        "max_epsilon": number(policy.max_epsilon),
        "capabilities": {name: name in allowed for name in CAPABILITIES},
        "tables": [table_facts(table) for table in hosted.tables.values()],
        "budget": None if gate is None else budget_facts(gate.door.balances()),
        "exact": None if gate is None else _exact(gate),
    }


def table_facts(table: TableDomain) -> dict[str, Any]:
    """A table: whose rows, and its columns but for the hidden ones."""
    return {
        "name": table.name,
        "public": table.is_public,
        "unit": None if (unit := table.unit) is None else str(unit),
        "owner": unit and {"column": unit.column, "noun": unit.noun, "ids": unit.ids},
        "rows_per_unit": table.rows_per_unit_max,
        "groups_per_unit": table.groups_per_unit_max,
        "columns": [_column(each) for each in table.columns.values() if not each.hidden],
    }


def _column(column: Column) -> dict[str, Any]:
    keys = None if column.keys is None else [_plain(key) for key in column.keys]
    ends = column.between
    between = None if ends is None else [plain_end(end, column.kind) for end in ends]
    return {
        "name": column.name, "type": column.kind.value, "nullable": column.nullable,
        "in": keys, "between": between,
    }  # fmt: skip


def budget_facts(balances: Sequence[Balance]) -> dict[str, Any]:
    """An account: its budget, what was spent of it, and what it and those above it have left."""
    budget, spent, left = balances[0].budget, balances[0].spent, room_of(balances)
    return {
        "epsilon": float(budget.epsilon), "delta": float(budget.delta),
        "spent": float(spent.epsilon), "spent_delta": float(spent.delta),
        "remaining": float(left.epsilon), "remaining_delta": float(left.delta),
    }  # fmt: skip


def _exact(gate: "Gate") -> dict[str, list[str]]:
    """The balance in exact numbers, as texts."""
    return {"spent": loss_texts(gate.spent), "remaining": loss_texts(gate.remaining)}


def _plain(key: object) -> object:
    return key if key is None or isinstance(key, str | int | bool) else str(key)


def number(said: Fraction | None) -> float | None:
    """An exact number as JSON has it."""
    return None if said is None else float(said)
