"""The composition root: a policy, or a table and a budget, become a gate; keys are handed out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, final
from uuid import uuid4

from noisegate.curator.curator import Curator
from noisegate.errors import PolicyError, SpecError
from noisegate.exact import Number, fraction
from noisegate.gate import Gate
from noisegate.ledger.open import open_ledger
from noisegate.ledger.store import Ledger
from noisegate.privacy.domain import Column, Key, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.query.run import Rules
from noisegate.sources.duckdb import DuckDBSource, listed_columns, public_keys, stored_kinds
from noisegate.sources.duckdb_files import plain_frame

if TYPE_CHECKING:
    import pyarrow as pa

    from noisegate.learners.matrix import Matrix
    from noisegate.sources.policy import Policy
    from noisegate.sources.policy_check import Finding

LEDGER_SUFFIX: Final = ".ledger"
_EPSILON_MAX: Final = 10**6
_PRACTICE: Final = 1000  # the budget of made-up rows, where none is given
_MEMORY: Final = "memory"
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
    share: Number | None = None,
    snapshot: str = "1",
    practice: bool = False,
) -> Gate:
    """Open a gate in front of the tables of a policy, or in front of one table.

    Args:
        source: A policy (a TOML file), which says all the rest but who asks; or a CSV, Parquet or
            DuckDB file, or a pandas, Polars or Arrow table.
        epsilon: The budget of the whole data set. May be left out where the ledger knows it.
        delta: The budget's δ, for accountants and mechanisms that need one.
        unit: The column that names the person behind a row. Left out, every row is one person,
            and every guarantee says so.
        rows_per_unit: With ``unit``, how many rows of one person count.
        groups_per_unit: With ``unit``, in how many groups of a question one person counts.
        columns: Public facts, such as ``{"ward": {"in": ["north", "south"]}}`` or
            ``{"age": {"between": [0, 120]}}``.
        table: The table's name in SQL; by default the file's name without its ending.
        ledger: Where the budget is kept. By default a file beside the source, named after it, or
            memory alone where the source is a frame.
        accountant: "pure" (sums of ε), "zcdp" (with a δ), or "renyi-<order>".
        analyst: Who asks. Each analyst has an account below the data set's, so that all of them
            together never exceed its budget. Left out, questions are charged to it directly.
        share: The ε that this analyst may spend; by default as much as the data set has.
        snapshot: The name of this state of the rows; questions are answered once per snapshot.
        practice: Ask made-up rows that keep the declared facts, free of charge. No row is read.

    Returns:
        A `Gate`: ``gate.plan(sql, epsilon=...)`` is free, ``gate.sql(sql, epsilon=...)`` pays.
    """
    if isinstance(source, str | Path) and Path(source).suffix.lower() == ".toml":
        said = (epsilon, unit, rows_per_unit, groups_per_unit, columns, table, accountant, share)
        if any(term is not None for term in said) or fraction(delta) or snapshot != "1":
            raise SpecError(
                "The policy says budget, unit, caps, columns and shares already.",
                fix="Give only the policy, analyst and ledger.",
            )
        from noisegate.sources.policy import read_policy  # noqa: PLC0415 - only for policies

        return open_policy(read_policy(source), ledger=ledger, analyst=analyst, practice=practice)
    name = table or _name_of(source)
    domain = TableDomain(
        dataset=name,
        name=name,
        origin=str(Path(source).resolve()) if isinstance(source, str | Path) else "",
        unit=PrivacyUnit(column=unit),
        rows_per_unit_max=rows_per_unit,
        groups_per_unit_max=groups_per_unit,
        snapshot=snapshot,
    )
    data = source if isinstance(source, str | Path) else plain_frame(source)
    domain = replace(domain, columns=_columns(domain, data, columns or {}))
    rows = _source({name: data}, {name: domain}, practice=practice)
    if epsilon is None and not practice and ledger is None and domain.origin:
        _require_ledger(ledger_beside(source), name)
    book = _book(ledger, None if domain.origin == "" else source, practice=practice)
    _require_own_ledger(book, domain, beside=ledger is None, named=table is not None)
    if practice and epsilon is None:
        epsilon = _PRACTICE
    budget = None if epsilon is None else ApproxDP(epsilon, delta)
    _open_root(book, domain, budget=budget, accountant=accountant)
    account = _open_analyst(book, domain, analyst=analyst, share=share)
    rules = Rules(practice=practice, keys_delta=fraction(delta) / _KEYS_SHARE)
    return Gate(Curator(source=rows, tables={name: domain}, ledger=book, account=account), rules)


@final
class Memory:
    """A budget for rows that are given as arrays, to estimators of scikit-learn's kind.

    Every fit on such rows is charged to one account, whichever part of the rows it is given, so
    that folds and searches add up. Each row is one unit. Made by `noisegate.memory`.
    """

    def __init__(
        self,
        epsilon: Number,
        delta: Number,
        accountant: str | None,
        ledger: "str | Path | Ledger | None",
    ) -> None:
        self._epsilon, self._delta, self._accountant = epsilon, delta, accountant
        self._book = _book(ledger, None, practice=False)
        budget = ApproxDP(epsilon, delta)
        _open_root(self._book, _in_memory("first"), budget=budget, accountant=accountant)

    def matrix(
        self,
        X: Any,  # noqa: ANN401, N803 - scikit-learn's name; an array or a frame
        y: Any = None,  # noqa: ANN401
        *,
        bounds: Any,  # noqa: ANN401 - (low, high), or such for each column
        classes: Sequence[Key] | None = None,
        target_bounds: Any = None,  # noqa: ANN401 - (low, high)
    ) -> "Matrix":
        """A handle of these rows. Bounds and classes are said, never read from the rows."""
        from noisegate.learners.arrays import facts_of, frame_of  # noqa: PLC0415 - learners only

        frame = frame_of(X, y, classes=classes)
        facts = facts_of(frame, bounds=bounds, classes=classes, target_bounds=target_bounds)
        gate = self._open(frame, facts)
        target = None if y is None else frame.column_names[-1]
        columns = frame.column_names[: len(frame.column_names) - (target is not None)]
        return gate.matrix(_MEMORY, columns, target=target)

    def average(self, values: Any, *, bounds: tuple[float, float], epsilon: Number) -> float:  # noqa: ANN401 - an array
        """A noisy average of numbers, one of each row: for scores of models on private rows."""
        from noisegate.learners.arrays import facts_of, frame_of  # noqa: PLC0415 - learners only

        frame = frame_of(values[:, None])
        gate = self._open(frame, facts_of(frame, bounds=bounds))
        answer = gate.sql(f"SELECT AVG(x0) AS a FROM {_MEMORY}", epsilon=epsilon)  # noqa: S608
        return float(answer.to_arrow().column("a")[0].as_py())

    def _open(self, frame: "pa.Table", facts: Mapping[str, Mapping[str, Any]]) -> Gate:
        """A gate of its own for these rows, below the one budget."""
        return open(
            frame, epsilon=self._epsilon, delta=self._delta, accountant=self._accountant,
            columns=facts, table=_MEMORY, ledger=self._book, snapshot=uuid4().hex,
        )  # fmt: skip

    @property
    def spent(self) -> ApproxDP:
        """What all fits have spent together."""
        return self._book.balance(_MEMORY).spent

    @property
    def remaining(self) -> ApproxDP:
        """What is left for further ones."""
        return self._book.balance(_MEMORY).remaining

    @property
    def ledger(self) -> Ledger:
        """The ledger behind it."""
        return self._book

    def __deepcopy__(self, memo: dict[int, Any]) -> "Memory":
        """The same: an estimator's clones share its budget."""
        return self

    def __reduce__(self) -> tuple[type["_Elsewhere"], tuple[()]]:
        """A stored estimator still predicts, but its budget stays here."""
        return _Elsewhere, ()

    def __repr__(self) -> str:
        return f"<Memory: spent {self.spent}, left {self.remaining:left}>"


