"""From a table and a price to synthetic rows.

columns     declared keys and bounds become cells; bounds that nobody declared are looked for, paid
sets        which tables the public will ask: all pairs of columns, unless said otherwise
reserve     one allowance for all that the synthesizer will ask; the same is never drawn again
build       the synthesizer asks and fits a model; what is already known is used at no cost
keep        noisy tables and model are stored before anyone sees them; rows follow from them
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations
from math import prod, sqrt
from typing import Any, Final, Literal, TypeAlias, final

from noisegate.curator.allowance import Allowance
from noisegate.desk.desk import Desk
from noisegate.desk.job import AdaptiveJob, Progress, Receipt
from noisegate.desk.order import Box, Columns, Options
from noisegate.desk.terms.price import Price, variance_of, without
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, decode, encode
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.ask.order import ReleaseOrder, RowsTerms
from noisegate.releases.fit.residuals import Axes
from noisegate.releases.forms.provenance import plain_options
from noisegate.synthetic.asking import DoorTables
from noisegate.synthetic.basis import Basis, basis_of, uncut, wanted_of
from noisegate.synthetic.columns import Layout
from noisegate.synthetic.counting import columns_for
from noisegate.synthetic.evidence import known_of, lost
from noisegate.synthetic.expected import SyntheticExpected
from noisegate.synthetic.looks import Looks, Seen
from noisegate.synthetic.model.constraints import (
    Impossible,
    counted_cells,
    counting,
    hardened,
    impossible_of,
)
from noisegate.synthetic.model.fitted import FORMAT, Fitted
from noisegate.synthetic.model.model import CELLS_MAX, Evidence, digest_of
from noisegate.synthetic.recipes import Synthesizer, TablesWorkload, synthesizer
from noisegate.synthetic.release import SyntheticRelease
from noisegate.synthetic.rows import require_rows

Method: TypeAlias = Literal["aim", "auto", "chosen", "independent", "mst", "mwem-pgm"]
Choice: TypeAlias = Literal["bounds", "bins"]
Sets: TypeAlias = int | Sequence[str | Sequence[str]] | Mapping[Any, Number] | None
_SETS_MAX: Final = 100_000
_USUAL_MAX: Final = 10_000_000  # rows, unless more are asked for


class SyntheticTerms(RowsTerms, total=False):
    """What is said of synthetic rows; see `SyntheticOrder`. The last two are of methods."""

    columns: Columns | Sequence[str] | None
    rows: int | None
    method: Method
    workload: Sets
    total: int | None
    determined: Mapping[str, tuple[str, Mapping[Any, Any]]] | None
    impossible: Sequence[str | Box] | None
    evidence: Sequence[object]
    choose: Choice | Sequence[Choice] | None
    rounds: int | None
    cells_max: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticOrder(ReleaseOrder[SyntheticRelease, SyntheticExpected]):
    """Synthetic rows of a table.

    Attributes:
        table: Where there are several.
        columns: Names, or names with a bin width, edges or a unit of time; by default all.
        where: The condition on rows.
        rows: How many rows to draw; by default the noisy number of rows, at most ten million.
        epsilon: The total price.
        method: The synthesizer.
        workload: The marginals to be accurate for: a number of columns, lists of columns, or
            counting questions in SQL; with weights, ``{("age", "ward"): 3, ("sick",): 1}``.
        total: The number of rows of the original, where it is public.
        determined: Columns that follow from others: ``{"region": ("ward", {"north": "up"})}``.
        impossible: Combinations that no row has: ``[{"age": (0, 14), "married": True}]``.
        evidence: Releases and answers about the same rows, used at no extra cost.
        choose: "bounds", to estimate those that are not declared; "bins", to bin numbers at
            private quantiles; or both: a fifth of the price pays for it.
        rows_per_unit: Contribution bound: how many rows of one unit count.
        options: Options of the method.
    """

    name: Literal["synthetic"] = "synthetic"
    table: str | None = None
    columns: Columns | Sequence[str] | None = None
    where: str | None = None
    rows: int | None = None
    epsilon: Number | None = None
    method: Method = "auto"
    workload: Sets = None
    total: int | None = None
    determined: Mapping[str, tuple[str, Mapping[Any, Any]]] | None = None
    impossible: Sequence[str | Box] | None = None
    evidence: Sequence[object] = ()
    choose: Sequence[str] | None = None
    rows_per_unit: int | None = None
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.choose, str):
            object.__setattr__(self, "choose", (self.choose,))
        ReleaseOrder.__post_init__(self)

    def job(self, desk: Desk) -> "SyntheticJob":
        """The rows that it asks for."""
        return _Synthesis(desk, self).job()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticJob(AdaptiveJob[Fitted, SyntheticRelease, SyntheticExpected]):
    """Synthetic rows: a model is fitted to noisy tables, and rows follow from it."""

    kind: str = "synthetic"
    endings: tuple[str, ...] = SyntheticRelease.endings
    order: SyntheticOrder
    basis: Basis
    workload: TablesWorkload
    impossible: tuple[Impossible, ...]
    known: tuple[Evidence, ...]
    synthesizer: Synthesizer
    words: tuple[str, ...]
    after_looks: Callable[[], "SyntheticJob"]

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the cells."""
        return self.basis.query((0,)).tables

    def ready(self) -> "SyntheticJob":
        """The same with bounds and bins that were looked for, and paid."""
        return self.after_looks()

    def draw(self, allowed: Allowance, progress: Progress) -> bytes:
        """Ask, and fit a model to the answers."""
        basis, order = self.basis, self.order
        queries = [basis.query((place,)) for place in range(len(basis.layout.axes))]
        ask = DoorTables(allowed.whole, queries, self.price, progress=progress)
        ask.done(0.0, f"measuring by {order.method}")
        empty = [each.evidence(ask.variance(Fraction(1)) / 100) for each in self.impossible]
        found = self.synthesizer.build(
            ask,
            self.workload,
            known=(*self.known, *empty),
            total=None if order.total is None else order.total / float(basis.grain),
        )
        ask.done(0.99, "keeping")
        fitted = Fitted(
            layout=basis.layout,
            model=hardened(found.model, self.impossible),
            evidence=tuple(one for one in found.evidence if all(one is not e for e in empty)),
            sets=self.workload.sets,
            method=order.method,
            gaussian=self.price.gaussian,
            grain=basis.grain,
            words=(*self.words, *found.words, *basis.caveats),
            impossible=self.impossible,
            total=order.total,
            targets=tuple(one for one in found.targets if all(one is not e for e in empty)),
            sampling=basis.sampling,
        )
        return fitted.to_bytes(event=encode(allowed.used()))

    def read(self, stored: bytes) -> tuple[Fitted, Event]:
        """The model; what follows from other columns is not measured, so not kept."""
        kept, record = Fitted.from_bytes(stored)
        return replace(kept, layout=self.basis.layout), decode(record["event"])

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """With what the evidence has lost."""
        made_of = ", made with evidence," if self.order.evidence else ""
        whole = loss + lost(self.order.evidence)
        return guarantee_of(whole, self.tables, f"these synthetic rows{made_of} of")

    def result(self, content: Fitted, receipt: Receipt) -> SyntheticRelease:
        """As many rows as are wanted."""
        rows = self.order.rows
        return SyntheticRelease(
            fitted=content,
            count=min(content.rows, _USUAL_MAX) if rows is None else rows,
            sql=self.sql,
            **receipt.standing,
        )


