"""Worst-case neighbours for a question: made-up tables, and one unit that moves the answer most.

All of it is made from declared facts alone. Where a unit's rows go is found by trying: values at
the ends of their bounds, keys that are declared and not, NULL, as many rows as the cap and more,
all in one group or spread over many. Each try reads the exact answer, which for made-up rows is
nobody's secret: it is the noisy one at an ε so large that noise no longer matters.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from scipy.stats import ks_2samp

from noisegate.audit.audit import Audit
from noisegate.audit.confidence import claims_of
from noisegate.audit.distinguisher import Score
from noisegate.audit.door import QuestionRuns, Transcript, flat, named, transcript
from noisegate.curator.measurement import Measurement
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.gate import Gate
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.release import Release
from noisegate.root import Rehearsal, made_up_rows
from noisegate.sql.plan import AnswerExpected

Rows: TypeAlias = dict[str, pa.Table]
Value: TypeAlias = Any  # of a cell
Place: TypeAlias = tuple[str, str]  # a table and one of its columns

_HUGE: Final = 200  # an ε at which noise no longer matters, and which all mechanisms know
_BASE_ROWS: Final = 60
_ALL: Final = 0.97  # of what is charged for: no other unit can move the answer further
_TRIED: Final = 60  # runs of a candidate, for answers that are not sums with noise
_KEYS_TRIED: Final = 6
_UNBOUNDED: Final = 10**6
_NEW: Final = "audited"  # a key that nobody declared
_ID: Final = 1 << 40  # ids of the unit, above all made-up ones
_SPREAD: Final = object()  # a value that goes through all options, row by row


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Two tables that differ in one unit, and how much of what is charged for they use.

    ``reach`` is how far the exact answer moves, in units of what noise was bought for: 1 is all of
    it. None where the answer is not a sum with noise.
    """

    one: Rows
    other: Rows
    words: str
    reach: float | None


def neighbours_of(runs: QuestionRuns) -> Neighbours:
    """The best neighbours that were found for a question; ``runs.rows`` are not looked at."""
    gate = runs.opened()
    search = _Search(runs, gate, made_up_rows(gate, rows=_BASE_ROWS))
    found: list[tuple[float, Neighbours]] = []
    for base in search.bases():
        found.append(search.best(base))
        if found[-1][0] >= _ALL and found[-1][1].reach is not None:
            break
    return max(found, key=lambda each: each[0])[1]


