"""A policy, or a table and a budget, become a gate: source, ledger and bits meet here alone."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noisegate.curator.curator import Curator
from noisegate.desk.terms.rules import EPSILON_MAX, Rules
from noisegate.desk.terms.terms import require_texts
from noisegate.errors import PolicyError, SourceError, SpecError, UnitWarning
from noisegate.exact import Number, fraction
from noisegate.files import TABLE, keep
from noisegate.gate import Gate
from noisegate.inert import line
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.open import open_ledger
from noisegate.ledger.origin import Origin, origin_of
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.guarantee import doubt_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.facts import as_stored, stored_kinds
from noisegate.sources.duckdb.files import Within, plain, plain_frame
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.engines import Engine
from noisegate.sources.policy.names import person

if TYPE_CHECKING:
    from noisegate.sources.source import Source

Origins: TypeAlias = tuple[Sequence[Origin], Sequence[Origin]]  # of private and of public tables
LEDGER_SUFFIX: Final = ".ledger"
_PRACTICE: Final = 1000  # the budget of made-up rows, where none is given
NOWHERE: Final[Origins] = ((), ())
_KEYS_SHARE: Final = 100  # a question that finds its groups may use this part of δ


def open(  # noqa: A001, PLR0913 - read as noisegate.open; each argument is a choice of the steward
    source: "str | Path | Any",  # noqa: ANN401 - any frame
    *,
    epsilon: Number | None = None,
    delta: Number = 0,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    groups_per_unit: int | None = None,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    table: str | None = None,
    ledger: "str | Path | Ledger | None" = None,
    accountant: str | None = None,
    analyst: str | None = None,
    purpose: str | None = None,
    share: Number | None = None,
    snapshot: str = "1",
    practice: bool = False,
) -> Gate:
    """Open a gate in front of the tables of a policy, or in front of one table.

    Args:
        source: A policy (a TOML file), which states everything but the analyst; or a CSV, Parquet
            or DuckDB file, or a pandas, Polars or Arrow table; or an open session of Spark, where
            ``table`` is a name or a folder of Parquet files.
        epsilon: The budget of the whole data set; by default that of an existing ledger.
        delta: The budget's δ, for accountants and mechanisms that need one.
        unit: The column that names the person behind a row. By default every row is one person,
            and every guarantee says so; if a column has a name like patient_id, a `UnitWarning`
            and every guarantee name it.
        rows_per_unit: Contribution bound, with ``unit``: how many rows of one person count.
        groups_per_unit: The same for groups: in how many of a question one person counts.
        columns: Public facts, such as ``{"ward": {"in": ["north", "south"]}}`` or
            ``{"age": {"between": [0, 120]}}``.
        table: The table's name in SQL; by default the file's name without its ending.
        ledger: Where the budget is kept. By default a file beside the source, named after it, or
            memory only if the source is a data frame.
        accountant: "pure" (sums of ε), "zcdp" (with a δ), or "renyi-<order>".
        analyst: Who is asking. Each analyst has an account below the data set's, so that all of
            them together never exceed its budget. By default its own account is charged.
        purpose: What is asked for, where the policy has purposes, each with a budget of its own.
        share: The ε that this analyst may spend; by default as much as the data set has.
        snapshot: The name of this state of the rows; questions are answered once per snapshot.
        practice: Ask made-up rows that follow the declared facts, at no cost. No row is read.

    Returns:
        A `Gate`: ``gate.plan(sql, epsilon=...)`` is free, ``gate.sql(sql, epsilon=...)`` pays.
    """
    if isinstance(source, str | Path) and Path(source).suffix.lower() == ".toml":
        said = (epsilon, unit, rows_per_unit, groups_per_unit, columns, table, accountant, share)
        if any(term is not None for term in said) or fraction(delta) or snapshot != "1":
            raise SpecError(
                "The policy already states the budget, unit, caps, columns and shares.",
                fix="Give only the policy, analyst and ledger.",
                about="policy",
            )
        from noisegate.root.hosting import open_policy  # noqa: PLC0415 - only for policies
        from noisegate.sources.policy.policy import read_policy  # noqa: PLC0415

        return open_policy(
            read_policy(source), ledger=ledger, analyst=analyst, purpose=purpose, practice=practice
        )
    if purpose is not None:
        raise SpecError(
            "Purposes are declared in a policy.", fix="Leave out purpose.", about="purpose"
        )
    require_texts(table=table, unit=unit, accountant=accountant, analyst=analyst, snapshot=snapshot)
    engine = _engine_of(source)
    name = table or _name_of(source)
    if engine is not None and "/" in name:
        name = _name_of(name)
    domain = TableDomain(
        dataset=name,
        name=name,
        origin=_origin_of(source),
        unit=PrivacyUnit(column=unit),
        rows_per_unit_max=rows_per_unit,
        groups_per_unit_max=groups_per_unit,
        snapshot=snapshot,
    )
    if engine is not None:
        data = engine.table_in(source, table or "")
    else:
        data = source if isinstance(source, str | Path) else plain_frame(source)
    kinds = (engine.stored_kinds if engine else stored_kinds)({name: data})[name]
    domain = replace(domain, columns=_columns(domain, kinds, columns or {}))
    stored = engine.as_stored if engine else as_stored
    domain = _with_doubt(stored({name: data}, {name: domain}, {name: columns or {}})[name])
    rows = source_of({name: data}, {name: domain}, practice=practice, engine=engine)
    kept = practice or ledger is not None or not domain.origin or ledger_beside(source).is_file()
    if epsilon is None and not kept:  # before a ledger is made that would have no account
        raise _no_budget(name)
    book = book_of(ledger, None if domain.origin == "" else source, practice=practice)
    _require_own_ledger(book, domain, beside=ledger is None, named=table is not None)
    if practice and epsilon is None:
        epsilon = _PRACTICE
    budget = None if epsilon is None else ApproxDP(epsilon, delta)
    mine = [] if practice or not domain.origin else [_origin(source, name)]
    if engine is not None and not practice:
        mine = [Origin(place) for place in sorted(rows.lies_in(name))]
    open_root(
        book, name, str(domain.unit), budget=budget, accountant=accountant, origins=(mine, ())
    )
    account = open_analyst(book, name, analyst=analyst, share=share)
    rules = Rules(practice=practice, keys_delta=fraction(delta) / _KEYS_SHARE)
    return Gate(Curator(source=rows, tables={name: domain}, ledger=book, account=account), rules)


def ledger_beside(source: str | Path) -> Path:
    """Where the budget of a file, or of a policy that names no ledger, is kept."""
    return Path(f"{Path(source).resolve()}{LEDGER_SUFFIX}")


def source_of(
    data: Mapping[str, Any],
    tables: Mapping[str, TableDomain],
    *,
    practice: bool,
    engine: Engine | None = None,
) -> "Source":
    """The rows, where they are; made-up ones are always in the embedded engine."""
    opened = DuckDBSource if engine is None else engine.open_source
    if not practice:
        return opened(data, tables)
    from noisegate.steward.practice import practice_rows  # noqa: PLC0415 - only for practice

    public = {name: table for name, table in tables.items() if table.is_public}
    shown = {}
    if public:
        known = opened({name: data[name] for name in public}, public)
        shown = {name: known.public(name) for name in public}
    return DuckDBSource(practice_rows(tables, public=shown), tables)


def book_of(
    ledger: "str | Path | Ledger | None",
    source: "str | Path | None",
    *,
    practice: bool,
) -> Ledger:
    """The ledger that was named, one beside the source, or one in memory."""
    if practice:
        return open_ledger(":memory:")
    if isinstance(ledger, Ledger):
        return ledger
    if ledger is not None and not isinstance(ledger, str | Path):
        raise SpecError(
            "ledger is not a path.", fix='Use a file such as "ledger.db".', about="ledger"
        )
    if ledger is not None:
        return open_ledger(str(ledger))
    return open_ledger(":memory:" if source is None else str(ledger_beside(source)))


def protected_by(ledger: Ledger, dataset: str, units: Sequence[PrivacyUnit]) -> str:
    """Whom the data set's account protects, in words: one unit of any of its id spaces.

    The account pays for every question, whichever space it is about, so its sum holds for each
    unit of each space. One that was opened for fewer units, or for more, is the same account:
    tables may come and go. Where a unit became another one, or the first table has one that is
    new, what was paid earlier may say nothing about it, and the ledger refuses.
    """
    first, words = _naming(str(units[0])), sorted({str(unit) for unit in units})
    if dataset in ledger.accounts():
        known = ledger.balance(dataset).unit
        said = {_naming(each) for each in re.split(r"(?<=\)) or (?=one )", known)}
        now = {_naming(each) for each in words}
        if first in said and (said <= now or now <= said):
            return known
    return " or ".join(words)


def _naming(unit: str) -> str:
    """How units are told apart, without what they are called, which is for people."""
    how = unit.partition(" (")[2]
    return "row" if how.startswith("declared:") else how


def open_root(
    ledger: Ledger,
    dataset: str,
    unit: str,
    *,
    budget: ApproxDP | None,
    accountant: str | None,
    origins: Origins = NOWHERE,
) -> None:
    """The data set's own account: what all analysts together may learn from these tables."""
    known = ledger.balance(dataset) if dataset in ledger.accounts() else None
    if budget is None and known is None:
        raise _no_budget(dataset)
    terms = budget or (known.budget if known else ApproxDP(0))
    if not 0 < terms.epsilon <= EPSILON_MAX:
        raise SpecError(
            "The budget is out of range.", fix="epsilon must be above 0 and at most 10**6."
        )
    ledger.open_account(
        dataset,
        parent=None,
        accountant=accountant or (known.accountant if known and budget is None else "pure"),
        budget=terms,
        unit=unit,
        origins=origins[0],
        public=origins[1],
    )


