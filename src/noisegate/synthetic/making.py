"""From a table and a price to synthetic rows.

columns     declared keys and bounds become cells; bounds that nobody declared are looked for, paid
sets        which tables the public will ask: all pairs of columns, unless said otherwise
reserve     one allowance for all that the synthesizer will ask; the same is never drawn again
build       the synthesizer asks and fits a model; what is known already is used for nothing
keep        noisy tables and model are stored before anyone sees them; rows follow from them
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import combinations
from math import prod, sqrt
from typing import Any, ClassVar, Final, final

from noisegate.accounting.pure import promised
from noisegate.curator.allowance import Scope
from noisegate.curator.curator import Curator
from noisegate.desk.attempts import Attempts
from noisegate.desk.price import Price, variance_of
from noisegate.desk.rules import Rules
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.exact import Number, fraction, positive
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, Sequential, decode, encode
from noisegate.privacy.guarantee import guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.query.run import Run
from noisegate.releases.making import plain_options
from noisegate.releases.order import Order
from noisegate.releases.residuals import Axes
from noisegate.synthetic.basis import Basis, basis_of, uncut, wanted_of
from noisegate.synthetic.columns import Layout
from noisegate.synthetic.constraints import (
    Impossible,
    counted_cells,
    counting,
    hardened,
    impossible_of,
)
from noisegate.synthetic.door import DoorTables
from noisegate.synthetic.fitted import FORMAT, Fitted
from noisegate.synthetic.known import known_of, lost
from noisegate.synthetic.looks import Looks, Seen
from noisegate.synthetic.model import CELLS_MAX, Evidence, digest_of
from noisegate.synthetic.plan import SyntheticPlan
from noisegate.synthetic.questions import columns_for
from noisegate.synthetic.recipes import Synthesizer, TablesWorkload, synthesizer
from noisegate.synthetic.release import SyntheticRelease, require_rows

Progress = Callable[[float, str], None]
_SETS_MAX: Final = 100_000
_USUAL_MAX: Final = 10_000_000  # rows, unless more are asked for


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticOrder:
    """What is asked for, as people say it.

    Args:
        table: Where there are several.
        columns: Names, or names with a bin width, edges or a unit of time; by default all.
        where: Which rows.
        rows: How many rows to draw; by default as many as there are, as far as is known, and at
            most ten million.
        epsilon: The price of all of it.
        method: The synthesizer.
        workload: How many columns the tables have that the public will ask, lists of columns, or
            counting questions in SQL; with weights, ``{("age", "ward"): 3, ("sick",): 1}``.
        total: The number of rows of the original, where it is public.
        determined: Columns that follow from others: ``{"region": ("ward", {"north": "up"})}``.
        impossible: Combinations that no row has: ``[{"age": (0, 14), "married": True}]``.
        evidence: Releases and answers about the same rows, used for nothing.
        choose: "bounds", to have them found where nobody declared them; "bins", to have numbers
            cut into bins of like size; or both: a fifth of the price pays for it.
        rows_per_unit: How many rows of one unit count.
        options: Those of the method.
    """

    table: str | None = None
    columns: Mapping[str, Any] | Sequence[str] | None = None
    where: str | None = None
    rows: int | None = None
    epsilon: Number | None = None
    method: str = "auto"
    workload: Any = None
    total: int | None = None
    determined: Mapping[str, Any] | None = None
    impossible: Sequence[Any] | None = None
    evidence: Sequence[Any] = ()
    choose: str | Sequence[str] | None = None
    rows_per_unit: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def synthetic_of(order: Order) -> SyntheticOrder:
    """The order for a release called "synthetic": terms of its own, then options of the method."""
    if order.sql is not None or order.groups_per_unit is not None:
        raise SpecError(
            "Synthetic rows are asked for by table and columns.",
            fix="Leave out sql and groups_per_unit; rows_per_unit is the cap.",
        )
    shared = {"table", "columns", "where", "epsilon", "method", "workload", "rows_per_unit"}
    own = {each.name for each in fields(SyntheticOrder)} - shared - {"options"}
    return SyntheticOrder(
        **{name: getattr(order, name) for name in shared},
        **{name: value for name, value in order.options.items() if name in own},
        options={name: value for name, value in order.options.items() if name not in own},
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """An order that can be carried out: nothing about it is left to be refused but its price."""

    basis: Basis
    workload: TablesWorkload
    impossible: tuple[Impossible, ...]
    known: tuple[Evidence, ...]
    price: Price
    synthesizer: Synthesizer
    looked: Seen
    words: tuple[str, ...]
    question: str

    @property
    def event(self) -> Event:
        return self.price.event()


@final
class SyntheticBench:
    """Plans and releases synthetic rows through a curator, by the rules of a policy."""

    endings: ClassVar = SyntheticRelease.endings

    def __init__(self, curator: Curator, rules: Rules, order: SyntheticOrder) -> None:
        self._curator, self._rules, self._order = curator, rules, order
        if rules.sample is not None and (order.evidence or order.choose or order.total is not None):
            raise SpecError(
                "Evidence, a total and what is chosen are about all rows, not about a sample.",
                fix="Leave them out, or use the gate itself.",
            )
        table, cuts, asked = order.table, dict[str, Any](), list[str]()
        if _is_sql(order.workload):
            asked = list(order.workload)
            named, cuts = columns_for(curator.tables, asked)
            table = table or named
        wanted = wanted_of(curator.tables, table, order.columns, order.determined)
        never = [counting(each, wanted.domain.name) for each in _texts(order.impossible)]
        with suppress(NoisegateError):  # given bins may do
            cuts = columns_for(curator.tables, [*asked, *never])[1]
        self._wanted = uncut(wanted, cuts)
        self._epsilon = rules.price(order.epsilon)
        self._looks = Looks(
            curator, Run(curator, rules), self._wanted, order.choose, self._epsilon,
            order.rows_per_unit,
        )  # fmt: skip
        if order.rows is not None:
            require_rows(order.rows)
        if order.total is not None:
            require_rows(order.total)

    def plan(self, *, fresh: bool = False) -> SyntheticPlan:
        """Free: spends nothing, reads no row."""
        job = self._job(self._looks.seen())
        missing = job.looked.missing
        stored = None if fresh or missing else Attempts(self._curator, job.question).found()
        price, fits = self._curator.price(Sequential(events=(*missing, job.event)))
        layout = job.basis.layout
        sets, grain = job.workload.sets, float(job.basis.grain)

        def rms(share: Fraction) -> float:
            (noise,) = job.price.noise(job.basis.query((0,)), [share])
            return sqrt(variance_of(noise)) * grain

        planned = job.synthesizer.planned(layout.sizes, job.workload, gaussian=job.price.gaussian)
        return SyntheticPlan(
            sql=job.basis.sql,
            columns=tuple((axis.name, axis.size) for axis in layout.axes),
            method=self._order.method,
            workload=_workload_words(self._order.workload, job.workload),
            tables=len(sets),
            cells=sum(_cells(layout, axes) for axes in sets),
            model_cells=getattr(job.synthesizer, "cells_max", CELLS_MAX),
            epsilon=self._epsilon,
            price=ApproxDP(0) if stored else price,
            fits=fits or stored is not None,
            rms=rms(Fraction(1, len(sets))),
            noise=tuple((each.what, rms(each.most), rms(each.least)) for each in planned),
            gaussian=job.price.gaussian,
            words=(*job.words, *job.basis.caveats),
        )

    def release(self, progress: Progress | None = None, *, fresh: bool = False) -> SyntheticRelease:
        """The rows: from the ledger if they were released before, else for their price."""
        job, paid = self._job(self._looks.seen()), tuple[Event, ...]()
        if job.looked.missing:
            paid = job.looked.missing
            every = Sequential(events=(*paid, job.event))
            self._curator.ledger.require_room(every, account=self._curator.account)
            job = self._job(self._looks.seen(pay=True))
        attempts = Attempts(self._curator, job.question)
        stored = None if fresh else attempts.found()
        if stored is not None:
            return self._made(job, *stored, paid=paid, free=True)
        with attempts.begin(job.event, fresh=fresh) as allowed:
            fitted = self._built(job, allowed.whole, progress)
            kept = fitted.to_bytes(event=encode(allowed.used()))
            allowed.finish(kept)
        if progress is not None:
            progress(1.0, "done")
        return self._made(job, allowed.request_id, kept, paid=paid, free=False)

    # before paying

    def _job(self, looked: Seen) -> _Job:
        curator, order = self._curator, self._order
        basis = basis_of(
            curator.tables, looked.cut(self._wanted), where=order.where,
            rows_per_unit=order.rows_per_unit, found=looked.bounds,
        ).sampled(self._rules.sample)  # fmt: skip
        epsilon = self._epsilon - self._looks.epsilon
        accountant = curator.ledger.balance(curator.account).accountant
        price = Price.of(epsilon, accountant=accountant, sample=self._rules.sample)
        workload, words = workload_of(order.workload, basis, curator.tables)
        impossible = impossible_of(order.impossible, basis, curator.tables)
        known = tuple(known_of(order.evidence, basis))
        options = plain_options(order.options)
        chosen = synthesizer(order.method, **options)
        chosen.require(basis.layout.sizes, workload)
        parts = {
            "sets": [list(axes) for axes in workload.sets],
            **({"weights": list(map(str, workload.weights))} if workload.weights else {}),
            "options": options,
            "total": order.total,
            "impossible": [[each.axes, digest_of(each.inside)] for each in impossible],
            "evidence": [each.to_record() for each in known],
        }
        return _Job(
            basis=basis,
            workload=workload,
            impossible=impossible,
            known=known,
            price=price,
            synthesizer=chosen,
            looked=looked,
            words=(*looked.words, *words),
            question=self._question(parts, basis, price),
        )

    def _question(self, parts: Mapping[str, Any], basis: Basis, price: Price) -> str:
        """Canonical text: two releases with one text are one release, drawn once.

        How many rows are drawn is not in it: they follow from what was released.
        """
        record = {
            "release": FORMAT,
            "sql": basis.sql,
            "columns": list(basis.digests().items()),
            "method": self._order.method,
            **price.to_record(),
            **parts,
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    # paying

    def _built(self, job: _Job, scope: Scope, progress: Progress | None) -> Fitted:
        """Ask, and fit a model to the answers."""
        basis, order = job.basis, self._order
        queries = [basis.query((place,)) for place in range(len(basis.layout.axes))]
        ask = DoorTables(scope, queries, job.price, progress=progress)
        ask.done(0.0, f"measuring by {order.method}")
        empty = [each.evidence(ask.variance(Fraction(1)) / 100) for each in job.impossible]
        found = job.synthesizer.build(
            ask,
            job.workload,
            known=(*job.known, *empty),
            total=None if order.total is None else order.total / float(basis.grain),
        )
        ask.done(0.99, "keeping")
        return Fitted(
            layout=basis.layout,
            model=hardened(found.model, job.impossible),
            evidence=tuple(one for one in found.evidence if all(one is not e for e in empty)),
            sets=job.workload.sets,
            method=order.method,
            gaussian=job.price.gaussian,
            grain=basis.grain,
            words=(*job.words, *found.words, *basis.caveats),
            impossible=job.impossible,
            total=order.total,
            targets=tuple(one for one in found.targets if all(one is not e for e in empty)),
            sampling=basis.sampling,
        )

    def _made(
        self, job: _Job, request_id: str, stored: bytes, *, paid: Sequence[Event], free: bool
    ) -> SyntheticRelease:
        kept, record = Fitted.from_bytes(stored)
        fitted = replace(kept, layout=job.basis.layout)  # what follows from others is not measured
        curator, order = self._curator, self._order
        used = decode(record["event"])
        bought = [*paid, *([] if free else [used])]
        tables = job.basis.query((0,)).tables
        kept_to = promised(used, job.event)
        loss = curator.loss_of(Sequential(events=(*job.looked.events, kept_to)))
        made_of = ", made with evidence," if order.evidence else ""
        return SyntheticRelease(
            fitted=fitted,
            count=min(fitted.rows, _USUAL_MAX) if order.rows is None else order.rows,
            sql=job.basis.sql,
            cost=curator.loss_of(Sequential(events=tuple(bought))) if bought else ApproxDP(0),
            remaining=curator.remaining(),
            guarantee=guarantee_of(
                loss + lost(order.evidence), tables, f"these synthetic rows{made_of} of"
            ),
            question=job.question,
            request_id=request_id,
            practice=self._rules.practice,
            log=curator.ledger.log(),
        )


def _texts(asked: Any) -> list[str]:  # noqa: ANN401 - as people write it
    listed = isinstance(asked, Sequence) and not isinstance(asked, str)
    return [each for each in asked if isinstance(each, str)] if listed else []


def _is_sql(workload: Any) -> bool:  # noqa: ANN401 - see `workload_of`
    listed = isinstance(workload, list | tuple | Mapping) and workload
    return bool(listed) and all(isinstance(each, str) and " " in each for each in workload)


def workload_of(
    asked: Any,  # noqa: ANN401 - a number, lists of columns or SQL, maybe with weights
    basis: Basis,
    tables: Mapping[str, TableDomain],
) -> tuple[TablesWorkload, tuple[str, ...]]:
    """The tables that the public will ask, and words about those that are too large."""
    if asked is None or type(asked) is int:
        every, words = _all_sets(asked, basis.layout)
        return TablesWorkload(_required(every)), words
    if isinstance(asked, str) or not isinstance(asked, Sequence | Mapping) or not asked:
        raise SpecError("The workload is not understood.", fix=_WORKLOAD)
    weights = dict[Axes, Fraction]()
    for each in asked:
        axes = counted_cells(each, basis, tables)[0] if _is_sql(asked) else _axes(each, basis)
        weight = Fraction(1)
        if isinstance(asked, Mapping):
            weight = positive(fraction(asked[each], name="a weight"), name="a weight")
        weights[axes] = max(weight, weights.get(axes, weight))
    sets, same = _required(tuple(weights)), len(set(weights.values())) == 1
    return TablesWorkload(sets, () if same else tuple(weights.values())), ()


def _all_sets(many: int | None, layout: Layout) -> tuple[list[Axes], tuple[str, ...]]:
    """All sets of so many columns whose tables are not too large."""
    columns = range(len(layout.axes))
    many = min(2, len(columns)) if many is None else many
    if not 1 <= many <= len(columns):
        raise SpecError(f"There are no tables of {many} columns.", fix=f"Use 1 to {len(columns)}.")
    every = list(combinations(columns, many))
    fitting = [axes for axes in every if _cells(layout, axes) <= CELLS_MAX]
    left = len(every) - len(fitting)
    words = (f"{left} tables of the workload have too many cells and were left out",)
    return fitting, words if left else ()


def _axes(names: Any, basis: Basis) -> Axes:  # noqa: ANN401 - as people write it
    """The columns of one set."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise SpecError("A set of the workload is no list of columns.", fix=_WORKLOAD)
    axes = tuple(sorted({basis.layout.place(name) for name in names}))
    if _cells(basis.layout, axes) > CELLS_MAX:
        raise Unsupported(
            f"The table of {', '.join(names)} has more than {CELLS_MAX:,} cells.",
            fix="Use wider bins or fewer columns.",
        )
    return axes


_WORKLOAD: Final = (
    'Use a number of columns, such as 3, lists such as [["age", "ward"], ["sick"]], a list of '
    'counting questions in SQL, or either with weights: {("age", "ward"): 3, ("sick",): 1}.'
)


def _required(sets: Sequence[Axes]) -> tuple[Axes, ...]:
    if not 1 <= len(sets) <= _SETS_MAX:
        raise Unsupported(
            f"The workload would have {len(sets):,} tables.", fix=f"Use 1 to {_SETS_MAX:,}."
        )
    return tuple(sets)


def _cells(layout: Layout, axes: Axes) -> int:
    return prod(layout.sizes[axis] for axis in axes)


def _workload_words(asked: Any, workload: TablesWorkload) -> str:  # noqa: ANN401 - see `workload_of`
    if asked is None or type(asked) is int:
        columns = len(workload.sets[0])
        return "all pairs of columns" if columns == 2 else f"all sets of {columns} columns"
    said = "given questions" if _is_sql(asked) else "given sets of columns"
    return f"{said}, by weights" if workload.weights else said