@final
class _Search:
    """Coordinate search: start with all values at their upper ends, change one thing at a time."""

    def __init__(self, runs: QuestionRuns, gate: Gate, made_up: Rows) -> None:
        self._runs, self._gate, self._made_up = runs, gate, made_up
        self._tables = {name: each for name, each in gate.tables.items() if not each.is_public}
        self._literals = _literals(runs.sql)
        self._planned: list[Measurement] = []

    def bases(self) -> dict[str, Rows]:
        """Tables without the unit: empty, made up, and made up with all values in the middle."""
        public = {name: each for name, each in self._made_up.items() if name not in self._tables}
        own = {name: each for name, each in self._made_up.items() if name in self._tables}
        middle = {name: _middle(each, self._tables[name]) for name, each in own.items()}
        return {
            "no rows": public | {name: each.slice(0, 0) for name, each in own.items()},
            "made-up rows": self._made_up,
            "made-up rows at the middle of their bounds": public | middle,
        }

    def best(self, base: str) -> tuple[float, Neighbours]:
        """How far the answer moves, and by whom."""
        others = self.bases()[base]
        before = self._exact(others)
        start = _Unit({}, self._caps(1))
        score, unit = self._moved(others, before, start), start
        for better in self._steps():
            if score >= _ALL and _has_noise(self._planned):
                break
            changed = better(unit)
            if (new := self._moved(others, before, changed)) > score * (1 + 1e-9):
                score, unit = new, changed
        words = f"{base}, without and with one unit: {unit.words(self._tables)}"
        reach = score if self._planned and _has_noise(self._planned) else None
        return score, Neighbours(
            one=self._joined(others, unit), other=others, words=words, reach=reach
        )

    def _steps(self) -> "Iterator[Any]":
        """All single changes of a unit, the likeliest to matter first."""
        for name, domain in self._tables.items():
            for column in domain.columns.values():
                if not re.search(rf"\b{re.escape(column.name)}\b", self._runs.sql, re.IGNORECASE):
                    continue
                for option in [*_options(column, self._literals), _SPREAD]:
                    yield lambda unit, at=(name, column.name), option=option: unit.at(at, option)
        for times in (3, 0):
            yield lambda unit, times=times: replace(unit, rows=self._caps(times))

    def _caps(self, times: int) -> dict[str, int]:
        """Rows of the unit in each table: its cap, several times its cap, or (0) one."""
        return {
            name: 1 if each.is_row_level else max(1, times * (each.rows_per_unit_max or 1))
            for name, each in self._tables.items()
        }

    def _joined(self, others: Rows, unit: "_Unit") -> Rows:
        own = unit.rows_of(self._tables, self._made_up, self._literals)
        return others | {name: pa.concat_tables([others[name], own[name]]) for name in own}

    def _moved(self, others: Rows, before: Transcript, unit: "_Unit") -> float:
        """How far the exact answer moves, as a share of what is charged for."""
        joined = self._joined(others, unit)
        after = self._exact(joined)
        if not self._planned:
            asked = transcript(Rehearsal(self._gate, others).gate(), self._runs.ask).asked
            self._planned = [each for each in asked if isinstance(each, Measurement)]
        if not _has_noise(self._planned) and all(each.keys is None for each in after.said):
            return self._apart(others, joined)
        pairs = zip(before.said, after.said, before.asked, strict=False)
        shares = [_share(a.values, b.values, asked) for a, b, asked in pairs]
        weights = [_weight(each) for each in self._planned]
        appear = float(len(before.said) != len(after.said))
        if len(weights) != len(shares) or not sum(weights):
            return sum(shares) / max(len(shares), 1) + appear
        return float(np.dot(shares, weights) / sum(weights)) + appear

    def _apart(self, others: Rows, joined: Rows) -> float:
        """How far apart a few runs are, for answers that are not sums: largest gap of shares."""
        terms = {**self._runs.terms, "epsilon": self._runs.terms.get("epsilon", 1)}
        sides = [replace(self._runs, rows=rows, terms=terms)(_TRIED) for rows in (joined, others)]
        if sides[0].shape != sides[1].shape:
            return 1.0
        pairs = zip(sides[0].T, sides[1].T, strict=True)
        return max((float(ks_2samp(*pair).statistic) for pair in pairs), default=0.0)

    def _exact(self, rows: Rows) -> Transcript:
        dear = {key: value for key, value in self._runs.terms.items()
                if key not in ("epsilon", "within", "relative", "confidence")}  # fmt: skip
        gate = Rehearsal(self._gate, rows).gate(max_epsilon=False)
        return transcript(gate, replace(self._runs, terms=dear | {"epsilon": _HUGE}).ask)


