"""The policy file: a data set's tables, whose rows they hold, its budget and its analysts.

Read here, and checked against itself. `tables.domains` then checks it against what is
stored and makes the facts that questions are read with. No private row is looked at in either.
"""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.errors import NoisegateError, PolicyError
from noisegate.exact import fraction
from noisegate.files import place_of
from noisegate.frozen import dataclass, field
from noisegate.privacy.capability import CAPABILITIES, MEANINGS, OPT_IN
from noisegate.privacy.domain import Step, require_plain
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.policy.columns import column_of
from noisegate.sources.policy.form import nearest, require_form
from noisegate.sources.policy.names import whose
from noisegate.sources.policy.purposes import Purpose, purposes_of
from noisegate.sources.policy.steward import STEWARD, steward_of
from noisegate.sources.policy.windows import Window, windows_of

LEDGER_SUFFIX: Final = ".ledger"
FILE_KINDS: Final = (".parquet", ".csv", ".tsv")
DATABASE_KINDS: Final = (".duckdb", ".ddb", ".db")
RESERVED: Final = "noisegate_"  # released tables are called so
UNNAMED: Final = "1"  # a state of rows that the policy does not name
_KEYS_DELTA_SHARE: Final = Fraction(1, 100)
_SIZE_MAX: Final = 1 << 24
_FOR: Final = {  # what a key of a table has a meaning for
    **dict.fromkeys(("rows_per_unit", "rows_per_unit_holds", "groups_per_unit"), ("unit",)),
    "key": ("public",),
    "trusted_view": ("unit", "every_row_is_one_person"),
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TablePolicy:
    """A table as declared. ``unit`` None: public, or every row is one person.

    ``ids`` is the id space as declared; `Policy.space` says which one it is where nothing was.
    ``columns`` are terms such as ``{"between": [0, 120]}``; what ``type`` they leave open is up to
    what is stored.
    """

    name: str
    public: bool
    unit: str | None = None
    path: tuple[Step, ...] = ()
    ids: str | None = None
    source: str | None = None
    trusted_view: bool = False
    rows_per_unit: int | None = None
    rows_per_unit_holds: bool = False
    groups_per_unit: int | None = None
    rows_max: int | None = None
    key: tuple[str, ...] = ()
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def every_row_is_one_person(self) -> bool:
        """Whether this was said of a private table."""
        return not self.public and self.unit is None

    @property
    def end(self) -> str:
        """The table that the unit's column stands in."""
        return self.path[-1].table if self.path else self.name


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A data set as its steward declares it. ``file`` is where it was read from."""

    name: str
    file: Path
    budget: ApproxDP
    tables: Mapping[str, TablePolicy]
    protects: str = "person"
    accountant: str = "pure"
    source: str | None = None
    snapshot: str = UNNAMED
    ledger: str | None = None
    default_epsilon: Fraction | None = None
    max_epsilon: Fraction | None = None
    keys_delta: Fraction = Fraction(0)
    crowd: tuple[Fraction, Fraction] | None = None  # probability and δ of a question about crowds
    analysts: Mapping[str, ApproxDP] = field(default_factory=lambda: MappingProxyType({}))
    steward: ApproxDP | None = None  # of the budget, for looks of the steward's own
    windows: Mapping[str, Window] = field(default_factory=lambda: MappingProxyType({}))
    purposes: Mapping[str, Purpose] = field(default_factory=lambda: MappingProxyType({}))
    allowed: frozenset[str] = frozenset(CAPABILITIES)  # optional capabilities, of anybody
    allowed_to: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    packages: tuple[str, ...] | None = None  # that programs may import; None: the usual ones

    def ledger_url(self) -> str:
        """Where the budget is kept: as said, else beside the policy."""
        if self.ledger is None:
            return f"{self.file.resolve()}{LEDGER_SUFFIX}"
        return self._located(self.ledger)

    def origin(self, table: str) -> str:
        """Where a table is: the path of a file, or ``DATABASE#table`` in a DuckDB file or URL."""
        own = self.tables[table].source
        if own is not None:
            return self._located(own)
        where = self._located(self.source or ".")
        if place_of(where)[1] is not None:
            raise PolicyError(
                f"source: {self.source!r} names one table, but applies to all of them.",
                fix=f"Name the database alone, or this source under [tables.{table}].",
                about="source",
            )
        if "://" in where or Path(where).suffix.lower() in DATABASE_KINDS:
            return f"{where}#{table}"
        found = [
            str(file) for kind in FILE_KINDS if (file := Path(where) / f"{table}{kind}").is_file()
        ]
        if len(found) != 1:
            names = " or ".join(f"{table}{kind}" for kind in FILE_KINDS)
            raise PolicyError(
                f"tables.{table}: the folder {self.source or '.'!r} has {len(found) or 'no'} files "
                "for this table.",
                fix=f"Put {names} there, or name the file: source = '...' under the table.",
                about="files",
            )
        return found[0]

    def space(self, table: str) -> str | None:
        """The id space of a table: which tables name the same people.

        That of the table where the unit's column stands: as declared, else the column's name if it
        says whose ids they are (patient_id), else of that table alone (patients.id). None: its rows
        have no ids.
        """
        found = self.tables[table]
        end = self.tables[found.end]
        if end.unit is None:
            return None
        return end.ids or (end.unit.lower() if whose(end.unit) else f"{end.name}.{end.unit}")

    def spaces(self) -> dict[str, list[TablePolicy]]:
        """The tables of each id space."""
        found: dict[str, list[TablePolicy]] = {}
        for name, table in self.tables.items():
            if (space := self.space(name)) is not None:
                found.setdefault(space, []).append(table)
        return found

    def noun(self, table: str) -> str:
        """What to call a unit of the table: where there are several id spaces, by its own."""
        found = self.tables[self.tables[table].end]
        if found.unit is None or len(self.spaces()) < 2:
            return self.protects
        return found.ids or whose(found.unit) or "person"

    def share_of(self, analyst: str) -> ApproxDP:
        """What an analyst may spend. Where analysts are listed, nobody else may ask."""
        if analyst == STEWARD and self.steward is not None:
            return self.steward
        if not self.analysts:
            return self.budget
        if analyst not in self.analysts:
            raise PolicyError(
                f"analysts: {analyst!r} has no share of {self.name!r}.",
                fix=f"Ask the steward for one. These have: {', '.join(self.analysts)}.",
                about="share",
            )
        return self.analysts[analyst]

    def allowed_of(self, analyst: str | None) -> frozenset[str]:
        """The optional capabilities of an analyst: never more than the data set allows."""
        if analyst is None:
            return self.allowed
        return self.allowed & self.allowed_to.get(analyst, self.allowed)

    def _located(self, where: str) -> str:
        if "://" in where or where == ":memory:":
            return where
        path, inside = place_of(where)
        file = (self.file.parent / path).resolve()
        return str(file) if inside is None else f"{file}#{inside}"


def read_policy(path: str | Path) -> Policy:
    """A policy from its TOML file.

    Raises:
        PolicyError: With the place in the file (such as ``tables.visits.columns.age``), what is
            wrong there, and what to write instead.
    """
    file = Path(path)
    try:
        small = file.is_file() and file.stat().st_size <= _SIZE_MAX
        text = file.read_text(encoding="utf-8") if small else None
    except (OSError, ValueError):  # no UTF-8 is a ValueError, as is a NUL in its name
        text = None
    if text is None:
        raise PolicyError(
            f"{file.name!r} cannot be read.", fix="Give a policy, a TOML file.", about="file"
        )
    return read_text(file, text)


def read_text(file: Path, text: str) -> Policy:
    """The same of its text, which may not be in the file yet."""
    problem = None
    try:
        terms = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        problem = f"{file.name} is not valid TOML: {error}."
    except (ArithmeticError, ValueError, RecursionError):
        problem = f"{file.name} is not a policy: a number or a list in it is far too large."
    if problem is not None:
        raise PolicyError(
            problem, fix="Put strings in quotes, and give each key once.", about="toml"
        )
    try:
        require_form(terms)
        return _policy(file, terms)
    except NoisegateError as error:
        refusal = PolicyError(f"{file.name}: {error.problem}", fix=error.fix, about=error.about)
    raise refusal


def _policy(file: Path, terms: Mapping[str, Any]) -> Policy:
    money, asked, shares = terms["budget"], terms.get("questions", {}), terms.get("analysts", {})
    budget = ApproxDP(money["epsilon"], money.get("delta", 0))
    tables = {name: _table(name, facts) for name, facts in terms["tables"].items()}
    analysts = {name: _share(share, budget) for name, share in shares.items()}
    _require_apart("tables", tables)
    policy = Policy(
        name=terms["name"],
        file=file,
        budget=budget,
        tables=MappingProxyType(tables),
        accountant=money.get("accountant", "pure"),
        **{key: terms[key] for key in ("protects", "source", "snapshot", "ledger") if key in terms},
        default_epsilon=_optional(asked, "default_epsilon"),
        max_epsilon=_optional(asked, "max_epsilon"),
        keys_delta=fraction(asked.get("keys_delta", budget.delta * _KEYS_DELTA_SHARE)),
        crowd=_crowd(asked.get("crowd")),
        packages=_listed(terms.get("programs", {}).get("modules")),
        analysts=MappingProxyType(analysts),
        steward=steward_of(terms.get("steward"), budget, analysts),
        purposes=purposes_of(terms.get("purposes", {}), budget, analysts),
        windows=windows_of(shares),
        allowed=_allowed(terms.get("allow", {})),
        allowed_to=MappingProxyType({
            name: _allowed(share["allow"])
            for name, share in shares.items()
            if isinstance(share, dict) and "allow" in share
        }),
    )  # fmt: skip
    _require_names(policy)
    _require_money(policy)
    _require_allowed(policy, shares)
    for table in tables.values():
        _require_path(table, tables)
        _require_references(table, tables)
    _require_spaces(policy)
    return policy


def _listed(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _optional(terms: Mapping[str, Any], key: str) -> Fraction | None:
    return None if key not in terms else fraction(terms[key], name=key)


def _crowd(terms: Mapping[str, Any] | None) -> tuple[Fraction, Fraction] | None:
    keys = ("probability", "delta")
    return None if terms is None else tuple(fraction(terms[key], name=key) for key in keys)  # type: ignore[return-value]


def _allowed(terms: Mapping[str, bool]) -> frozenset[str]:
    """What a table of true and false allows; ``others`` are those that it does not name."""
    others = terms.get("others", True)
    return frozenset(name for name in MEANINGS if terms.get(name, others and name not in OPT_IN))


def _share(terms: Any, budget: ApproxDP) -> ApproxDP:  # noqa: ANN401 - a number or a table
    said = terms if isinstance(terms, dict) else {"epsilon": terms}
    return ApproxDP(said["epsilon"], said.get("delta", budget.delta))


def _table(name: str, terms: Mapping[str, Any]) -> TablePolicy:
    place = f"tables.{name}"
    said = [key for key in ("unit", "every_row_is_one_person", "public") if key in terms]
    if len(said) != 1:
        raise PolicyError(
            f"{place}: {'more than one statement says' if said else 'nothing says'} whose rows "
            "these are.",
            fix="Write one of: unit = 'the column that names the person', "
            "every_row_is_one_person = true, public = true.",
        )
    for key, fitting in _FOR.items():
        if key in terms and said[0] not in fitting:
            raise PolicyError(
                f"{place}.{key}: this has no meaning for a table with {said[0]}.",
                fix=f"Leave out {key}.",
            )
    unit, path, ids = _unit(place, terms.get("unit"))
    columns = {
        column: MappingProxyType(facts) for column, facts in terms.get("columns", {}).items()
    }
    _require_apart(f"{place}.columns", columns)
    for column, facts in columns.items():
        _require_facts(f"{place}.columns.{column}", column, facts)
    caps = {cap: terms.get(cap) for cap in ("rows_per_unit", "groups_per_unit", "rows_max")}
    return TablePolicy(
        name=name,
        public=said[0] == "public",
        unit=unit,
        path=path,
        ids=ids,
        source=terms.get("source"),
        trusted_view="trusted_view" in terms,
        rows_per_unit_holds="rows_per_unit_holds" in terms,
        key=tuple(terms.get("key", ())),
        columns=MappingProxyType(columns),
        **caps,
    )


def _unit(place: str, terms: Any) -> tuple[str | None, tuple[Step, ...], str | None]:  # noqa: ANN401
    if terms == "row":
        raise PolicyError(
            f"{place}.unit: 'row' is not the name of a person.",
            fix="Write every_row_is_one_person = true instead, or unit = { column = 'row' } if "
            "there is a column of this name.",
        )
    if not isinstance(terms, dict):
        return terms, (), None
    steps = []
    for at, hop in enumerate(terms.get("via", ())):
        column, arrow, target = hop.partition("->")
        table, dot, key = target.strip().partition(".")
        if not all((column.strip(), arrow, table, dot, key)):
            raise PolicyError(
                f"{place}.unit.via[{at}]: {hop!r} is not a foreign key.",
                fix="Write 'column -> table.key', for example 'visit_id -> visits.visit_id'.",
                about="foreign-key",
            )
        steps.append(Step(column=column.strip(), table=table, key=key))
    return terms["column"], tuple(steps), terms.get("ids")


def _require_facts(place: str, name: str, terms: Mapping[str, Any]) -> None:
    if "in" in terms and "references" in terms:
        raise PolicyError(f"{place}: it has both in and references.", fix="Leave one of them out.")
    column_of(place, name, {key: terms[key] for key in terms if key != "references"})


def _require_names(policy: Policy) -> None:
    names = {
        "name": [policy.name],
        "protects": [policy.protects],
        "snapshot": [policy.snapshot],
        "analysts": policy.analysts,
        "tables": policy.tables,
        "ids": [table.ids for table in policy.tables.values() if table.ids is not None],
    }
    for place, texts in names.items():
        for text in texts:
            require_plain(text)
            marks = {"analysts": {"/", ":"}, "tables": {".", "#"}, "ids": {"."}}.get(place, set())
            reserved = place == "tables" and text.lower().startswith(RESERVED)
            if not text.strip() or not text.isprintable() or reserved or marks & set(text):
                raise PolicyError(
                    f"{place}: {text!r} cannot be a name.",
                    fix=f"Use letters, digits, _ and -; do not start with {RESERVED!r}.",
                )


def _require_apart(place: str, names: Mapping[str, object]) -> None:
    """Engines fold case, so two names must differ by more than that."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise PolicyError(
                f"{place}: the engine cannot tell {other!r} and {name!r} apart.",
                fix="Rename one.",
                about="name",
            )


def _require_money(policy: Policy) -> None:
    budget = policy.budget
    if policy.accountant != "pure" and not budget.delta:
        raise PolicyError(
            f"budget: the accountant {policy.accountant!r} needs a delta.",
            fix="Add delta, for example 1e-6, or use the accountant 'pure'.",
            about="delta",
        )
    most = policy.max_epsilon or budget.epsilon
    if most > budget.epsilon or (policy.default_epsilon or 0) > most:
        raise PolicyError(
            "questions: the price of one question exceeds its limit.",
            fix="Keep default_epsilon ≤ max_epsilon ≤ the budget's epsilon.",
        )
    if policy.keys_delta > budget.delta:
        raise PolicyError(
            "questions.keys_delta: it is above the budget's delta.",
            fix="Use a small part of budget.delta, or leave it out for one hundredth of it.",
            about="delta",
        )
    if policy.crowd is not None and policy.crowd[1] > budget.delta:
        raise PolicyError(
            "questions.crowd.delta: it is above the budget's delta.",
            fix="Use a small part of budget.delta.",
            about="delta",
        )
    for name, share in policy.analysts.items():
        if not share <= budget:
            raise PolicyError(
                f"analysts.{name}: the share is larger than the budget, {budget}.",
                fix="Lower the share, or raise the budget.",
            )


def _require_allowed(policy: Policy, shares: Mapping[str, Any]) -> None:
    """An analyst is allowed less than the data set, or as much; never more."""
    for name, share in shares.items():
        said = share.get("allow", {}) if isinstance(share, dict) else {}
        granted = {key for key, value in said.items() if value} - {"others"}
        if more := sorted(granted - policy.allowed):
            raise PolicyError(
                f"analysts.{name}.allow.{more[0]}: the data set itself does not allow this.",
                fix=f"Leave it out, or allow {more[0]} under [allow] too.",
            )


def _require_path(table: TablePolicy, tables: Mapping[str, TablePolicy]) -> None:
    """Each table on the way must itself declare the rest of the way.

    Claim: the rows between a row and its owner belong to the same owner.
    Why: a table on the way that named its own owners otherwise could lose a row with one person,
        and with it another person's rows. As the ways get shorter, there is no circle either.
    """
    for at, step in enumerate(table.path):
        place, rest = f"tables.{table.name}.unit.via[{at}]", table.path[at + 1 :]
        if step.table not in tables:
            raise PolicyError(
                f"{place}: there is no table {step.table!r}.",
                fix=nearest(step.table, tables),
                about="path",
            )
        other = tables[step.table]
        if (other.unit, other.path) != (table.unit, rest):
            hops = ", ".join(f"'{hop.column} -> {hop.table}.{hop.key}'" for hop in rest)
            unit = f"{{ column = {table.unit!r}, via = [{hops}] }}" if rest else repr(table.unit)
            raise PolicyError(
                f"{place}: table {step.table!r} does not declare unit = {unit}, as the rest of "
                "the path does.",
                fix="Let the path end at a table that has the unit's column, and declare the same "
                "unit in every table on it.",
                about="path",
            )


def _require_spaces(policy: Policy) -> None:
    """Each table of a path is in the id space of its end, and names of spaces are apart."""
    for name, table in policy.tables.items():
        space = policy.space(name)
        if table.ids is not None and table.ids != space:
            raise PolicyError(
                f"tables.{name}.unit.ids: the ids are those of {table.end!r}, in {space!r}.",
                fix=f"Declare ids = {table.ids!r} for table {table.end!r}, or leave it out here.",
                about="id-space",
            )
    _require_apart("ids", policy.spaces())


def _require_references(table: TablePolicy, tables: Mapping[str, TablePolicy]) -> None:
    for name, facts in table.columns.items():
        if "references" not in facts:
            continue
        place = f"tables.{table.name}.columns.{name}.references"
        other, _, column = facts["references"].partition(".")
        if not column or other not in tables:
            raise PolicyError(
                f"{place}: there is no table {other!r}, or no column after it.",
                fix="Write 'table.column'. " + nearest(other, tables),
            )
        if not tables[other].public:
            raise PolicyError(
                f"{place}: table {other!r} is private, so its values cannot be shown as groups.",
                fix="Reference a table with public = true, or list the groups: in = [...].",
            )
