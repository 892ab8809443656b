"""A crowd in SQL: ``SELECT ward, COUNT(*) FROM people GROUP BY ward HAVING COUNT(*) >= 36``.

Under a policy that allows it, such a question is answered by the counts of a secret sample; groups
with fewer in the sample are not shown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from noisegate.crowd.histogram import CrowdOrder, crowd_job
from noisegate.desk.answer import Answer, HalfWidths
from noisegate.desk.desk import Desk
from noisegate.desk.rules import Rules
from noisegate.exact import Number
from noisegate.privacy.domain import TableDomain
from noisegate.sql.question import Function
from noisegate.sql.reading.reader import read

# The reader of SQL checks all the rest; here the last clause is taken off, where no comment is.
_HAVING: Final = re.compile(
    r"\s+HAVING\s+COUNT\s*\(\s*\*\s*\)\s*(>=|>)\s*(\d{1,6})\s*;?\s*\Z", re.IGNORECASE
)


def crowd_of(sql: str, rules: Rules, tables: Mapping[str, TableDomain]) -> CrowdOrder | None:
    """The crowd that a question asks for: one count by groups, if the policy allows crowds."""
    found = _HAVING.search(sql)
    if rules.crowd is None or found is None or "--" in sql or "/*" in sql:
        return None
    blocks = read(sql[: found.start()], tables).blocks
    counted = [[a.function for a in block.aggregates] for block in blocks]
    if counted != [[Function.COUNT]]:
        return None
    probability, delta = rules.crowd
    crowd = int(found[2]) + (found[1] == ">")
    return CrowdOrder(
        sql=sql[: found.start()], probability=probability, delta=delta, crowd=max(crowd, 1)
    )


def ask_having(desk: Desk, order: CrowdOrder, *, fresh: bool) -> Answer:
    """The groups that are shown, as SQL has it."""
    made = desk.run(crowd_job(desk, order), fresh=fresh)
    answer = made.answer()
    shown = np.flatnonzero(~made.hidden)  # maybe none, and then still of numbers

    def half_widths(confidence: Number) -> Sequence[HalfWidths]:
        return [
            None if bars is None else tuple(bars[place] for place in shown)
            for bars in answer.half_widths(confidence)
        ]

    return replace(answer, table=answer.table.take(shown), half_widths=half_widths)