@final
@dataclass(frozen=True, slots=True)
class _Unit:
    """One unit: what stands in its columns (by default the first option), and how many rows."""

    values: Mapping[Place, Value]
    rows: Mapping[str, int]

    def at(self, place: Place, value: Value) -> "_Unit":
        return replace(self, values={**self.values, place: value})

    def rows_of(
        self, tables: Mapping[str, TableDomain], made_up: Rows, literals: Sequence[str]
    ) -> Rows:
        """Its rows in all tables; ids link them as the paths of the policy say."""
        own: Rows = {}
        links = {(each.name, step.column) for each in tables.values() for step in each.path[:1]}
        for name, domain in tables.items():
            schema, count = made_up[name].schema, self.rows[name]
            columns = {}
            for field in schema:
                kind = Kind.TEXT if pa.types.is_string(field.type) else Kind.INTEGER
                column = domain.columns.get(field.name) or Column(name=field.name, kind=kind)
                is_owner = domain.unit is not None and domain.unit.column == field.name
                is_key = any(
                    step.key == field.name and step.table == name
                    for each in tables.values() for step in each.path
                )  # fmt: skip
                if is_owner and not domain.path:
                    values = [_id(column, 0)] * count
                elif is_key or (name, field.name) in links:
                    values = [_id(column, row) for row in range(count)]
                else:
                    values = self._cells((name, field.name), column, count, literals)
                columns[field.name] = pa.array(values, field.type)
            own[name] = pa.table(columns, schema=schema)
        return own

    def _cells(self, at: Place, column: Column, count: int, literals: Sequence[str]) -> list[Value]:
        options = _options(column, literals)
        chosen = self.values.get(at, options[0])
        if chosen is _SPREAD:
            return [options[row % len(options)] for row in range(count)]
        return [chosen] * count

    def words(self, tables: Mapping[str, TableDomain]) -> str:
        """What it is, for people."""
        rows = ", ".join(f"{count} row{'s' * (count > 1)} in {name}"
                         for name, count in self.rows.items() if name in tables)  # fmt: skip
        said = [
            f"{column} {'spread' if value is _SPREAD else f'= {value}'}"
            for (_, column), value in self.values.items()
        ]
        return rows + (f" ({', '.join(said)})" if said else " (all values at their upper ends)")


def _options(column: Column, literals: Sequence[str]) -> list[Value]:
    """What a unit could hold in a column: ends, keys, what the question compares with, NULL."""
    found: list[Value] = []
    if column.keys is not None:
        found += [key for key in column.keys if key is not None and str(key) in literals]
        found += [key for key in column.keys[:_KEYS_TRIED] if key not in found]
    elif column.between is not None:
        found += [_typed(column.kind, end) for end in reversed(column.between)]
    elif column.kind is Kind.TEXT:
        found += [_NEW, *literals]
    elif column.kind is Kind.BOOLEAN:
        found += [True, False]
    else:
        found += [_typed(column.kind, Fraction(each)) for each in (_UNBOUNDED, -_UNBOUNDED)]
    if column.kind in (Kind.INTEGER, Kind.NUMBER) and column.keys is None:
        numbers = [Fraction(each) for each in literals if re.fullmatch(r"-?\d+(\.\d+)?", each)]
        found += [_typed(column.kind, number + step) for number in numbers for step in (0, 1, -1)]
    return [*found, None] if column.nullable else found


def _middle(rows: pa.Table, domain: TableDomain) -> pa.Table:
    """The same rows with every bounded value in the middle of its bounds."""
    for place, field in enumerate(rows.schema):
        column = domain.columns.get(field.name)
        if column is not None and column.between is not None and column.keys is None:
            value = _typed(column.kind, sum(column.between, Fraction(0)) / 2)
            values = pa.array([value] * rows.num_rows, field.type)
            rows = rows.set_column(place, field, values)
    return rows


def _typed(kind: Kind, value: Fraction) -> Value:
    """A bound as a value of a column: days and microseconds stand for dates and times."""
    return float(value) if kind is Kind.NUMBER else int(value)


def _id(column: Column, number: int) -> Value:
    if column.kind is Kind.TEXT:
        return f"{_NEW} {number}"
    if column.between is not None:
        return int(column.between[1]) - number
    return _ID + number


def _literals(sql: str) -> list[str]:
    """What the question compares with."""
    quoted = re.findall(r"'((?:[^']|'')*)'", sql)
    numbers = re.findall(r"(?<![\w.'-])-?\d+(?:\.\d+)?(?![\w.'-])", sql)
    return list(dict.fromkeys([*quoted, *numbers]))


