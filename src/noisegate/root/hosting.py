"""The tables of a policy, opened once: a gate for each analyst, a service in front of them."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, final

from noisegate.curator.curator import Curator
from noisegate.desk.terms.rules import Rules
from noisegate.errors import NoisegateError, PolicyError, RequestConflict, UserError
from noisegate.files import POLICY, TABLE, keep
from noisegate.gate import Gate
from noisegate.ledger.account import Account, Balance
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.origin import lying_in, origins_of
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.privacy.guarantee import units_of
from noisegate.root.parts import (
    NOWHERE,
    Origins,
    account_name,
    book_of,
    open_analyst,
    open_root,
    protected_by,
    source_of,
)
from noisegate.sources.duckdb.files import Data, Within
from noisegate.sources.engines import engine_of
from noisegate.sources.policy.policy import UNNAMED, Policy
from noisegate.sources.policy.purposes import PURPOSE, Purpose, purpose_of
from noisegate.sources.policy.tables import domains
from noisegate.sources.source import Source


def open_policy(
    policy: Policy,
    *,
    ledger: str | Path | Ledger | None = None,
    analyst: str | None = None,
    purpose: str | None = None,
    practice: bool = False,
) -> Gate:
    """Open a gate in front of the tables of a policy."""
    return Hosted(policy, ledger=ledger, practice=practice).gate(analyst, purpose=purpose)


@final
class Hosted:
    """The tables of a policy, opened once, with its ledger: a gate for each analyst."""

    def __init__(
        self,
        policy: Policy,
        *,
        ledger: str | Path | Ledger | None = None,
        practice: bool = False,
    ) -> None:
        data, tables = tables_of(policy)
        keep(policy.file, POLICY)
        for name, where in data.items():
            if "://" not in tables[name].origin:
                keep(where.file if isinstance(where, Within) else str(where), TABLE)
        if all(table.is_public for table in tables.values()):
            raise PolicyError(
                "The policy has no private table.", fix="Public tables can be read without a gate."
            )
        self.policy, self.tables, self.practice = policy, tables, practice
        engine = engine_of(table.origin for table in tables.values())
        self._source = source_of(data, tables, practice=practice, engine=engine)
        self.ledger = self._book(ledger if ledger is not None else policy.ledger_url())
        self._read = dict[Any, Any]()  # by all gates of the ledger

    def _book(self, where: str | Path | Ledger) -> Ledger:
        """The ledger, with the data set's account."""
        policy, book = self.policy, book_of(where, None, practice=self.practice)
        open_root(
            book,
            policy.name,
            protected_by(book, policy.name, units_of(self.tables.values())),
            budget=policy.budget,
            accountant=policy.accountant,
            origins=NOWHERE if self.practice else _origins(self.tables, self._source),
        )
        return book

    def purpose(self, said: str | None) -> Purpose | None:
        """The purpose that was said, or that the policy takes then; practice has none."""
        return None if self.practice else purpose_of(self.policy.purposes, said)

    def window(self, analyst: str | None, purpose: str | None = None) -> str | None:
        """The time that an analyst's share is for now; refuses one whose last day is over.

        That of a purpose stands behind a slash, if it has one.
        """
        today = datetime.now(UTC).date()
        own = None if analyst is None else self._window(analyst, today)
        if (asked := self.purpose(purpose)) is None:
            return own
        asked.require(analyst, today)
        theirs = asked.window.label(today)
        return own if theirs is None else f"{own or ''}/{theirs}"

    def _window(self, analyst: str, today: date) -> str | None:
        if (found := self.policy.windows.get(analyst)) is None:
            return None
        found.require(analyst, today)
        return found.label(today)

    def share(self, analyst: str) -> list[Balance]:
        """What an analyst may spend for all purposes together now, and the data set's budget."""
        name, window = self.policy.name, self._window(analyst, datetime.now(UTC).date())
        account = account_name(name, analyst, window or "")
        if account not in self.ledger.accounts():
            share = self.policy.share_of(analyst)
            open_analyst(self.ledger, name, analyst=analyst, share=share, window=window)
        return self.ledger.balances(account)

    def open_shares(self) -> None:
        """Open the accounts that analysts have not got yet, in one go.

        One that cannot be opened is refused when it is asked from, and the others are opened then.
        """
        name, today = self.policy.name, datetime.now(UTC).date()
        root, known, new = self.ledger.balance(name), set(self.ledger.accounts()), []
        for analyst, share in self.policy.analysts.items():
            with suppress(UserError):  # the last day is over
                account = account_name(name, analyst, self._window(analyst, today) or "")
                if account not in known:
                    new.append(Account(
                        name=account, parent=name, accountant=root.accountant, budget=share,
                        unit=root.unit,
                    ))  # fmt: skip
        if new:
            with suppress(NoisegateError):
                self.ledger.open_accounts(new)

    def found(
        self,
        analyst: str,
        *,
        window: str | None,
        purpose: str | None = None,
        allowed: Collection[str] | None = None,
        request: str | None = None,
    ) -> Gate:
        """A gate that gives what an analyst asked in a ``window`` before, also one that is over.

        It finds what was settled there and charges nobody.
        """
        own, _, theirs = (window or "").partition("/")
        above = self.policy.name
        if (asked := self.purpose(purpose)) is not None:
            above = account_name(above, f"{PURPOSE}{asked.name}", theirs)
        account = account_name(above, analyst, own)
        if account not in self.ledger.accounts():
            raise RequestConflict(
                "This was not asked from an account that is known.",
                fix="Ask it as a new question, with a new key.",
                about="finding",
            )
        return self._gate(
            self.ledger, account, analyst, allowed=allowed, request=request, finding=True
        )

    def gate(
        self,
        analyst: str | None,
        *,
        allowed: Collection[str] | None = None,
        request: str | None = None,
        window: str | None = None,
        purpose: str | None = None,
    ) -> Gate:
        """The gate of an analyst, or that of the data set's own account; for practice a new budget.

        Args:
            analyst: One of the policy's, if it lists any.
            allowed: Optional capabilities; never one that the policy does not allow.
            request: A name for what is asked of this gate: where new draws are paid for, the same
                name draws and pays once, however often it is tried.
            window: That of a request which was made before now; by default that of today.
            purpose: One of the policy's, if it has any; by default the one that it says.
        """
        policy = self.policy
        share = None if analyst is None else policy.share_of(analyst)
        if analyst is None and policy.analysts and not self.practice:
            raise PolicyError(
                "This policy lists analysts, and no analyst was given.",
                fix=f"Say who is asking: analyst= one of {', '.join(policy.analysts)}.",
                about="analyst",
            )
        book = self._book(":memory:") if self.practice else self.ledger
        today, asked = self.window(analyst, purpose), self.purpose(purpose)
        account = open_analyst(
            book, policy.name, analyst=analyst, share=share, window=window or today,
            purpose=None if asked is None else (asked.name, asked.budget),
        )  # fmt: skip
        return self._gate(book, account, analyst, allowed=allowed, request=request)

    def _gate(
        self,
        book: Ledger,
        account: str,
        analyst: str | None,
        *,
        allowed: Collection[str] | None,
        request: str | None,
        finding: bool = False,
    ) -> Gate:
        policy = self.policy
        rules = Rules(
            epsilon=policy.default_epsilon,
            epsilon_max=policy.max_epsilon,
            keys_delta=policy.keys_delta,
            practice=self.practice,
            crowd=policy.crowd,
            state_named=policy.snapshot != UNNAMED,
            rows_max={n: t.rows_max for n, t in policy.tables.items() if t.rows_max is not None},
        )
        most = policy.allowed_of(analyst)
        curator = Curator(
            source=self._source, tables=self.tables, ledger=book, account=account,
            packages=policy.packages, allowed=most if allowed is None else most & set(allowed),
            request=request, finding=finding,
        )  # fmt: skip
        return Gate(curator, rules, read=self._read if book is self.ledger else None)