@final
class _Elsewhere:
    """What is left of a budget in another process: nothing can be charged to it."""

    def matrix(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Refuse."""
        raise SpecError(
            "A budget in memory cannot be used from another process or a file.",
            fix="Use n_jobs=1 or threads; give a loaded estimator a memory of its own.",
        )

    average = matrix


def memory(
    epsilon: Number,
    *,
    delta: Number = 0,
    accountant: str | None = None,
    ledger: "str | Path | Ledger | None" = None,
) -> Memory:
    """A budget for arrays: ``KMeans(epsilon=1, bounds=(0, 1), memory=memory(3)).fit(X)``.

    Args:
        epsilon: The budget of all fits together.
        delta: The budget's δ, for accountants that need one.
        accountant: "pure" (sums of ε), or "zcdp" (with a δ): Gaussian noise.
        ledger: Where the budget is kept; by default in memory alone.
    """
    return Memory(epsilon, delta, accountant, ledger)


def open_policy(
    policy: "Policy",
    *,
    ledger: "str | Path | Ledger | None" = None,
    analyst: str | None = None,
    practice: bool = False,
) -> Gate:
    """Open a gate in front of the tables of a policy."""
    data, tables = _tables(policy)
    first = next((table for table in tables.values() if not table.is_public), None)
    if first is None:
        raise PolicyError("No table is private.", fix="Read public tables without a gate.")
    rows = _source(data, tables, practice=practice)
    book = _book(ledger if ledger is not None else policy.ledger_url(), None, practice=practice)
    _open_root(book, first, budget=policy.budget, accountant=policy.accountant)
    share = None if analyst is None else policy.share_of(analyst)
    if analyst is None and policy.analysts and not practice:
        raise PolicyError(
            "Nobody is said to ask.", fix=f"Give analyst, one of: {', '.join(policy.analysts)}."
        )
    account = _open_analyst(book, first, analyst=analyst, share=share)
    rules = Rules(
        epsilon=policy.default_epsilon,
        epsilon_max=policy.max_epsilon,
        keys_delta=policy.keys_delta,
        practice=practice,
        crowd=policy.crowd,
    )
    return Gate(Curator(source=rows, tables=tables, ledger=book, account=account), rules)


@final
class Rehearsal:
    """Made-up rows behind a real door, as often as wanted: for audits. Nothing of ``gate`` is read.

    The tables have the same declared facts, the same rules and the same kind of accountant; the
    budget is as large as any, in memory. The engine is asked each question once, because made-up
    rows do not change; all else happens anew each time.
    """

    def __init__(self, gate: Gate, rows: "Mapping[str, pa.Table]") -> None:
        from noisegate.sources.remembered import Remembered  # noqa: PLC0415 - only for audits

        self._tables, self._rules = gate.tables, replace(gate.rules, practice=True)
        self._accountant = gate.ledger.balance(gate.door.dataset).accountant
        self._source = Remembered(DuckDBSource(rows, self._tables))

    def gate(self, *, max_epsilon: bool = True) -> Gate:
        """A gate with a fresh ledger; without ``max_epsilon`` also for dear questions."""
        first = next(table for table in self._tables.values() if not table.is_public)
        book, budget = open_ledger(":memory:"), ApproxDP(_EPSILON_MAX, Fraction(1, 2))
        _open_root(book, first, budget=budget, accountant=self._accountant)
        rules = self._rules if max_epsilon else replace(self._rules, epsilon_max=None)
        door = Curator(source=self._source, tables=self._tables, ledger=book, account=first.dataset)
        return Gate(door, rules)


def made_up_rows(gate: Gate, *, rows: int = 1000) -> "dict[str, pa.Table]":
    """Rows that keep the declared facts of all tables; public tables as they are.

    No row of a private table is read.
    """
    from noisegate.sources.practice import practice_rows  # noqa: PLC0415 - only for audits

    public = {name: gate.door.public(name) for name, each in gate.tables.items() if each.is_public}
    return practice_rows(gate.tables, public=public, rows=rows)


def _tables(policy: "Policy") -> tuple[dict[str, str], dict[str, TableDomain]]:
    """Where the tables of a policy are, and what is public about them."""
    from noisegate.sources.policy_tables import domains  # noqa: PLC0415 - only for policies

    origins = {name: policy.origin(name) for name in policy.tables}
    data = {name: origin.partition("#")[0] for name, origin in origins.items()}

    def keys_of(table: str, column: str) -> tuple[Key, ...]:
        return public_keys(data[table], table, column)

    tables = domains(policy, stored=stored_kinds(data), keys_of=keys_of, origins=origins)
    return data, {
        name: replace(table, columns=listed_columns(data[name], table))
        if table.is_public
        else table
        for name, table in tables.items()
    }


def ledger_beside(source: str | Path) -> Path:
    """Where the budget of a file, or of a policy that names no ledger, is kept."""
    return Path(f"{Path(source).resolve()}{LEDGER_SUFFIX}")


def _source(
    data: Mapping[str, Any], tables: Mapping[str, TableDomain], *, practice: bool
) -> DuckDBSource:
    if not practice:
        return DuckDBSource(data, tables)
    from noisegate.sources.practice import practice_rows  # noqa: PLC0415 - only for practice

    public = {name: table for name, table in tables.items() if table.is_public}
    known = DuckDBSource({name: data[name] for name in public}, public)
    twins = practice_rows(tables, public={name: known.public(name) for name in public})
    return DuckDBSource(twins, tables)


def _book(
    ledger: "str | Path | Ledger | None",
    source: "str | Path | None",
    *,
    practice: bool,
) -> Ledger:
    if practice:
        return open_ledger(":memory:")
    if isinstance(ledger, Ledger):
        return ledger
    if ledger is not None:
        return open_ledger(str(ledger))
    return open_ledger(":memory:" if source is None else str(ledger_beside(source)))


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
    ledger: Ledger, domain: TableDomain, *, analyst: str | None, share: Number | ApproxDP | None
) -> str:
    """The account that questions are asked from, below the data set's."""
    if analyst is None:
        if share is not None:
            raise SpecError("A share belongs to an analyst.", fix="Give the analyst's name too.")
        return domain.dataset
    root, name = ledger.balance(domain.dataset), f"{domain.dataset}/{analyst}"
    if share is None and name in ledger.accounts():
        return name
    budget = share if isinstance(share, ApproxDP) else root.budget
    if share is not None and not isinstance(share, ApproxDP):
        budget = ApproxDP(share, root.budget.delta)
    ledger.open_account(
        name, parent=domain.dataset, accountant=root.accountant, budget=budget, unit=root.unit
    )
    return name


def _require_ledger(file: Path, name: str) -> None:
    """Refuse before a ledger is made that would have no account."""
    if not file.is_file():
        raise PolicyError(
            f"{name!r} has no budget yet.",
            fix="Give epsilon, the budget of the data set (--budget on the command line).",
        )


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


def _in_memory(snapshot: str) -> TableDomain:
    """Rows of an array: each is one unit."""
    unit = PrivacyUnit(column=None)
    return TableDomain(dataset=_MEMORY, name=_MEMORY, unit=unit, snapshot=snapshot)


def _name_of(source: "str | Path | Any") -> str:  # noqa: ANN401
    return Path(source).stem if isinstance(source, str | Path) else "data"


def _columns(
    domain: TableDomain,
    data: Any,  # noqa: ANN401 - a file or a frame
    terms: Mapping[str, Mapping[str, Any]],
) -> Mapping[str, Column]:
    """All columns that questions can use, with what is declared about them."""
    stored = stored_kinds({domain.name: data})[domain.name]
    unit = () if domain.unit is None or domain.unit.column is None else (domain.unit.column,)
    if missing := [name for name in (*terms, *unit) if name not in stored]:
        raise PolicyError(
            f"{domain.name!r} has no column {missing[0]!r} of a type that questions can use.",
            fix=f"Its columns are: {', '.join(stored)}.",
        )
    return MappingProxyType({
        name: Column.from_terms(name, terms.get(name, {}), stored=kind)
        for name, kind in stored.items()
    })  # fmt: skip


# what stewards do with a policy; the command line reaches the policy room through here


def draft_policy(files: Sequence[str | Path], *, name: str = "dataset") -> str:
    """A policy to be filled in, from the names and types of the columns alone; no row is read."""
    from noisegate.sources.policy_draft import draft  # noqa: PLC0415 - stewards only

    paths = {Path(file).stem: Path(file) for file in files}
    if len(paths) < len(files):
        raise SpecError("Two files have the same name.", fix="Rename one: it names its table.")
    sources = {table: str(path) for table, path in paths.items()}
    return draft(stored_kinds(paths), sources=sources, name=name)


def check_policy(file: str | Path) -> "list[Finding]":
    """What is wrong or costly in a policy, the gravest first. Reads no row of a private table."""
    from noisegate.accounting.calibrate import geometric_error  # noqa: PLC0415 - stewards only
    from noisegate.sources.policy import read_policy  # noqa: PLC0415
    from noisegate.sources.policy_check import check  # noqa: PLC0415

    policy = read_policy(file)
    _, tables = _tables(policy)
    return check(policy, tables, error=lambda scale: geometric_error(scale, confidence="0.95"))


def policy_page(file: str | Path) -> str:
    """A policy as a page for people, in Markdown."""
    from noisegate.sources.policy import read_policy  # noqa: PLC0415 - stewards only
    from noisegate.sources.policy_page import page  # noqa: PLC0415

    return page(read_policy(file))


def policy_schema() -> Mapping[str, Any]:
    """The JSON Schema of a policy, for editors."""
    from noisegate.sources.policy_form import schema  # noqa: PLC0415 - stewards only

    return schema()
