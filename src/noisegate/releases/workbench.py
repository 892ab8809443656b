"""The workbench: from a question and a price to a released table.

read        SQL (or columns) becomes a grid of declared cells and one sum over them
choose      the recipe, by name or by the error it predicts; what it cannot do is refused
reserve     one allowance for all that the recipe will ask; the same release is never drawn again
build       the recipe asks and rebuilds; then no negative numbers, whole ones, the total kept
keep        numbers and transcript are stored before anyone sees them
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np

from noisegate.accounting.pure import promised
from noisegate.curator.curator import Curator
from noisegate.desk.attempts import Attempts
from noisegate.desk.price import Price
from noisegate.desk.release import Held
from noisegate.desk.rules import Rules
from noisegate.desk.terms import Terms
from noisegate.errors import NoisegateError, SpecError
from noisegate.privacy.event import Event, decode, encode
from noisegate.privacy.guarantee import guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.query.reading.reader import read
from noisegate.query.run import Run
from noisegate.releases.asking import DoorAsk
from noisegate.releases.boxplots import BoxplotRelease, boxplot, boxplot_sql
from noisegate.releases.cdf import CdfRelease
from noisegate.releases.cube import CubeRelease
from noisegate.releases.estimate import Predicted
from noisegate.releases.finish import finish
from noisegate.releases.grid import Edges, Grid, grid_of, sql_of
from noisegate.releases.making import (
    Making,
    Spec,
    plain_options,
    spec_digest,
    spec_of,
    workload_of,
)
from noisegate.releases.marginal_bench import MarginalBench, cube_of
from noisegate.releases.order import Order, agreed, boxes, is_running, own, steps
from noisegate.releases.plan import ReleasePlan
from noisegate.releases.recipes import FROM_ZERO, RECIPES, Recipe, recipe
from noisegate.releases.recipes.above import (
    AboveOrder,
    AboveRelease,
    plan_above,
    release_above,
)
from noisegate.releases.running import Running, SeriesRelease, running_of
from noisegate.releases.sparse import SparseRelease
from noisegate.releases.sparse_asking import SparseOrder, plan_sparse, release_sparse
from noisegate.releases.table import FORMAT, TableRelease, endings_of
from noisegate.releases.transcript import Listening, Told, pack, unpack
from noisegate.releases.workload import Workload

Progress = Callable[[float, str], None]

# The workload of each name, unless one is given. Names of recipes are histograms by the recipe.
KINDS: Final[Mapping[str, str]] = {
    "histogram": "cells",
    "table": "cells",
    "map": "ranges",
    "series": "prefixes",
    "marginals": "marginals",
}
_OTHERS: Final[Mapping[str, type[Held]]] = {  # names with results of their own
    "cube": CubeRelease,
    "sparse": SparseRelease,
    "above": AboveRelease,
    "boxplot": BoxplotRelease,
    "cdf": CdfRelease,
}
_HIGHER: Final = ("synthetic", "questions", "crowd-histogram", "crowd-points")  # made elsewhere
_EQUAL: Final = 1 + 1e-6  # errors that differ by less are equal
_WITHOUT_MISSING: Final = ("map", "series")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """An order that can be carried out: nothing about it is left to be refused but its price."""

    grid: Grid
    recipe: Recipe
    making: Making
    workload: Workload
    epsilon: Fraction
    predicted: Predicted
    question: str

    @property
    def event(self) -> Event:
        return self.making.price.event()

    @property
    def mending(self) -> str:
        """What else is done to numbers whose error is known."""
        known = self.predicted.rms is not None
        return "before clipping at 0" if known and not self.grid.signed else ""


@final
@dataclass(frozen=True, slots=True)
class _Other:
    """How a name with a result of its own is planned and released."""

    plan: Callable[[bool], Any]
    release: Callable[[bool, Progress | None], Any]


@final
class Workbench:
    """Releases tables through a curator, by the rules of a policy."""

    def __init__(self, curator: Curator, rules: Rules) -> None:
        self._curator, self._rules = curator, rules

    def plan(self, order: Order, *, fresh: bool = False) -> Any:  # noqa: ANN401 - see `release`
        """Price and predicted error: free, reads no row."""
        other = self._other(order)
        if other is not None:
            return other.plan(fresh)
        job = self._job(order)
        found = None if fresh else self._attempts(job).found()
        price, fits = (ApproxDP(0), True) if found else self._curator.price(job.event)
        return ReleasePlan(
            sql=job.grid.sql,
            axes=job.grid.axes,
            method=job.making.method,
            workload=job.workload.words,
            questions=job.workload.size,
            epsilon=job.epsilon,
            price=price,
            fits=fits,
            **{
                name: None if each is None else each * float(job.grid.grain)
                for name, each in job.predicted.numbers.items()
            },
            share=None if job.grid.signed else job.predicted.share,
            seen=job.predicted.seen,
            levels=tuple(each * float(job.grid.grain) for each in job.predicted.levels),
            gaussian=job.making.price.gaussian,
            words=tuple(filter(None, (job.predicted.words, job.mending, *job.grid.caveats))),
        )

    def release(
        self, order: Order, *, fresh: bool = False, progress: Progress | None = None
    ) -> Any:  # noqa: ANN401 - a TableRelease; some names have results of their own
        """The table: from the ledger if it was released before, else for its price."""
        other = self._other(order)
        if other is not None:
            return _shown(progress, lambda: other.release(fresh, progress))
        job = self._job(order)
        found = None if fresh else self._attempts(job).found()
        if found:
            return self._table(job, found, free=True)
        return self._table(job, self._built(job, progress, fresh=fresh), free=False)

    def endings(self, order: Order) -> tuple[str, ...]:
        """The forms of file that a release can be saved in: free, known before it is paid for."""
        if order.name in _OTHERS:
            return _OTHERS[order.name].endings
        if is_running(order):
            return SeriesRelease.endings
        return endings_of(self._grid(order)[0].axes)

    def _other(self, order: Order) -> "_Other | None":
        """Names that have results of their own."""
        door = self._curator, self._rules
        if order.name == "cube":
            bench = MarginalBench(*door, cube_of(order))
            return _Other(
                lambda fresh: bench.plan(fresh=fresh),
                lambda fresh, progress: bench.release(progress, fresh=fresh),
            )
        if order.name == "sparse":
            cells = own(SparseOrder, order)
            return _Other(
                lambda fresh: plan_sparse(*door, cells, fresh=fresh),
                lambda fresh, _: release_sparse(*door, cells, fresh=fresh),
            )
        if order.name == "above":
            asked = own(AboveOrder, order)
            return _Other(
                lambda fresh: plan_above(*door, asked, fresh=fresh),
                lambda fresh, _: release_above(*door, asked, fresh=fresh),
            )
        if is_running(order):
            running = self._running(order)
            return _Other(_once(running.plan), _once(running.release))
        return self._distribution(order)

    def _distribution(self, order: Order) -> "_Other | None":
        if order.name == "boxplot":
            terms, tables, asked = agreed(Terms(), order), self._curator.tables, boxes(order)
            return _Other(
                lambda fresh: self._run.plan(boxplot_sql(tables, asked)[0], terms, fresh=fresh),
                lambda fresh, _: boxplot(self._run, tables, asked, terms, fresh=fresh),
            )
        if order.name == "cdf":
            series = steps(order)
            return _Other(
                lambda fresh: self.plan(series, fresh=fresh),
                lambda fresh, progress: CdfRelease(
                    histogram=self.release(series, fresh=fresh, progress=progress)
                ),
            )
        return None

    # before paying

    @property
    def _run(self) -> Run:
        return Run(self._curator, self._rules)

    def _running(self, order: Order) -> Running:
        grid, terms = self._grid(order)
        accountant = self._curator.ledger.balance(self._curator.account).accountant
        return running_of(
            self._curator,
            grid,
            epsilon=self._epsilon(terms),
            gaussian=accountant != "pure",
            method=order.method,
            options=order.options,
            practice=self._rules.practice,
        )

    def _job(self, order: Order) -> _Job:
        grid, terms = self._grid(order)
        epsilon = self._epsilon(terms)
        balance = self._curator.ledger.balance(self._curator.account)
        price = Price.of(epsilon, accountant=balance.accountant, sample=self._rules.sample)
        kind = order.name if order.name in KINDS else "histogram"
        wanted = KINDS[kind] if order.workload is None else order.workload
        spec = spec_of(wanted, grid.axes)
        asked = workload_of(spec, grid.shape)
        method = _method(order)
        options = plain_options(order.options)
        if method == "auto" and grid.signed:  # the rule of auto is for numbers from 0 on
            method = "tree"
        _require_sign(method, grid)
        ask = Told(price, shape=grid.shape, moved=grid.moved)
        name, made, predicted = _chosen(method, options, ask, asked)
        making = Making(
            method=name,
            options=options,
            workload=spec,
            price=price,
            moved=grid.moved,
            grain=grid.grain,
            whole=grid.whole,
            signed=grid.signed,
        )
        return _Job(
            grid=grid,
            recipe=made,
            making=making,
            workload=asked,
            epsilon=epsilon,
            predicted=predicted,
            question=_question(grid, making, spec),
        )

    def _grid(self, order: Order) -> tuple[Grid, Terms]:
        if order.name not in KINDS and order.name not in RECIPES:
            names = dict.fromkeys((*KINDS, *_OTHERS, *_HIGHER, *RECIPES))
            raise SpecError(f"There is no release {order.name!r}.", fix=f"Use {', '.join(names)}.")
        if (order.sql is None) == (order.columns is None):
            raise SpecError(
                "Give SQL or columns.", fix='Use a SELECT, or columns={"age": 5, "ward": None}.'
            )
        sql = order.sql or ""
        edges: dict[int, Edges] = {}
        if order.columns is not None:
            sql, edges = sql_of(self._curator.tables, order.table, order.columns, order.where)
        elif order.table is not None or order.where is not None:
            raise SpecError("The SQL says table and WHERE already.", fix="Leave them out.")
        question = read(sql, self._curator.tables)
        terms = agreed(question.terms, order)
        grid = grid_of(
            question,
            sql,
            terms,
            missing=order.name not in _WITHOUT_MISSING,
            by_groups=not is_running(order),  # it counts the first rows of a unit, in any period
            edges=edges,
        )
        _require_kind(order.name, grid)
        return grid.sampled(self._rules.sample), terms

    def _attempts(self, job: _Job) -> Attempts:
        return Attempts(self._curator, job.question)

    def _epsilon(self, terms: Terms) -> Fraction:
        if terms.within is not None or terms.relative is not None:
            raise SpecError("A release is bought by its price.", fix="Give epsilon.")
        return self._rules.price(terms.epsilon)

    # paying

    def _built(self, job: _Job, progress: Progress | None, *, fresh: bool) -> tuple[str, bytes]:
        """Reserve, ask, rebuild, keep. Whatever interrupts it, what was drawn is charged."""
        grid = job.grid
        with self._attempts(job).begin(job.event, fresh=fresh) as allowed:
            door = DoorAsk(
                allowed.whole, grid.query, job.making.price, shape=grid.shape, progress=progress
            )
            ask = Listening(door)
            ask.done(0.0, f"measuring by {job.making.method}")
            estimate = job.recipe.build(ask, job.workload)
            ask.done(0.99, "keeping")
            if estimate.mend is not None and grid.whole and not grid.signed:
                values: Any = estimate.mend(float(grid.grain)).reshape(grid.shape)
            else:
                values = finish(
                    np.asarray(estimate.cells, np.float64).reshape(grid.shape) * float(grid.grain),
                    job.workload,
                    is_whole=grid.whole,
                    signed=grid.signed,
                )
            record = {
                "format": FORMAT,
                "event": encode(allowed.used()),
                "words": list(estimate.words),
            }
            stored = pack(record, [values], tuple(ask.rounds))
            allowed.finish(stored)
        if progress is not None:
            progress(1.0, "done")
        return allowed.request_id, stored

    def _table(self, job: _Job, found: tuple[str, bytes], *, free: bool) -> TableRelease:
        request_id, stored = found
        record, (values,), rounds = unpack(stored)
        grid, curator = job.grid, self._curator
        used = decode(record["event"])
        promise = curator.loss_of(promised(used, job.event))
        making = Making.from_record(job.making.to_record(), rounds)
        return TableRelease(
            sql=grid.sql,
            axes=grid.axes,
            values=values,
            value=grid.value,
            making=making,
            words=(*record["words"], *grid.caveats),
            cost=ApproxDP(0) if free else curator.loss_of(used),
            remaining=curator.remaining(),
            guarantee=guarantee_of(promise, grid.query.tables),
            question=job.question,
            request_id=request_id,
            practice=self._rules.practice,
            log=curator.ledger.log(),
        )


def _shown(progress: Progress | None, release: Callable[[], Any]) -> Any:  # noqa: ANN401 - see `release`
    """The release, begun and ended on the progress bar, also by one that says nothing between."""
    if progress is not None:
        progress(0.0, "measuring")
    made = release()
    if progress is not None:
        progress(1.0, "done")
    return made


def _once(drawn: Callable[[], Any]) -> Callable[..., Any]:
    """What is never drawn again, however fresh it is wanted."""

    def found(fresh: bool, *_: Any) -> Any:  # noqa: ANN401, FBT001 - see `_Other`
        if fresh:
            raise SpecError(
                "A series that grows keeps the totals that are out.",
                fix="Leave out fresh, or release it without until.",
            )
        return drawn()

    return found


def _require_kind(name: str, grid: Grid) -> None:
    ordered = [axis.is_ordered for axis in grid.axes]
    if name == "map" and (len(ordered) != 2 or not all(ordered)):
        raise SpecError("A map has two axes of numbers.", fix="Group by BIN(x, w), BIN(y, w).")
    if name == "series" and ordered != [True]:
        raise SpecError(
            "A series has one axis in order.", fix="Group by DATE_TRUNC('month', x), or by BIN."
        )


def _require_sign(method: str, grid: Grid) -> None:
    if grid.signed and method in FROM_ZERO:
        raise SpecError(
            f"The sums may be negative, and {method!r} is for numbers from 0 on.",
            fix='Use method="tree", or a term that is never below 0.',
        )


def _method(order: Order) -> str:
    if order.name in KINDS:
        wanted = order.name if order.name in RECIPES else order.method
        return wanted if order.method == "auto" else order.method
    if order.method not in ("auto", order.name):
        raise SpecError(
            f"{order.name!r} is a method already.", fix=f"Use release({order.name!r}, …) alone."
        )
    return order.name


def _chosen(
    method: str, options: Mapping[str, Any], ask: Told, workload: Workload
) -> tuple[str, Recipe, Predicted]:
    """The recipe of a method, which can do what is asked; for "auto", the one that says best.

    Where there is no recipe called "auto", it is the one with the smallest predicted error among
    those that can predict it, without options. Free: predictions depend on no row.
    """
    if method != "auto" or method in RECIPES:
        made = recipe(method, **options)
        made.require(ask.shape, workload)
        return method, made, made.predict(ask, workload)
    found: list[tuple[float, str, Recipe, Predicted]] = []
    for name in sorted(RECIPES, key=lambda each: each != "cells"):  # the plainest of equals
        try:
            made = recipe(name, **options)
            made.require(ask.shape, workload)
            predicted = made.predict(ask, workload)
        except NoisegateError:
            continue
        if predicted.rms is not None:
            found.append((predicted.rms, name, made, predicted))
    if not found:
        raise SpecError("No method fits.", fix=f"Choose one of {', '.join(RECIPES)}.")
    least = min(rms for rms, *_ in found) * _EQUAL
    _, name, made, predicted = next(each for each in found if each[0] <= least)
    return name, made, predicted


def _question(grid: Grid, making: Making, spec: Spec) -> str:
    """Canonical text: two releases with one text are one release, drawn once."""
    record = {
        "release": FORMAT,
        "query": grid.to_record(),
        "method": making.method,
        "options": dict(making.options),
        "workload": spec_digest(spec),
        **making.price.to_record(),
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