def tables_of(policy: Policy) -> tuple[dict[str, Data], dict[str, TableDomain]]:
    """Where the tables of a policy are, and what is public about them."""
    origins = {name: policy.origin(name) for name in policy.tables}
    engine = engine_of(origins.values())
    data = {name: engine.data_of(origin) for name, origin in origins.items()}

    def keys_of(table: str, column: str) -> tuple[Key, ...]:
        declared = policy.tables[table].columns.get(column, {}).get("type")
        return engine.public_keys(data[table], table, column, declared and Kind(declared))

    tables = domains(policy, stored=engine.stored_kinds(data), keys_of=keys_of, origins=origins)
    said = {name: table.columns for name, table in policy.tables.items()}
    tables = engine.as_stored(data, tables, said)
    engine.require_rows(data, tables)
    return data, {
        name: engine.as_held(data[name], table) if table.is_public else table
        for name, table in tables.items()
    }


def _origins(tables: Mapping[str, TableDomain], source: Source) -> Origins:
    private, public = (
        [
            origin
            for table in tables.values()
            if table.is_public == is_public
            for origin in (
                *origins_of(table.origin, table.name),
                *map(lying_in, sorted(source.lies_in(table.name))),
            )
        ]
        for is_public in (False, True)
    )
    return private, public
