"""An audit of a SQL question of one's own policy, through the door."""

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.audit.audit import Audit
from noisegate.audit.door import QuestionRuns, named, transcript
from noisegate.audit.neighbours import neighbours_of
from noisegate.connect import Rehearsal
from noisegate.errors import Unsupported
from noisegate.gate import Gate
from noisegate.privacy.conversion import approx_of_zcdp
from noisegate.privacy.event import Event, Sequential

if TYPE_CHECKING:
    from noisegate.audit.neighbours import Rows

DELTAS: Final = (1e-2, 1e-3)  # of a curve; a bound at a smaller δ would need more runs
_LAYOUT_RUNS: Final = 100  # on each neighbour, to see which groups come and go
_TRIALS: Final = 20_000


def question_audit(opened: Callable[[], Gate], sql: str, **terms: Any) -> Audit:  # noqa: ANN401 - of gate.sql
    """Audit a question as a gate answers it: ``question_audit(opened, sql, epsilon="0.5").run()``.

    Args:
        opened: Opens a gate with the declared facts; it is never asked, so let it be one for
            practice: ``partial(noisegate.open, "clinic.toml", practice=True)``.
        sql: One SELECT.
        terms: Those of `Gate.sql`: ``epsilon``, ``within``, ``rows_per_unit``, ...

    Returns:
        An `Audit` of all that leaves the door, with the neighbours that move the exact answer most.
        No private row is read and nothing is charged.
    """
    plain = {name: value for name, value in terms.items() if value is not None}
    runs = QuestionRuns(opened=opened, rows={}, sql=sql, terms=plain)
    found = neighbours_of(runs)
    seen = [_seen(runs, rows, 1) for rows in (found.one, found.other)]
    changes = [[each.question() for each in asked] for asked, _ in seen]
    columns: tuple[str, ...] = ()
    if changes[0] != changes[1] or any(said.keys is not None for _, s in seen for said in s):
        names = [_names(runs, rows) for rows in (found.one, found.other)]
        columns = tuple(sorted(names[0] | names[1]))
    draws = tuple(
        QuestionRuns(opened=opened, rows=rows, sql=sql, terms=plain, columns=columns)
        for rows in (found.one, found.other)
    )
    reach = "" if found.reach is None else f"; it moves the answer {found.reach:.0%} of the way"
    event = Sequential(events=tuple(said.event for said in seen[0][1]))
    return Audit(
        name=sql, claims=claims_of(event), draws=(draws[0], draws[1]),
        neighbours=found.words + reach, trials=_TRIALS,
        reachable=1.0 if found.reach is None else min(1.0, found.reach),
        why="" if found.reach is None or found.reach > 0.99 else
        "the bound on one unit is over all tables that are possible, and none that was tried "
        "comes nearer",
    )  # fmt: skip


def claims_of(event: Event) -> dict[float, float]:
    """The ε that is claimed for an event, at its own δ or at several of a curve."""
    try:
        loss = pure_loss(event)
    except Unsupported:
        curve = zcdp_loss(event)
        at = {delta: approx_of_zcdp(curve, delta=Fraction(str(delta))) for delta in DELTAS}
        return {float(each.delta): float(each.epsilon) for each in at.values()}
    return {float(loss.delta): float(loss.epsilon)}


def _seen(runs: QuestionRuns, rows: "Rows", count: int) -> tuple[list[Any], list[Any]]:
    rehearsal = Rehearsal(runs.opened(), rows)
    asked: list[Any] = []
    said: list[Any] = []
    for _ in range(count):
        kept = transcript(rehearsal.gate(), runs.ask)
        asked, said = [*asked, *kept.asked], [*said, *kept.said]
    return asked, said


def _names(runs: QuestionRuns, rows: "Rows") -> set[str]:
    """What outputs there are, where groups come and go."""
    rehearsal = Rehearsal(runs.opened(), rows)
    gates = (rehearsal.gate() for _ in range(_LAYOUT_RUNS))
    return {name for gate in gates for name in named(transcript(gate, runs.ask).said)}
