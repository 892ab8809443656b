"""Marginal tables through the door: each measured table is a tally of its own, in one allowance."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, final

from noisegate.curator.allowance import Scope
from noisegate.curator.curator import Curator, digest
from noisegate.desk.attempts import Attempts
from noisegate.desk.display import percent
from noisegate.desk.price import Price
from noisegate.desk.rules import Rules
from noisegate.desk.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.event import Event
from noisegate.privacy.guarantee import guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.query.estimates.sampling import Sampling, sampling_of
from noisegate.query.reading.reader import read
from noisegate.releases.asking import Ask, DoorAsk
from noisegate.releases.cube import CubeRelease
from noisegate.releases.grid import Grid, grid_of, sql_of
from noisegate.releases.marginal_fit import TablesPlan, plan_tables, require_sets
from noisegate.releases.marginal_tables import FORMAT, Marginals, build_tables
from noisegate.releases.order import Order, own
from noisegate.releases.plan import Facts, price_words
from noisegate.releases.residuals import Axes
from noisegate.releases.tails import tail_factor
from noisegate.releases.transcript import Told

Progress = Callable[[float, str], None]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalOrder:
    """What is asked for. ``sets`` are groups of columns, or how many columns a table has.

    ``columns`` are as for any release: a bin width, edges, a unit of time, or None for the keys.
    """

    columns: Mapping[str, Any]
    table: str | None = None
    where: str | None = None
    sets: int | Sequence[Sequence[str]] = 2
    epsilon: Number | None = None
    rows_per_unit: int | None = None
    shrink: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise SpecError("No column is named.", fix='Use columns={"age": 5, "ward": None}.')


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalPlan(Facts):
    """Price and error before paying. ``rms`` is of each cell of a table, by least squares."""

    price: ApproxDP
    fits: bool
    rms: Mapping[tuple[str, ...], float]
    gaussian: bool
    words: tuple[str, ...]

    def margins(self, confidence: Number = 0.95) -> dict[tuple[str, ...], float]:
        """The ± to expect of a usual cell of each table."""
        factor = tail_factor(float(failure_of(confidence)), gaussian=self.gaussian)
        return {names: rms * factor for names, rms in self.rms.items()}

    def facts(self, confidence: Number = 0.95) -> list[tuple[str, str]]:
        """The plan in words, one fact a line."""
        sure = f"at {percent(confidence)} confidence for each cell"
        errors = self.margins(confidence).items()
        lines = [("error", f"{' × '.join(names)}: about ± {at:.3g} {sure}") for names, at in errors]
        lines += [("mind", words) for words in self.words]
        return [*lines, ("price", price_words(self.price, fits=self.fits))]

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for --json."""
        widths = self.margins(confidence)
        return {
            "tables": [
                {"columns": list(names), "rms": rms, "margin": widths[names]}
                for names, rms in self.rms.items()
            ],
            "confidence": float(confidence),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            "fits": self.fits,
            "words": list(self.words),
        }