def _no_budget(name: str) -> PolicyError:
    return PolicyError(
        f"{name!r} has no budget yet.",
        fix="Give epsilon, the budget of the data set (--budget on the command line).",
        about="budget",
    )


def _origin(source: str | Path, table: str) -> Origin:
    """Where the rows of a file are, as it is read: by the ending of the name that was given."""
    inside = plain(source, table)
    if isinstance(inside, Within):
        return origin_of(str(source), inside.table, inside.schema)
    return origin_of(str(source))


def open_analyst(
    ledger: Ledger,
    dataset: str,
    *,
    analyst: str | None,
    share: Number | ApproxDP | None,
    window: str | None = None,
    purpose: "tuple[str, ApproxDP] | None" = None,
) -> str:
    """The account that questions are asked from, below the data set's.

    That of an analyst for a purpose is below the purpose's, and below the analyst's own, which is
    what they may spend for all purposes together. The share of a ``window`` has an account of its
    own; that of a purpose is behind a slash.
    """
    own, _, theirs = (window or "").partition("/")
    root = ledger.balance(dataset)
    terms: Any = {"accountant": root.accountant, "unit": root.unit}
    named = None if purpose is None else account_name(dataset, f"for {purpose[0]}", theirs)
    if named is not None and purpose is not None:
        ledger.open_account(named, parent=dataset, budget=purpose[1], **terms)
    if analyst is None:
        if share is not None:
            raise SpecError(
                "A share needs an analyst.", fix="Give the analyst's name too.", about="share"
            )
        return named or dataset
    budget = share if isinstance(share, ApproxDP) else root.budget
    if share is not None and not isinstance(share, ApproxDP):
        budget = ApproxDP(share, root.budget.delta)
    whole = account_name(dataset, analyst, own)
    if share is not None or whole not in ledger.accounts():
        ledger.open_account(whole, parent=dataset, budget=budget, **terms)
    if named is None:
        return whole
    name = account_name(named, analyst, own)
    if name in ledger.accounts() and not ledger.balance(name).also:
        raise PolicyError(
            f"Account {name!r} is of a version that did not hold shares over all purposes.",
            fix="Give the purpose another name in the policy, and as its budget what is left of "
            "it (noisegate ledger show). What was spent stays charged to the data set.",
            about="older-purpose",
        )
    if share is not None or name not in ledger.accounts():
        ledger.open_account(name, parent=named, also=(whole,), budget=budget, **terms)
    return name


