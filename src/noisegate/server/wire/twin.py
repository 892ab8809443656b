"""The practice twin's rows: what a preview shows. Made up from declared facts, public tables as is.

The engine is that of the free SQL over released tables: it can reach nothing else, refuses what is
not a plain SELECT, and has little memory and time.
"""

from collections.abc import Mapping
from typing import Any, Final, final

import pyarrow as pa
from sqlglot import exp

from noisegate.errors import Unsupported
from noisegate.privacy.domain import TableDomain
from noisegate.server.wire.naming import with_names
from noisegate.server.wire.statements import spelled
from noisegate.sql.outer.engine import run_outer

_ROWS_MAX: Final = 20_000  # nobody needs more of them, and a session keeps what it shows


@final
class Twin:
    """Made-up rows of one data set, without its hidden columns."""

    def __init__(self, rows: Mapping[str, Any], tables: Mapping[str, TableDomain]) -> None:
        self.tables = tables
        self._rows: dict[str, pa.Table] = {}
        for name, table in rows.items():
            declared = tables[name].columns
            shown = [each for each in declared if not declared[each].hidden]
            self._rows[name] = table.select([each for each in shown if each in table.column_names])

    def answer(self, tree: exp.Expr) -> pa.Table:
        """A question of any form over made-up rows."""
        found = run_outer(spelled(_plain(tree)), {}, self._rows)
        if found.num_rows > _ROWS_MAX:
            raise Unsupported("The result is too large.", fix="Add WHERE or LIMIT.", about="size")
        return found


def _plain(tree: exp.Expr) -> exp.Expr:
    """Without what samples and shuffles: made-up rows are as good as any others."""
    found = with_names(tree.copy())
    for node in list(found.find_all(exp.TableSample)):
        node.pop()
    for order in list(found.find_all(exp.Order)):
        if order.find(exp.Rand) is not None:
            order.pop()
    for place in [each for each in found.find_all(exp.Column) if each.name.lower() == "ctid"]:
        condition = place.find_ancestor(exp.Predicate)
        if condition is not None:
            condition.replace(exp.true())  # a part of a table by where its rows are stored
    return found
