"""What the gate of one table and the gates of a policy are made of: rows, a ledger, accounts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from noisegate.desk.terms.rules import EPSILON_MAX
from noisegate.errors import PolicyError, SpecError
from noisegate.exact import Number
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.open import open_ledger
from noisegate.ledger.origin import Origin
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.engines import Engine
from noisegate.sources.source import Source

Origins: TypeAlias = tuple[Sequence[Origin], Sequence[Origin]]  # of private and of public tables
LEDGER_SUFFIX: Final = ".ledger"
NOWHERE: Final[Origins] = ((), ())


def source_of(
    data: Mapping[str, Any],
    tables: Mapping[str, TableDomain],
    *,
    practice: bool,
    engine: Engine | None = None,
) -> Source:
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


def ledger_beside(source: str | Path) -> Path:
    """Where the budget of a file, or of a policy that names no ledger, is kept."""
    return Path(f"{Path(source).resolve()}{LEDGER_SUFFIX}")


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
        raise no_budget(dataset)
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


def no_budget(name: str) -> PolicyError:
    """The refusal of a data set that has none."""
    return PolicyError(
        f"{name!r} has no budget yet.",
        fix="Give epsilon, the budget of the data set (--budget on the command line).",
        about="budget",
    )


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