def account_name(above: str, name: str, window: str = "") -> str:
    """The name of an account below another, or of that of a window."""
    return f"{above}/{name} {window}" if window else f"{above}/{name}"


def _with_doubt(domain: TableDomain) -> TableDomain:
    """Warn where no unit was named and a column's name says whose the rows are. No row is read."""
    if domain.unit is None or domain.unit.column is not None:
        return domain
    named = [
        name
        for name, column in domain.columns.items()
        if person(name) and column.kind in (Kind.INTEGER, Kind.TEXT) and column.keys is None
    ]
    if not named:
        return domain
    found = replace(domain, doubted=named[0])
    warnings.warn(line(f"{domain.name!r}: {doubt_of(found)}."), UnitWarning, stacklevel=3)
    return found


def _require_own_ledger(ledger: Ledger, domain: TableDomain, *, beside: bool, named: bool) -> None:
    others = [name for name in ledger.accounts() if name != domain.dataset]
    if beside and others and domain.dataset not in ledger.accounts():
        raise PolicyError(
            f"The ledger beside this file already keeps the budget of {others[0]!r}.",
            fix="Use that name (table=...): a file has one budget.",
            about="other-name",
        )
    if ledger.durable and not domain.origin and not named:
        raise PolicyError(
            "A durable ledger cannot tell two data frames apart.",
            fix="Name the table: table='...'; and give a new snapshot when its rows change.",
            about="frame",
        )


