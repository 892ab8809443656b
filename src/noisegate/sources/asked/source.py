"""A source that is asked in statements: one for a tally, and whole numbers come back.

Claim: what a tally is here is what it is on DuckDB, and moves by at most its sensitivity.
Why: the statement is the same tree (`sources/writing`); each engine's words are total and mean the
    same (its dialect), and `require` refuses by name, before any charge, what has no such words.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from sqlglot import exp

from noisegate.algebra.blocks import Blocks
from noisegate.algebra.expression import domain_of
from noisegate.algebra.relation import keyed, sample_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import (
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Rows,
    Sums,
    Tally,
    Values,
    fields_used,
)
from noisegate.errors import PolicyError, SourceError
from noisegate.frozen import replace
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.sources.adding import of_used
from noisegate.sources.asked.dialect import KIND_OF, READ_AS, DecimalDialect
from noisegate.sources.asked.opening import (
    require_files,
    require_kinds,
    require_one_owner,
    require_public,
)
from noisegate.sources.asked.sampled import SampleWriter
from noisegate.sources.asked.statements import (
    cells_statement,
    is_grouped,
    marginals_statement,
    values_list,
    values_statement,
    whole_rows,
)
from noisegate.sources.asked.weights import counted_once, sums_once
from noisegate.sources.batching import batches
from noisegate.sources.source import SUM_MAX, Batch, Block, Held, HeldCells, Source, Used, Whole
from noisegate.sources.used import used_columns
from noisegate.sources.writing.blocks import blocks_query, dealt_rows, kinds_of
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.relations import Coins, RelationWriter, base_view
from noisegate.sources.writing.tallies import (
    distinct_query,
    keys_query,
    rows_query,
    sums_query,
)
from noisegate.sources.writing.weights import WEIGHED
from noisegate.sources.writing.words import as_, base_value, call, col, is_not_null, shown_value

if TYPE_CHECKING:
    import pyarrow as pa

_WRITTEN_MAX: Final = 128  # statements that are kept
_TEXT: Final = re.compile("'(?:[^']|'')*'")
_NUMBER: Final = re.compile(r"\b(?![01]\b)\d+(?:\.\d+)?\b")


class AskedSource(Source):
    """Tables that an engine knows as base0, base1, …; an engine says how its texts are run."""

    dialect: Dialect

    def __init__(
        self, tables: Mapping[str, TableDomain], types: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._tables, self._types = tables, types
        self._written, self._able, self._planned = dict[str, str](), set[str](), set[str]()
        self._coins: Coins | None = None

    @abstractmethod
    def _parts(self, text: str, columns: int, use: Callable[[Iterator[list[Whole]]], Used]) -> Used:
        """What ``use`` makes of an answer's columns, 64-bit numbers without NULL, part by part."""

    @abstractmethod
    def _batches(
        self,
        text: str,
        kinds: Mapping[str, Kind],
        use: "Callable[[Iterator[pa.RecordBatch]], Used]",
    ) -> Used:
        """What ``use`` makes of an answer of columns of these kinds, in its order."""

    def _numbers(self, text: str, columns: int) -> list[Whole]:
        """The columns of a statement's answer, all of them 64-bit numbers without NULL."""
        found = self._parts(text, columns, list)
        none = [np.zeros(0, np.int64)] * columns
        return [np.concatenate(column) for column in zip(none, *found, strict=True)]

    def _placed(self, query: exp.Expr) -> exp.Expr:
        """The statement with the tables where they are."""
        return query

    @abstractmethod
    def _list_keys(self, query: exp.Query, place: int, grouping: Grouping, kind: Kind) -> None:
        """Put the list (i, x) of a grouping's keys into the statement."""

    def sums(self, tally: Sums) -> Whole:
        """Sums of nothing but 0 are not asked for: engines fail where they work them out before."""
        shape, asked = tuple(grouping.size for grouping in tally.by), _not_zero(tally)
        found = self._whole(asked) if asked.terms else []
        sums = (_filled(found, len(shape) + place, shape) for place in range(len(asked.terms)))
        none = np.zeros(tally.cells, np.int64)
        return np.stack([none if each.constant == 0 else next(sums) for each in tally.terms])

    def marginals(self, tally: Marginals) -> list[Whole]:  # noqa: D102 - see Source
        asked = of_used(tally)
        found = self._whole(asked)
        return [_table_of(found, each, asked) for each in asked.sets]

    def values(self, tally: Values) -> list[Whole]:  # noqa: D102 - see Source
        grouped = is_grouped(tally, self.dialect)
        found = self._whole(tally)
        value = found[len(tally.by)]
        if not tally.by:
            return [np.repeat(value, found[-1]) if grouped else value]
        cells = _cells_of(found, tuple(grouping.size for grouping in tally.by))
        order = np.argsort(cells, kind="stable")
        if grouped:
            order = np.repeat(order, found[-1][order])
        bounds = np.searchsorted(cells[order], np.arange(1, tally.cells))
        return np.split(value[order], bounds)

    def distinct(self, tally: Distinct) -> Whole:  # noqa: D102 - see Source
        shape = tuple(grouping.size for grouping in tally.by)
        return np.stack([_filled(self._whole(tally), len(shape), shape)])

    def cells(self, tally: Cells) -> HeldCells:  # noqa: D102 - see Source
        high, low, counts = self._whole(tally)
        cells = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
        order = np.argsort(cells)
        return HeldCells(cells=cells[order], counts=counts[order])

    def rows(self, tally: Rows, use: Callable[[Iterator[Batch]], Used]) -> Used:  # noqa: D102 - see Source
        names = self._names(tally)
        text = self._statement(tally, names)
        return self._parts(text, len(names), lambda parts: use(batches(parts, tally)))

    def _names(self, tally: Tally) -> list[str]:
        """The columns of whole numbers that are read of a tally's statement; none: all of them."""
        places = [f"i{place}" for place in range(len(tally.by))]
        if isinstance(tally, Sums):
            return [*places, *(f"s{place}" for place in range(len(tally.terms)))]
        if isinstance(tally, Rows):
            owned = self._writer(tally).over(tally.relation).is_owned
            weight = ["w"] if tally.rows_per_unit is not None and owned else []
            return [*places, *(f"e{place}" for place in range(len(tally.terms))), *weight]
        if isinstance(tally, Values):
            return [*places, "v", *(["n"] if is_grouped(tally, self.dialect) else [])]
        if isinstance(tally, Cells | Keys):
            return ["h", "c", "n"] if isinstance(tally, Cells) else []
        return [*places, "v" if isinstance(tally, Marginals) else "s0"]

    def _dealing(self, tally: Blocks, key: str) -> str:
        return self.dialect.text(self._placed(blocks_query(tally, self._writer(tally), key)))

    def blocks(self, tally: Blocks, key: str, use: Callable[[Iterator[Block]], Used]) -> Used:  # noqa: D102
        text = self._dealing(tally, key)
        return self._batches(text, kinds_of(tally), lambda found: use(dealt_rows(found, tally)))

    @contextmanager
    def sample(self, probability: Fraction, key: str) -> Iterator[Self]:
        """The rows of those units whose coin shows heads; see `sources/duckdb/sample.py`.

        A unit's coin is the hash of the key, its id space and its name, the same in every reading.
        Rows that are units have numbers instead (`sampled.py`), which others would change that come
        or go meanwhile: all readings are of one moment.
        """
        units = [table.unit for table in self._tables.values() if table.unit is not None]
        rows = any(unit.column is None for unit in units)
        with self.still() if rows else nullcontext(self) as still:
            found = copy(still)
            found._written, found._coins = {}, Coins(probability, key)  # noqa: SLF001
            try:
                yield found
            finally:
                found._written.clear()  # noqa: SLF001 - its statements hold coins
                found._coins = None  # noqa: SLF001

    def require(self, tally: "Tally | Blocks") -> None:
        """Refuse what has no words here, by writing it. Reads nothing."""
        if isinstance(tally, Blocks):
            self.dialect.text(blocks_query(tally, self._writer(tally), "0" * 64))
            return
        if sample_of(tally.relation) is not None:
            tally = replace(tally, relation=keyed(tally.relation, "0" * 64))
        if (name := repr(tally)) not in self._able:
            self.dialect.text(self._listed(tally))
            if len(self._able) >= _WRITTEN_MAX:
                self._able.clear()
            self._able.add(name)

    @property
    def plans(self) -> bool:  # noqa: D102 - see Source
        return True

    def require_plan(self, tally: "Tally | Blocks") -> None:
        """Let the engine plan the statement that will be asked, if it has planned none like it.

        Claim: whether it is refused depends on no row. Why: planning runs no part of a statement.
            A planner may look at its statistics and the ends of an index, and work out constants,
            with functions of the dialect alone: these are total, so none of them fails at a value.
            Nothing else of a plan is told than that there is one. How long it takes may depend on
            statistics, so the door asks as a part of a question that is about to be charged, and
            not for a plan.
        """
        if isinstance(tally, Blocks):
            text = self._dealing(tally, "0" * 64)
        else:
            if sample_of(tally.relation) is not None:
                tally = replace(tally, relation=keyed(tally.relation, "0" * 64))
            if isinstance(tally, Sums) and not (tally := _not_zero(tally)).terms:
                return
            tally = of_used(tally) if isinstance(tally, Marginals) else tally
            text = self._text(tally)
        if (shape := self._shape(text)) in self._planned:
            return
        self._plan(text)
        if len(self._planned) >= _WRITTEN_MAX:
            self._planned.clear()
        self._planned.add(shape)

    def _text(self, tally: Tally) -> str:
        """The statement that is sent for a tally."""
        return self._statement(tally, self._names(tally))

    @abstractmethod
    def _plan(self, text: str) -> None:
        """Have the engine plan a statement, or refuse it."""

    def _shape(self, text: str) -> str:
        """What statements have in common that are planned once."""
        return text

    def _query(self, tally: Tally) -> exp.Query:
        rules: dict[type, Callable[[Any, RelationWriter], exp.Query]] = {
            Sums: self._sums_query,
            Marginals: marginals_statement,
            Values: values_statement,
            Keys: keys_query,
            Distinct: distinct_query,
            Cells: cells_statement,
            Rows: rows_query,
        }
        return rules[type(tally)](tally, self._writer(tally))

    def _sums_query(self, tally: Sums, writer: RelationWriter) -> exp.Query:
        """As it is written for all engines, but for counted owners.

        Rows that are weighed are read twice instead of kept: both times are of one moment.
        """
        query = counted_once(tally, writer) or sums_query(tally, writer, wide=True)
        for part in query.find_all(exp.CTE):
            if part.alias == WEIGHED:
                part.set("materialized", value=False)
        return query

    def _whole(self, tally: Tally) -> list[Whole]:
        """The whole numbers of a tally by column."""
        names = self._names(tally)
        return self._numbers(self._statement(tally, names), len(names))

    def _listed(self, tally: Tally) -> exp.Query:
        """The statement with its lists of keys."""
        query, schema = self._query(tally), schema_of(tally.relation)
        listed = [each for each in tally.by if isinstance(each, Grouping)]
        for place, grouping in reversed(list(enumerate(listed))):
            kind = domain_of(grouping.expression, schema).kind
            self._list_keys(query, place, grouping, kind)
        return query

    def _statement(self, tally: Tally, names: Sequence[str]) -> str:
        """A tally's text, of these columns as whole numbers, or of all; that of coins is not kept.

        It is kept by how the tally is written out, which tells 1 and True apart.
        """
        name = repr(tally)
        text = self._written.get(name)
        if text is None:
            query = self._listed(tally)
            text = self.dialect.text(self._placed(whole_rows(query, names) if names else query))
            if sample_of(tally.relation) is None:
                if len(self._written) >= _WRITTEN_MAX:
                    self._written.clear()
                self._written[name] = text
        return text

    def _writer(self, tally: "Tally | Blocks") -> RelationWriter:
        return SampleWriter(
            self._tables, self._types, fields_used(tally),
            lambda table: base_view(self._place(table)), self._coins, dialect=self.dialect,
        )  # fmt: skip

    def _place(self, table: str) -> int:
        return list(self._tables).index(table)

    def _shown(self, table: str) -> str:
        """The statement that shows a public table."""
        columns = [each for each in self._tables[table].columns.values() if not each.hidden]
        shown = [
            as_(
                shown_value(each, self._types[table][each.name], col(each.name), self.dialect),
                exp.to_identifier(each.name, quoted=True),
            )
            for each in columns
        ]
        query = exp.select(*(shown or [as_(exp.true(), "row")]))
        return self.dialect.text(self._placed(query.from_(base_view(self._place(table)))))


