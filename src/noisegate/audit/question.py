"""An audit of a SQL question of one's own policy, through the door."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats, claims_of
from noisegate.audit.distinguisher import Score
from noisegate.audit.door import QuestionRuns, flat, named, transcript
from noisegate.audit.neighbours import neighbours_of
from noisegate.curator.measurement import Measurement
from noisegate.errors import Unsupported
from noisegate.gate import Gate
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.root import Rehearsal
from noisegate.sql.plan import AnswerExpected

if TYPE_CHECKING:
    from noisegate.audit.neighbours import Rows

_LAYOUT_RUNS: Final = 100  # on each neighbour, to see which groups come and go
_TRIALS: Final = 20_000
_LITTLE: Final = Fraction(1, 100)  # of the noise: it no longer matters
_NEARLY: Final = 0.95  # of what is charged for


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
    scores = () if columns else exact_scores(draws[0], draws[1])
    reach = "" if found.reach is None else f"; it moves the answer {found.reach:.0%} of the way"
    planned = Rehearsal(opened(), found.one).gate().plan(sql, fresh=True, **plain)
    if not isinstance(planned.expected, AnswerExpected):
        raise Unsupported("A crowd is audited as a mechanism.", fix="See noisegate audit --list.")
    return Audit(
        name=sql, claims=claims_of(planned.expected.event), draws=(draws[0], draws[1]),
        neighbours=found.words + reach, trials=_TRIALS, scores=scores,
        reachable=1.0 if found.reach is None else min(1.0, found.reach),
        why="" if found.reach is None or found.reach > _NEARLY else
        "the bound on one unit is over all tables that are possible, and none that was tried "
        "comes nearer",
    )  # fmt: skip


def exact_scores(one: QuestionRuns, other: QuestionRuns) -> tuple[Score, ...]:
    """The log-likelihood ratio, where all that leaves the door are numbers with plain noise.

    The exact numbers of made-up rows are nobody's secret: the door gives them with little noise.
    """
    planned = [each for each in one.planned if isinstance(each, Measurement)]
    noises = [noise for each in planned for noise in each.mechanisms]
    if not all(isinstance(noise, Geometric | DiscreteGaussian) for noise in noises):
        return ()
    here, there = (_exact(runs, planned) for runs in (one, other))
    widths = np.concatenate([
        np.repeat([_width(noise) for noise in each.mechanisms], _cells(one, each))
        for each in planned
    ])  # fmt: skip
    if widths.size != here.size or here.size != there.size:
        return ()
    if isinstance(noises[0], Geometric):
        return (
            lambda outputs: ((np.abs(outputs - there) - np.abs(outputs - here)) / widths).sum(1),
        )
    return (lambda outputs: (outputs - (here + there) / 2) @ ((here - there) / widths**2),)


def _exact(runs: QuestionRuns, planned: list[Measurement]) -> Floats:
    door = runs.rehearsal.gate(max_epsilon=False).door
    return flat([door.measure(_quiet(each), request_id=door.fresh_id()) for each in planned])


def _quiet(asked: Measurement) -> Measurement:
    return replace(asked, mechanisms=tuple(map(_quieter, asked.mechanisms)))


def _quieter(noise: object) -> Geometric | DiscreteGaussian:
    """The same with little noise, in the measure of its own accountant."""
    if isinstance(noise, Geometric):
        return Geometric(scale=noise.scale * _LITTLE)
    assert isinstance(noise, DiscreteGaussian)  # noqa: S101 - there are no others here
    return DiscreteGaussian(variance=noise.variance * _LITTLE**2)


def _cells(runs: QuestionRuns, asked: Measurement) -> int:
    """How many numbers each mechanism of a measurement is for."""
    door = runs.rehearsal.gate(max_epsilon=False).door
    said = door.measure(_quiet(asked), request_id=door.fresh_id())
    return said.values.size // len(asked.mechanisms)


def _width(noise: object) -> float:
    if isinstance(noise, Geometric):
        return float(noise.scale)
    return float(noise.variance) ** 0.5 if isinstance(noise, DiscreteGaussian) else 1.0


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