def _share(before: Any, after: Any, asked: object) -> float:  # noqa: ANN401 - arrays
    """How far the numbers move, as a share of what noise is for."""
    if before.shape != after.shape:
        return 1.0
    moved = np.abs(after.astype(np.float64) - before)
    if not isinstance(asked, Measurement) or not _has_noise([asked]):
        return float(moved.any())
    gauss = isinstance(asked.mechanisms[0], DiscreteGaussian)
    reaches = (
        [float(each.squared) ** 0.5 for each in asked.query.l2s]
        if gauss else [float(each.value) for each in asked.query.l1s]
    )  # fmt: skip
    lengths = (moved**2).sum(-1) ** 0.5 if gauss else moved.sum(-1)
    if lengths.size != len(reaches):
        return float(moved.any())
    alone = float(
        np.mean(moved.max(-1, initial=0) / np.maximum(moved.sum(-1), 1))
    )  # tells more than spread
    return float(np.mean(lengths.reshape(-1) / reaches)) * (0.9 + 0.1 * alone)


def _weight(asked: Measurement) -> float:
    """What a measurement is charged, roughly: how much it may tell."""
    pairs = zip(asked.mechanisms, asked.query.l1s, strict=False)
    told = [
        float(reach.value / noise.scale) for noise, reach in pairs if isinstance(noise, Geometric)
    ]
    return sum(told) or 1.0


def _has_noise(asked: Sequence[Measurement]) -> bool:
    return all(isinstance(each.mechanisms[0], Geometric | DiscreteGaussian) for each in asked)


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
    seen = [
        transcript(Rehearsal(runs.opened(), rows).gate(), runs.ask)
        for rows in (found.one, found.other)
    ]
    changes = [[each.question() for each in kept.asked] for kept in seen]
    columns: tuple[str, ...] = ()
    if changes[0] != changes[1] or any(
        said.keys is not None for kept in seen for said in kept.said
    ):
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
    here, there = (flat([_quietly(runs, each) for each in planned]) for runs in (one, other))
    widths = np.concatenate([
        np.repeat(
            [_width(noise) for noise in each.mechanisms],
            _quietly(one, each).values.size // len(each.mechanisms),
        )
        for each in planned
    ])  # fmt: skip
    if widths.size != here.size or here.size != there.size:
        return ()
    if isinstance(noises[0], Geometric):
        return (
            lambda outputs: ((np.abs(outputs - there) - np.abs(outputs - here)) / widths).sum(1),
        )
    return (lambda outputs: (outputs - (here + there) / 2) @ ((here - there) / widths**2),)


def _quietly(runs: QuestionRuns, asked: Measurement) -> Release:
    """What the door says with little noise."""
    door = runs.rehearsal.gate(max_epsilon=False).door
    quiet = replace(asked, mechanisms=tuple(map(_quieter, asked.mechanisms)))
    return door.measure(quiet, request_id=door.fresh_id())


def _quieter(noise: object) -> Geometric | DiscreteGaussian:
    """The same with little noise, in the measure of its own accountant."""
    if isinstance(noise, Geometric):
        return Geometric(scale=noise.scale * _LITTLE)
    assert isinstance(noise, DiscreteGaussian)  # noqa: S101 - there are no others here
    return DiscreteGaussian(variance=noise.variance * _LITTLE**2)


def _width(noise: object) -> float:
    if isinstance(noise, Geometric):
        return float(noise.scale)
    return float(noise.variance) ** 0.5 if isinstance(noise, DiscreteGaussian) else 1.0


def _names(runs: QuestionRuns, rows: "Rows") -> set[str]:
    """What outputs there are, where groups come and go."""
    rehearsal = Rehearsal(runs.opened(), rows)
    gates = (rehearsal.gate() for _ in range(_LAYOUT_RUNS))
    return {name for gate in gates for name in named(transcript(gate, runs.ask).said)}