def _not_zero(tally: Sums) -> Sums:
    """The same without terms that are 0 in every row."""
    held, sized = (
        tuple(each for each in terms if each.constant != 0) for terms in (tally.terms, tally.sized)
    )
    return replace(tally, terms=held, sized=sized)


class ArrowSource(AskedSource):
    """An engine over Parquet files that answers in Arrow tables, or in a stream of their parts."""

    dialect: DecimalDialect

    def _shape(self, text: str) -> str:
        """The statement without its constants but 0 and 1: planning takes as long as a small table.

        Where other constants alone are what cannot be planned, that is told after the charge.
        """
        return _NUMBER.sub("2", _TEXT.sub("''", text))

    @abstractmethod
    def _table(self, text: str) -> "pa.Table":
        """The answer to a statement, or a refusal that quotes nothing of the engine's words."""

    @abstractmethod
    def _stream(self, text: str, use: "Callable[[Iterator[pa.RecordBatch]], Used]") -> Used:
        """What ``use`` makes of the answer, which comes in batches; else a refusal as above."""

    def _parts(self, text: str, columns: int, use: Callable[[Iterator[list[Whole]]], Used]) -> Used:
        def parts(found: "Iterator[pa.RecordBatch]") -> Iterator[list[Whole]]:
            for batch in found:
                arrays = batch.columns[:columns]
                yield [np.asarray(each.to_numpy(zero_copy_only=False), np.int64) for each in arrays]

        return self._stream(text, lambda found: use(parts(found)))

    def _batches(
        self,
        text: str,
        kinds: Mapping[str, Kind],  # noqa: ARG002 - as the statement says
        use: "Callable[[Iterator[pa.RecordBatch]], Used]",
    ) -> Used:
        return self._stream(text, use)

    def _list_keys(self, query: exp.Query, place: int, grouping: Grouping, kind: Kind) -> None:
        values_list(query, place, grouping, kind, self.dialect)

    def _sums_query(self, tally: Sums, writer: RelationWriter) -> exp.Query:
        """In one reading of the rows, and in sums of 64 bits as far as they have room."""
        return sums_once(tally, writer)

    def _require_tables(self) -> None:
        """Refuse tables that are not as the policy says; keys are looked up last, in the rows."""
        require_one_owner({name: self.lies_in(name) for name in self._tables}, self._tables)
        for name, table in self._tables.items():
            require_files(table, self.dialect.name)
            used_columns(name, self._tables, self._types[name])
            require_kinds(table, self._types, KIND_OF, READ_AS, self.dialect.name)
        for table in self._tables.values():
            self._require_key(table)

    def _require_texts(self) -> None:
        """Read all texts once: one that is not UTF-8 would be an error of every later question."""
        for name, types in self._types.items():
            texts = [n for n in used_columns(name, self._tables, types) if types[n] == "string"]
            sizes = [
                as_(exp.Max(this=call("OCTET_LENGTH", col(text))), f"t{place}")
                for place, text in enumerate(texts)
            ]
            if not sizes:
                continue
            with suppress(SourceError):
                self._table(
                    self.dialect.text(exp.select(*sizes).from_(base_view(self._place(name))))
                )
                continue
            raise SourceError(
                f"The files of {name!r} cannot be read completely: a text is not UTF-8, a file is "
                "damaged, or the engine was lost meanwhile.",
                fix="Try again; if it stays so, write the files again.",
                about="file",
            )

    def _require_key(self, table: TableDomain) -> None:
        """Rely on no key that repeats in these files. Tables with a declared key are public."""
        if not table.key:
            return
        types, dialect = self._types[table.name], self.dialect
        values = [base_value(table.columns[n], types[n], col(n), dialect) for n in table.key]
        query = exp.select(as_(exp.Count(this=exp.Star()), "n"))
        query = query.from_(base_view(self._place(table.name)))
        query = query.where(*(is_not_null(each.copy()) for each in values))
        query = query.group_by(*values).having("COUNT(*) > 1").limit(1)
        if self._table(dialect.text(query)).num_rows:
            raise PolicyError(
                f"The key of {table.name!r} has duplicates: {', '.join(table.key)}.",
                fix="Name columns without duplicates, or leave out key.",
                about="key",
            )

    def public(self, table: str) -> "pa.Table":
        """All rows of a public table: exact and free."""
        require_public(self._tables[table])
        return self._table(self._shown(table))

    def keys(self, tally: Keys) -> Held:  # noqa: D102 - see Source
        found = self._table(self._statement(tally, ()))
        names = [f"k{place}" for place in range(len(tally.by))]

        def take(places: Whole) -> list[tuple[Key, ...]]:
            columns = [found.column(name).take(places).to_pylist() for name in names]
            return list(zip(*columns, strict=True))

        return Held(counts=np.asarray(found.column("n").to_numpy(), np.int64), take=take)


def _cells_of(found: Sequence[Whole], shape: tuple[int, ...]) -> Whole:
    if not shape:
        return np.zeros(1, np.int64)
    return np.ravel_multi_index(tuple(found[: len(shape)]), shape).astype(np.int64)


def _filled(found: Sequence[Whole], column: int, shape: tuple[int, ...]) -> Whole:
    """A number for each cell, 0 where the engine found none."""
    cells = np.zeros(int(np.prod(shape)), np.int64)
    cells[_cells_of(found, shape)] = found[column]
    return cells


def _table_of(found: Sequence[Whole], each: tuple[int, ...], tally: Marginals) -> Whole:
    """The table of one set: rows whose other columns were folded, and whose keys are listed."""
    keep = np.ones(found[-1].size, np.bool_)
    for place, grouping in enumerate(tally.by):
        at = found[place]
        keep &= (at >= 0) & (at < grouping.size) if place in each else at < 0
    shape = tuple(tally.by[place].size for place in each)
    cells = np.zeros(int(np.prod(shape)), np.int64)
    if keep.any():
        cells[_cells_of([found[place][keep] for place in each], shape)] = found[-1][keep]
    return np.clip(cells, -SUM_MAX, SUM_MAX)
