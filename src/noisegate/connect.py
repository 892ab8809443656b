"""The composition root: a source, a unit and a budget become a gate; keys are handed out here."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from noisegate.curator.curator import Curator
from noisegate.errors import PolicyError, SpecError, Unsupported
from noisegate.exact import Number
from noisegate.ledger.open import open_ledger
from noisegate.ledger.store import Ledger
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.query.gate import Gate
from noisegate.sources.duckdb import DuckDBSource

LEDGER_SUFFIX: Final = ".ledger"
_EPSILON_MAX: Final = 10**6


def open(  # noqa: A001, PLR0913 - read as noisegate.open; each argument is a choice of the steward
    source: "str | Path | Any",  # noqa: ANN401 - any frame
    *,
    epsilon: Number | None = None,
    delta: Number = 0,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    table: str | None = None,
    ledger: "str | Path | Ledger | None" = None,
    accountant: str | None = None,
    analyst: str | None = None,
    share: Number | None = None,
    snapshot: str = "1",
) -> Gate:
    """Open a gate in front of one table.

    Args:
        source: A CSV or Parquet file, or a pandas, Polars or Arrow table.
        epsilon: The budget of the whole data set. May be left out where the ledger knows it.
        delta: The budget's δ, for accountants and mechanisms that need one.
        unit: The column that names the person behind a row. Left out, every row is one person,
            and every guarantee says so.
        rows_per_unit: With ``unit``, how many rows of one person count.
        columns: Public facts, such as ``{"ward": {"in": ["north", "south"]}}``.
        table: The table's name in SQL; by default the file's name without its ending.
        ledger: Where the budget is kept. By default a file beside the source, named after it, or
            memory alone where the source is a frame.
        accountant: "pure" (sums of ε), "zcdp" (with a δ), or "renyi-<order>".
        analyst: Who asks. Each analyst has an account below the data set's, so that all of them
            together never exceed its budget. Left out, questions are charged to it directly.
        share: The ε that this analyst may spend; by default as much as the data set has.
        snapshot: The name of this state of the rows; questions are answered once per snapshot.

    Returns:
        A `Gate`: ``gate.plan(sql, epsilon=...)`` is free, ``gate.sql(sql, epsilon=...)`` pays.
    """
    if isinstance(source, str | Path) and Path(source).suffix == ".toml":
        raise Unsupported(
            "Policy files are not read yet.", fix="Give the data file, epsilon, unit and columns."
        )
    name = table or _name_of(source)
    domain = TableDomain(
        dataset=name,
        name=name,
        origin=str(Path(source).resolve()) if isinstance(source, str | Path) else "",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType(_columns(columns or {})),
        rows_per_unit_max=rows_per_unit,
        snapshot=snapshot,
    )
    rows = DuckDBSource(source, table=name, used=_used(domain))
    _require_columns(domain, rows.columns())
    book = ledger if isinstance(ledger, Ledger) else open_ledger(_where(source, ledger))
    _require_own_ledger(book, domain, beside=ledger is None, named=table is not None)
    budget = None if epsilon is None else ApproxDP(epsilon, delta)
    _open_root(book, domain, budget=budget, accountant=accountant)
    account = _open_analyst(book, domain, analyst=analyst, share=share)
    return Gate(Curator(source=rows, table=domain, ledger=book, account=account))


def ledger_beside(source: str | Path) -> Path:
    """Where the budget of a file is kept unless said otherwise."""
    return Path(f"{Path(source).resolve()}{LEDGER_SUFFIX}")


def _open_root(
    ledger: Ledger, domain: TableDomain, *, budget: ApproxDP | None, accountant: str | None
) -> None:
    """The data set's own account: what all analysts together may learn."""
    known = ledger.balance(domain.dataset) if domain.dataset in ledger.accounts() else None
    if budget is None and known is None:
        raise PolicyError(
            f"{domain.dataset!r} has no budget yet.",
            fix="Give epsilon, the budget of the data set (--budget on the command line).",
        )
    terms = budget or (known.budget if known else ApproxDP(0))
    if not 0 < terms.epsilon <= _EPSILON_MAX:
        raise SpecError("The budget is no budget.", fix="Use an epsilon from above 0 to 10**6.")
    ledger.open_account(
        domain.dataset,
        parent=None,
        accountant=accountant or (known.accountant if known and budget is None else "pure"),
        budget=terms,
        unit=str(domain.unit),
    )


def _open_analyst(
    ledger: Ledger, domain: TableDomain, *, analyst: str | None, share: Number | None
) -> str:
    """The account that questions are asked from, below the data set's."""
    if analyst is None:
        if share is not None:
            raise SpecError("A share belongs to an analyst.", fix="Give the analyst's name too.")
        return domain.dataset
    root, name = ledger.balance(domain.dataset), f"{domain.dataset}/{analyst}"
    if share is None and name in ledger.accounts():
        return name
    budget = root.budget if share is None else ApproxDP(share, root.budget.delta)
    ledger.open_account(
        name, parent=domain.dataset, accountant=root.accountant, budget=budget, unit=root.unit
    )
    return name


def _require_own_ledger(ledger: Ledger, domain: TableDomain, *, beside: bool, named: bool) -> None:
    others = [name for name in ledger.accounts() if name != domain.dataset]
    if beside and others and domain.dataset not in ledger.accounts():
        raise PolicyError(
            f"The ledger beside this file already keeps the budget of {others[0]!r}.",
            fix="Use that name (table=...): one file has one budget.",
        )
    if ledger.durable and not domain.origin and not named:
        raise PolicyError(
            "A durable ledger cannot tell one frame from another.",
            fix="Name the table: table='...', and a new snapshot when its rows change.",
        )


def _where(source: "str | Path | Any", ledger: "str | Path | None") -> str:  # noqa: ANN401
    if ledger is not None:
        return str(ledger)
    return str(ledger_beside(source)) if isinstance(source, str | Path) else ":memory:"


def _name_of(source: "str | Path | Any") -> str:  # noqa: ANN401
    return Path(source).stem if isinstance(source, str | Path) else "data"


def _columns(terms: Mapping[str, Mapping[str, Any]]) -> dict[str, Column]:
    return {name: Column.from_terms(name, facts) for name, facts in terms.items()}


def _used(domain: TableDomain) -> list[str]:
    """The columns that questions look at: the unit's, and those with declared keys."""
    keyed = [name for name, column in domain.columns.items() if column.keys is not None]
    return [*keyed, *([domain.unit.column] if domain.unit.column else [])]


def _require_columns(domain: TableDomain, present: tuple[str, ...]) -> None:
    if missing := [name for name in (*domain.columns, *_used(domain)) if name not in present]:
        raise PolicyError(
            f"{domain.name!r} has no column {missing[0]!r}.",
            fix=f"Its columns are: {', '.join(present)}.",
        )
