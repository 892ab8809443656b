"""From a question and a price to a released table.

read        SQL (or columns) becomes a grid of declared cells and one sum over them
choose      the recipe, by name or by the error it predicts; what it cannot do is refused
reserve     one allowance for all that the recipe will ask; the same release is never drawn again
build       the recipe asks and rebuilds; then no negative numbers, whole ones, the total kept
keep        numbers and transcript are stored before anyone sees them
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, Required, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.curator.allowance import Allowance
from noisegate.desk.desk import Desk
from noisegate.desk.job import AdaptiveJob, Job, Progress, Receipt, derived
from noisegate.desk.terms.terms import Terms
from noisegate.errors import NoisegateError, SpecError
from noisegate.frozen import dataclass, fields
from noisegate.ledger.ledger import Ledger
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, decode, encode
from noisegate.releases.ask.asking import DoorAsk
from noisegate.releases.ask.order import CellsOrder, CellsTerms, MethodOrder, agreed
from noisegate.releases.ask.transcript import Listening, Rounds, Told, pack, unpack
from noisegate.releases.cells.estimate import Predicted, finish
from noisegate.releases.cells.grid import Grid, asked_sql, grid_of
from noisegate.releases.cells.workload import Workload
from noisegate.releases.forms import provenance
from noisegate.releases.forms.cdf import CdfRelease
from noisegate.releases.forms.running import SeriesJob, SeriesRelease, series_job
from noisegate.releases.forms.table import FORMAT, TableExpected, TableRelease, endings_of
from noisegate.releases.recipes import CHOOSING, FROM_ZERO, RECIPES, auto, recipe
from noisegate.releases.recipes import Recipe as TableRecipe
from noisegate.sql.reading.reader import read

Key: TypeAlias = int | float | str | date
Factor: TypeAlias = Literal["auto", "tree", "root"]
Contents: TypeAlias = tuple[dict[str, Any], list[NDArray[Any]], Rounds]

# The workload of each name, unless one is given. Names of recipes are histograms by the recipe.
KINDS: Final[Mapping[str, str]] = {
    "histogram": "cells",
    "table": "cells",
    "map": "ranges",
    "series": "prefixes",
    "marginals": "marginals",
}
_EQUAL: Final = 1 + 1e-6  # errors that differ by less are equal
_WITHOUT_MISSING: Final = ("map", "series")
_SINCE: Final = "2026-11-20"  # ledgers that began later hold no other choice for few ranges

TableName: TypeAlias = Literal[
    "histogram", "table", "map", "series", "marginals", "adaptive", "adaptive-grid", "ahp", "auto",
    "cells", "convex", "dawa", "direct", "fourier", "haar", "hybrid", "kdtree", "mwem", "planned",
    "privtree", "quadtree", "seasonal", "sensing", "sketch", "totals", "tree", "uniform-grid",
]  # fmt: skip


class SeriesTerms(CellsTerms, total=False):
    """A series that grows: ``until`` when its periods are complete."""

    method: Factor
    until: Required[Key]
    horizon: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableOrder(MethodOrder[TableRelease, TableExpected]):
    """A table by declared groups: its name says for which workload, or by which method.

    Attributes:
        sql: One SELECT of one COUNT or SUM by declared groups, such as
            ``SELECT COUNT(*) FROM visits GROUP BY BIN(age, 5), ward``.
        table: Or, without SQL: the table, if there are several,
        columns: and its columns: a bin width, a list of edges, a unit of time such as "month", or
            None for declared keys,
        where: and a condition.
        method: How to measure; by default chosen by a public rule.
        workload: What the public will ask: "cells", "ranges", "prefixes", "marginals", or ranges
            such as ``[{"age": (20, 39)}, {"ward": "north"}]``.
        epsilon: The price of all of it; by default what the policy says. In an account that adds
            up zCDP, ε buys the ρ that implies it.
        rows_per_unit: How many rows of one unit count, instead of the policy's cap.
        groups_per_unit: In how many groups one unit counts, instead of the policy's cap.
        options: Those of the method; `Gate.release` takes them by name.
    """

    name: TableName

    def job(self, desk: Desk) -> "TableJob":
        """The table that an order asks for; what it cannot do is refused here, at no cost.

        One that was paid for before few ranges were measured themselves is found.
        """
        made = self.anew(desk)
        chosen = _method(self) == "auto" and made.making.method == "direct"
        if not chosen or desk.read_as(Ledger.begun) >= _SINCE or made.is_paid(desk.curator):
            return made
        former = self.anew(desk, few=False)
        return former if former.is_paid(desk.curator) else made

    def anew(self, desk: Desk, *, few: bool = True) -> "TableJob":
        """The table as it is made now; ``few``: few ranges may be measured themselves."""
        grid, terms = grid_and_terms(desk, self, self.groups_per_unit)
        epsilon = epsilon_of(desk, terms)
        price = desk.price(epsilon)
        kind = self.name if self.name in KINDS else "histogram"
        spec = provenance.spec_of(
            KINDS[kind] if self.workload is None else self.workload, grid.axes
        )
        asked = provenance.workload_of(spec, grid.shape)
        method = _method(self)
        options = provenance.plain_options(self.options)
        if method == "auto" and grid.signed:  # the rule of auto is for numbers from 0 on
            method = "tree"
        _require_sign(method, grid)
        ask = Told(price, shape=grid.shape, moved=grid.moved)
        if method == "auto" and few and not options and auto.is_few(ask, asked):
            method = "direct"
        uses = _uses(method, ask, asked)
        if method == "auto" and not uses <= desk.curator.allowed:
            method, uses = "adaptive", frozenset()
        name, made, predicted = _chosen(method, options, ask, asked)
        making = provenance.Making(
            method=name,
            options=options,
            workload=spec,
            price=price,
            moved=grid.moved,
            grain=grid.grain,
            whole=grid.whole,
            signed=grid.signed,
        )
        known = predicted.rms is not None
        mending = "before clipping at 0" if known and not grid.signed else ""
        return TableJob(
            kind=kind,
            sql=grid.sql,
            epsilon=epsilon,
            expected=_expected(grid, making, asked, predicted),
            notes=tuple(filter(None, (predicted.words, mending, *grid.caveats))),
            endings=endings_of(grid.axes),
            uses=uses,
            price=price,
            question=_question(grid, making, spec),
            grid=grid,
            recipe=made,
            making=making,
            workload=asked,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CdfOrder(MethodOrder[CdfRelease, TableExpected]):
    """A distribution function: a series of numbers, by a method whose error is known."""

    shares: ClassVar[bool] = True
    name: Literal["cdf"] = "cdf"

    def job(self, desk: Desk) -> Job[Contents, CdfRelease, TableExpected]:
        """That of the series, and what follows from it."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        said |= {"name": "series", "method": "tree" if self.method == "auto" else self.method}
        counted = TableOrder(**said).job(desk)
        return derived("cdf", counted, lambda made: CdfRelease(histogram=made), CdfRelease.endings)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesOrder(CellsOrder[SeriesRelease, TableExpected]):
    """Running totals of a table that grows; ``horizon`` is how many periods are paid for.

    Its bound is declared: an estimate from the rows of one state is not that of the next.
    """

    estimates: ClassVar[bool] = False
    name: Literal["series"] = "series"
    method: Factor = "auto"
    until: Key
    horizon: int | None = None

    def job(self, desk: Desk) -> SeriesJob:
        """The series, opened or continued."""
        grid, terms = grid_and_terms(desk, self, by_groups=False)  # the first rows, in any period
        return series_job(
            desk, grid, epsilon=epsilon_of(desk, terms), method=self.method, until=self.until,
            horizon=self.horizon,
        )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob(AdaptiveJob[Contents, TableRelease, TableExpected]):
    """A table by one recipe: it asks and rebuilds; then no negative numbers, and whole ones."""

    grid: Grid
    recipe: TableRecipe
    making: provenance.Making
    workload: Workload

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the cells."""
        return self.grid.query.tables

    def draw(self, allowed: Allowance, progress: Progress) -> bytes:
        """Ask, rebuild, keep. Whatever interrupts it, what was drawn is charged."""
        grid = self.grid
        door = DoorAsk(allowed.whole, grid.query, self.price, shape=grid.shape, progress=progress)
        ask = Listening(door)
        ask.done(0.0, f"measuring by {self.making.method}")
        estimate = self.recipe.build(ask, self.workload)
        ask.done(0.99, "keeping")
        if estimate.mend is not None and grid.whole and not grid.signed:
            values: Any = estimate.mend(float(grid.grain)).reshape(grid.shape)
        else:
            values = finish(
                np.asarray(estimate.cells, np.float64).reshape(grid.shape) * float(grid.grain),
                self.workload,
                is_whole=grid.whole,
                signed=grid.signed,
            )
        record = {"format": FORMAT, "event": encode(allowed.used()), "words": list(estimate.words)}
        return pack(record, [values], tuple(ask.rounds))

    def read(self, stored: bytes) -> tuple[Contents, Event]:
        """The numbers, the transcript, and what was used."""
        found = unpack(stored)
        return found, decode(found[0]["event"])

    def result(self, content: Contents, receipt: Receipt) -> TableRelease:
        """The table."""
        record, (values,), rounds = content
        return TableRelease(
            sql=self.sql,
            axes=self.grid.axes,
            values=values,
            value=self.grid.value,
            making=provenance.Making.from_record(self.making.to_record(), rounds),
            words=(*record["words"], *self.grid.caveats),
            cut=self.grid.cut,
            **receipt.standing,
        )


def _uses(method: str, ask: Told, workload: Workload) -> frozenset[str]:
    """The optional capabilities of a method; of "auto", those of what it would choose."""
    if method == "auto":
        method = auto.choice(ask, workload)[0]
    return frozenset({"partitions"} if method in CHOOSING else ())


def _expected(
    grid: Grid, making: provenance.Making, asked: Workload, predicted: Predicted
) -> TableExpected:
    grain = float(grid.grain)
    numbers: dict[str, Any] = {
        name: None if each is None else each * grain for name, each in predicted.numbers.items()
    }
    return TableExpected(
        axes=grid.axes,
        method=making.method,
        workload=asked.words,
        questions=asked.size,
        **numbers,
        share=None if grid.signed else predicted.share,
        seen=predicted.seen,
        levels=tuple(each * grain for each in predicted.levels),
        gaussian=making.price.gaussian,
        covered=asked.covered,
    )


def grid_and_terms(
    desk: Desk, order: CellsOrder[Any, Any], groups: int | None = None, *, by_groups: bool = True
) -> tuple[Grid, Terms]:
    """The cells of an order, and what it says about paying."""
    tables = desk.curator.tables
    sql, edges = asked_sql(tables, order.sql, order.table, order.columns, order.where)
    question = read(sql, tables)
    terms = agreed(question.terms, order, groups)
    grid = grid_of(
        question,
        sql,
        terms,
        missing=order.name not in _WITHOUT_MISSING,
        by_groups=by_groups,
        edges=edges,
    )
    _require_kind(order.name, grid)
    return grid.sampled(desk.rules.sample), terms


def epsilon_of(desk: Desk, terms: Terms) -> Fraction:
    """The price of a release, which is given."""
    if terms.within is not None or terms.relative is not None:
        raise SpecError("A release is paid for with epsilon.", fix="Give epsilon.", about="price")
    return desk.epsilon(terms.epsilon)


def _require_kind(name: str, grid: Grid) -> None:
    ordered = [axis.is_ordered for axis in grid.axes]
    if name == "map" and (len(ordered) != 2 or not all(ordered)):
        raise SpecError(
            "A map needs two numeric axes.", fix="Group by BIN(x, w), BIN(y, w).", about="axes"
        )
    if name == "series" and ordered != [True]:
        raise SpecError(
            "A series needs a single ordered axis.",
            fix="Group by DATE_TRUNC('month', x), or by BIN.",
            about="axes",
        )


def _require_sign(method: str, grid: Grid) -> None:
    if grid.signed and method in FROM_ZERO:
        raise SpecError(
            f"The sums may be negative, and {method!r} is for non-negative numbers.",
            fix='Use method="tree", or a term that is never negative.',
            about="sign",
        )


def _method(order: TableOrder) -> str:
    if order.name in KINDS:
        wanted = order.name if order.name in RECIPES else order.method
        return wanted if order.method == "auto" else order.method
    if order.method not in ("auto", order.name):
        raise SpecError(
            f"{order.name!r} is itself a method.",
            fix=f"Use release({order.name!r}, …) alone.",
            about="method",
        )
    return order.name


def _chosen(
    method: str, options: Mapping[str, Any], ask: Told, workload: Workload
) -> tuple[str, TableRecipe, Predicted]:
    """The recipe of a method, which can do what is asked; for "auto", the one that says best.

    Where there is no recipe called "auto", it is the one with the smallest predicted error among
    those that can predict it, without options. Free: predictions depend on no row.
    """
    if method != "auto" or method in RECIPES:
        made = recipe(method, **options)
        made.require(ask.shape, workload)
        return method, made, made.predict(ask, workload)
    found: list[tuple[float, str, TableRecipe, Predicted]] = []
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
        raise SpecError("No method suits this release.", fix=f"Choose one of {', '.join(RECIPES)}.")
    least = min(rms for rms, *_ in found) * _EQUAL
    _, name, made, predicted = next(each for each in found if each[0] <= least)
    return name, made, predicted


def _question(grid: Grid, making: provenance.Making, spec: provenance.Spec) -> str:
    """Canonical text: two releases with one text are one release, drawn once."""
    record = {
        "release": FORMAT,
        "query": grid.to_record(),
        "method": making.method,
        "options": dict(making.options),
        "workload": provenance.spec_digest(spec),
        **making.price.to_record(),
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