@final
class _Synthesis:
    """What an order is about: columns, and what has to be looked for."""

    def __init__(self, desk: Desk, order: SyntheticOrder) -> None:
        self._desk, self._order = desk, order
        curator, rules = desk.curator, desk.rules
        if rules.sample is not None and (order.evidence or order.choose or order.total is not None):
            raise SpecError(
                "Evidence, total and choose are about all rows, not a sample.",
                fix="Leave them out, or use the gate itself.",
            )
        table, cuts, asked = order.table, dict[str, Any](), list[str]()
        if _is_sql(order.workload):
            asked = list(order.workload)  # type: ignore[arg-type]  # of texts
            named, cuts = columns_for(curator.tables, asked)
            table = table or named
        wanted = wanted_of(curator.tables, table, order.columns, order.determined)
        never = [counting(each, wanted.domain.name) for each in _texts(order.impossible)]
        with suppress(NoisegateError):  # given bins may do
            cuts = columns_for(curator.tables, [*asked, *never])[1]
        self._wanted = uncut(wanted, cuts)
        self._epsilon = desk.epsilon(order.epsilon)
        step = desk.step(self._epsilon)
        self._looks = Looks(desk, self._wanted, order.choose, step, order.rows_per_unit)
        if order.rows is not None:
            require_rows(order.rows)
        if order.total is not None:
            require_rows(order.total)

    def job(self, looked: Seen | None = None, paid: tuple[Event, ...] = ()) -> SyntheticJob:
        """What is to be done, by what was ``looked`` at so far."""
        looked = looked or self._looks.seen()
        desk, order = self._desk, self._order
        tables = desk.curator.tables
        basis = basis_of(
            tables, looked.cut(self._wanted), where=order.where,
            rows_per_unit=order.rows_per_unit, found=looked.bounds,
        ).sampled(desk.rules.sample)  # fmt: skip
        price = desk.price(without(desk.step(self._epsilon), self._looks.steps, rho=desk.rho))
        workload, words = workload_of(order.workload, basis, tables)
        impossible = impossible_of(order.impossible, basis, tables)
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
        words = (*looked.words, *words)
        return SyntheticJob(
            sql=basis.sql,
            epsilon=self._epsilon,
            expected=_expected(order, basis, price, workload, chosen),
            notes=(*words, *basis.caveats),
            before=looked.missing,
            paid=paid,
            based=looked.based,
            price=price,
            question=_question(order, parts, basis, price),
            order=order,
            basis=basis,
            workload=workload,
            impossible=impossible,
            known=known,
            synthesizer=chosen,
            words=words,
            after_looks=lambda: self.job(self._looks.seen(pay=True), looked.missing),
        )