@final
class MarginalBench:
    """Plans and releases marginal tables through a curator, by the rules of a policy."""

    def __init__(self, curator: Curator, rules: Rules, order: MarginalOrder) -> None:
        self._curator, self._rules, self._order = curator, rules, order
        accountant = curator.ledger.balance(curator.account).accountant
        self._names = list(order.columns)
        self._grids: dict[Axes, Grid] = {}
        epsilon = self._rules.price(self._order.epsilon)
        self._price = Price.of(epsilon, accountant=accountant, sample=rules.sample)
        singles = [self._grid((place,)) for place in range(len(self._names))]
        self._axes = tuple(grid.axes[0] for grid in singles)
        self._sizes = tuple(axis.size for axis in self._axes)
        self._sets = require_sets(self._sizes, self._asked())

    def plan(self, *, fresh: bool = False) -> MarginalPlan:
        """Free: spends nothing, reads no row."""
        stored = None if fresh else self._attempts.found()
        price, fits = (ApproxDP(0), True) if stored else self._curator.price(self._event)
        plan = self._plan()
        named = {tuple(self._names[a] for a in axes): plan.rms(axes) for axes in plan.sets}
        grain = float(self._grain)
        words = f"measured as {plan.design.words}, before mending, which lowers the error"
        return MarginalPlan(
            price=price,
            fits=fits,
            rms={names: rms * grain for names, rms in named.items()},
            gaussian=self._price.gaussian,
            words=(words, *self._caveats),
        )

    def release(self, progress: Progress | None = None, *, fresh: bool = False) -> CubeRelease:
        """The tables: from the ledger if they were released before, else for their price."""
        stored = None if fresh else self._attempts.found()
        if stored:
            return self._cube(stored[0], Marginals.from_bytes(stored[1]), free=True)
        with self._attempts.begin(self._event, fresh=fresh) as allowed:
            found = build_tables(
                lambda axes: self._door(allowed.whole, axes),
                self._plan(),
                self._axes,
                shrink=self._order.shrink,
                grain=float(self._grain),
                done=progress,
            )
            found = found.sampled(self._sampling)
            allowed.finish(found.to_bytes())
        return self._cube(allowed.request_id, found, free=False)

    # parts

    def _plan(self) -> TablesPlan:
        return plan_tables(self._told, self._sizes, self._sets, shrink=self._order.shrink)

    def _asked(self) -> list[Axes]:
        asked, names = self._order.sets, self._names
        if type(asked) is int:
            if not 1 <= asked <= len(names):
                raise SpecError(
                    f"There are no tables of {asked} columns.", fix=f"Use 1 to {len(names)}."
                )
            return list(combinations(range(len(names)), asked))
        if not isinstance(asked, list | tuple) or not all(
            isinstance(each, list | tuple) for each in asked
        ):
            raise SpecError(
                "The tables are no lists of columns.", fix='Use sets=2, or sets=[("age", "ward")].'
            )
        unknown = {name for each in asked for name in each} - set(names)
        if unknown:
            raise SpecError(f"{min(unknown)!r} is not among the columns.", fix="Add it to columns.")
        return [tuple(sorted({names.index(name) for name in each})) for each in asked]

    def _grid(self, axes: Axes) -> Grid:
        """The grid of some columns."""
        if axes not in self._grids:
            order, tables = self._order, self._curator.tables
            columns = {self._names[a]: order.columns[self._names[a]] for a in axes}
            sql, edges = sql_of(tables, order.table, columns, order.where)
            terms = Terms(rows_per_unit=order.rows_per_unit)
            found = grid_of(read(sql, tables), sql, terms, edges=edges)
            found = found.sampled(self._rules.sample)
            if self._grids and found.grain != self._grain:
                raise SpecError(
                    "The tables would count in different units.", fix="Give rows_per_unit."
                )
            self._grids[axes] = found
        return self._grids[axes]

    @property
    def _caveats(self) -> tuple[str, ...]:
        """What its numbers leave out, such as rows beyond a cap; each once."""
        said = (words for axes in self._sets for words in self._grid(axes).caveats)
        return tuple(dict.fromkeys(said))

    @property
    def _grain(self) -> Fraction:
        return next(iter(self._grids.values())).grain

    @property
    def _sampling(self) -> Sampling | None:
        sample, grid = self._price.sample, self._grid(self._sets[0])
        return None if sample is None else sampling_of(sample, grid.moved, grid.grain)

    def _told(self, axes: Axes) -> Ask:
        grid = self._grid(axes)
        return Told(self._price, shape=grid.shape, moved=grid.moved)

    def _door(self, scope: Scope, axes: Axes) -> Ask:
        grid = self._grid(axes)
        return DoorAsk(scope, grid.query, self._price, shape=grid.shape)

    @property
    def _attempts(self) -> Attempts:
        return Attempts(self._curator, self._question)

    @property
    def _event(self) -> Event:
        return self._price.event()

    @property
    def _question(self) -> str:
        """Canonical text: two releases with one text are one release, drawn once."""
        record = {
            "release": FORMAT,
            "queries": [
                digest(json.dumps(self._grid(axes).to_record(), sort_keys=True))
                for axes in self._sets
            ],
            "tables": [[self._names[a] for a in axes] for axes in self._sets],
            "shrink": self._order.shrink,
            **self._price.to_record(),
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def _cube(self, request_id: str, found: Marginals, *, free: bool) -> CubeRelease:
        grids, curator = [self._grid(axes) for axes in self._sets], self._curator
        loss = curator.loss_of(self._event)
        return CubeRelease(
            sql="; ".join(grid.sql for grid in grids),
            tables=replace(found, words=tuple(dict.fromkeys((*found.words, *self._caveats)))),
            counted=json.loads(json.dumps(grids[0].to_record())),
            cost=ApproxDP(0) if free else loss,
            remaining=curator.remaining(),
            guarantee=guarantee_of(loss, grids[0].query.tables, "these tables about"),
            question=self._question,
            request_id=request_id,
            practice=self._rules.practice,
            log=curator.ledger.log(),
        )


def cube_of(order: Order) -> MarginalOrder:
    """The order for a release called "cube": columns, and which tables of them."""
    plain = (order.sql, order.workload, order.groups_per_unit) == (None, None, None)
    if not plain or order.method != "auto":
        raise SpecError(
            "A cube is asked for by columns, and has one method.",
            fix="Leave out sql, method, workload and groups_per_unit.",
        )
    return own(MarginalOrder, order)
