"""A crowd in SQL: ``SELECT ward, COUNT(*) FROM people GROUP BY ward HAVING COUNT(*) >= 36``.

Under a policy that allows it, such a question is answered by the counts of a secret sample; groups
with fewer in the sample are not shown.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from noisegate.crowd.histogram import CrowdExpected, CrowdOrder, CrowdRelease, crowd_job
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.job import Job, derived
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.terms.rules import Rules
from noisegate.exact import Number
from noisegate.frozen import replace
from noisegate.privacy.domain import TableDomain
from noisegate.sql.question import Function, Question
from noisegate.sql.reading.reader import read

# The reader of SQL checks all the rest; here the last clause is taken off, where no comment is.
_HAVING: Final = re.compile(
    r"\s+HAVING\s+COUNT\s*\(\s*\*\s*\)\s*(>=|>)\s*(\d{1,6})\s*;?\s*\Z", re.IGNORECASE
)


def crowd_of(
    sql: str, rules: Rules, tables: Mapping[str, TableDomain]
) -> tuple[CrowdOrder, Question] | None:
    """The crowd that a question asks for: one count by groups, if the policy allows crowds."""
    found = _HAVING.search(sql)
    if rules.crowd is None or found is None or "--" in sql or "/*" in sql:
        return None
    question = read(sql[: found.start()], tables)
    counted = [[a.function for a in block.aggregates] for block in question.blocks]
    if counted != [[Function.COUNT]]:
        return None
    probability, delta = rules.crowd
    crowd = max(int(found[2]) + (found[1] == ">"), 1)
    sql = sql[: found.start()]
    return CrowdOrder(sql=sql, probability=probability, delta=delta, crowd=crowd), question


def having_job(desk: Desk, sql: str) -> Job[Any, Answer, CrowdExpected] | None:
    """The job that answers a question by a crowd, if it asks for one."""
    found = crowd_of(sql, desk.rules, desk.curator.tables)
    if found is None:
        return None
    job = crowd_job(desk, *found)
    return derived(job.kind, job, _shown, job.endings)


def _shown(made: CrowdRelease) -> Answer:
    """The groups that are shown, as SQL has it."""
    answer = made.answer()
    shown = np.flatnonzero(~made.hidden)  # maybe none, and then still of numbers

    def half_widths(confidence: Number) -> Sequence[HalfWidths]:
        return [
            None if bars is None else tuple(bars[place] for place in shown)
            for bars in answer.half_widths(confidence)
        ]

    return replace(answer, table=answer.table.take(shown), half_widths=half_widths)
