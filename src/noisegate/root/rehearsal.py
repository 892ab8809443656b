"""Made-up rows behind a real door: for audits."""

from collections.abc import Mapping
from fractions import Fraction
from typing import final

import pyarrow as pa

from noisegate.curator.curator import Curator
from noisegate.desk.terms.rules import EPSILON_MAX
from noisegate.frozen import replace
from noisegate.gate import Gate
from noisegate.ledger.open import open_ledger
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.root.parts import open_root, protected_by
from noisegate.sources.duckdb.source import DuckDBSource


@final
class Rehearsal:
    """Made-up rows behind a real door, as often as wanted: for audits. Nothing of ``gate`` is read.

    The tables have the same declared facts, the same rules and the same kind of accountant, so that
    an ε buys the same; the budget is as large as any, in memory. The engine is asked each question
    once, because made-up rows do not change; all else happens anew each time.
    """

    def __init__(self, gate: Gate, rows: Mapping[str, pa.Table]) -> None:
        from noisegate.sources.remembered import Remembered  # noqa: PLC0415 - only for audits

        self._tables, self._rules = gate.tables, replace(gate.rules, practice=True)
        self._dataset, self._allowed = gate.door.dataset, gate.door.allowed
        paying = gate.ledger.balance(gate.door.account)
        self._accountant = paying.accountant
        self._delta = Fraction(1, 2) if self._accountant == "pure" else paying.budget.delta
        self._source = Remembered(DuckDBSource(rows, self._tables))

    def gate(self, *, max_epsilon: bool = True) -> Gate:
        """A gate with a fresh ledger; without ``max_epsilon`` also for dear questions."""
        book, budget = open_ledger(":memory:"), ApproxDP(EPSILON_MAX, self._delta)
        unit = protected_by(book, self._dataset, units_of(self._tables.values()))
        open_root(book, self._dataset, unit, budget=budget, accountant=self._accountant)
        rules = self._rules if max_epsilon else replace(self._rules, epsilon_max=None)
        door = Curator(
            source=self._source, tables=self._tables, ledger=book, account=self._dataset,
            allowed=self._allowed,
        )  # fmt: skip
        return Gate(door, rules)


def made_up_rows(gate: Gate, *, rows: int = 1000) -> dict[str, pa.Table]:
    """Rows that keep the declared facts of all tables; public tables as they are.

    No row of a private table is read.
    """
    from noisegate.steward.practice import practice_rows  # noqa: PLC0415 - only for audits

    public = {name: gate.door.public(name) for name, each in gate.tables.items() if each.is_public}
    return practice_rows(gate.tables, public=public, rows=rows)