def _engine_of(source: Any) -> Any:  # noqa: ANN401 - a module
    """The engine of an open session of Spark; none of files and frames."""
    if not (hasattr(source, "catalog") and hasattr(source, "sql") and hasattr(source, "conf")):
        return None
    from noisegate.sources.spark import facts  # noqa: PLC0415 - an extra

    return facts


def _origin_of(source: Any) -> str:  # noqa: ANN401 - any frame
    """The file that rows are read from, which is kept from being written; of a frame, nothing."""
    if not isinstance(source, str | Path):
        return ""
    if Path(source).is_dir():
        raise SourceError(f"{str(source)!r} is a folder.", fix="Give a data file or a policy.")
    keep(source, TABLE)
    return str(Path(source).resolve())


def _name_of(source: "str | Path | Any") -> str:  # noqa: ANN401
    return Path(source).stem if isinstance(source, str | Path) else "data"


def _columns(
    domain: TableDomain,
    stored: Mapping[str, Kind],
    terms: Mapping[str, Mapping[str, Any]],
) -> Mapping[str, Column]:
    """All columns that questions can use, with what is declared about them."""
    unit = () if domain.unit is None or domain.unit.column is None else (domain.unit.column,)
    if missing := [name for name in (*terms, *unit) if name not in stored]:
        raise PolicyError(
            f"{domain.name!r} has no column {missing[0]!r} of a supported type.",
            fix=f"Its columns are: {', '.join(stored)}.",
            about="column",
        )
    return MappingProxyType({
        name: Column.from_terms(name, terms.get(name, {}), stored=kind)
        for name, kind in stored.items()
    })  # fmt: skip
