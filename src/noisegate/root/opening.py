"""A policy, or a table and a budget, become a gate: source, ledger and bits meet here alone."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from noisegate.curator.curator import Curator
from noisegate.desk.terms.rules import Rules
from noisegate.desk.terms.terms import require_texts
from noisegate.errors import PolicyError, SourceError, SpecError, UnitWarning
from noisegate.exact import Number, fraction
from noisegate.files import TABLE, keep
from noisegate.frozen import replace
from noisegate.gate import Gate
from noisegate.inert import line
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.origin import Origin, origin_of
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.guarantee import doubt_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.root.parts import (
    book_of,
    ledger_beside,
    no_budget,
    open_analyst,
    open_root,
    source_of,
)
from noisegate.sources.duckdb.facts import as_stored, stored_kinds
from noisegate.sources.duckdb.files import Within, plain, plain_frame
from noisegate.sources.policy.names import person

_PRACTICE: Final = 1000  # the budget of made-up rows, where none is given
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
        raise no_budget(name)
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


def _origin(source: str | Path, table: str) -> Origin:
    """Where the rows of a file are, as it is read: by the ending of the name that was given."""
    inside = plain(source, table)
    if isinstance(inside, Within):
        return origin_of(str(source), inside.table, inside.schema)
    return origin_of(str(source))


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