def _expected(
    order: SyntheticOrder,
    basis: Basis,
    price: Price,
    workload: TablesWorkload,
    chosen: Synthesizer,
) -> SyntheticExpected:
    layout, sets, grain = basis.layout, workload.sets, float(basis.grain)

    def rms(share: Fraction) -> float:
        (noise,) = price.noise(basis.query((0,)), [share])
        return sqrt(variance_of(noise)) * grain

    planned = chosen.planned(layout.sizes, workload, gaussian=price.gaussian)
    return SyntheticExpected(
        columns=tuple((axis.name, axis.size) for axis in layout.axes),
        method=order.method,
        workload=_workload_words(order.workload, workload),
        tables=len(sets),
        cells=sum(_cells(layout, axes) for axes in sets),
        model_cells=getattr(chosen, "cells_max", CELLS_MAX),
        rms=rms(Fraction(1, len(sets))),
        noise=tuple((each.what, rms(each.most), rms(each.least)) for each in planned),
        gaussian=price.gaussian,
    )


def _question(order: SyntheticOrder, parts: Mapping[str, Any], basis: Basis, price: Price) -> str:
    """Canonical text: two releases with one text are one release, drawn once.

    How many rows are drawn is not in it: they follow from what was released.
    """
    record = {
        "release": FORMAT,
        "sql": basis.sql,
        "columns": list(basis.digests().items()),
        "method": order.method,
        **price.to_record(),
        **parts,
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
        raise SpecError("The workload is not understood.", fix=_WORKLOAD, about="workload")
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
        raise SpecError(
            f"There are no tables of {many} columns.",
            fix=f"Use 1 to {len(columns)}.",
            about="workload",
        )
    every = list(combinations(columns, many))
    fitting = [axes for axes in every if _cells(layout, axes) <= CELLS_MAX]
    left = len(every) - len(fitting)
    words = (f"{left} tables of the workload have too many cells and were left out",)
    return fitting, words if left else ()


def _axes(names: Any, basis: Basis) -> Axes:  # noqa: ANN401 - as people write it
    """The columns of one set."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise SpecError(
            "A set in the workload is not a list of columns.", fix=_WORKLOAD, about="workload"
        )
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
