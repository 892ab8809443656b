"""What a steward should look at again: gaps, contradictions, and what choices cost in noise."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import exp
from typing import Final, TypeAlias

from noisegate.privacy.capability import CAPABILITIES, OPT_IN
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.sources.policy.finding import Finding, Severity
from noisegate.sources.policy.names import is_identifying, person, whose
from noisegate.sources.policy.policy import Policy, TablePolicy
from noisegate.sources.policy.tables import Stored, leading

Error: TypeAlias = Callable[[Fraction, Fraction], int]

_EPSILON: Final = Fraction(1, 10)  # prices are shown for this where no default is declared
_GRAINS: Final = 1 << 20
_EPSILON_LARGE: Final = 10
_ROWS_LARGE: Final = 100
_NOISY: Final = Fraction(1, 10)
_NEEDS_BOUNDS: Final = "SUM, AVG, STDDEV, MEDIAN and quantiles"


def check(
    policy: Policy, tables: Mapping[str, TableDomain], *, stored: Stored, error: Error
) -> list[Finding]:
    """All findings, the gravest first.

    Args:
        policy: The policy as read.
        tables: What `domains` made of it.
        stored: The columns of each table and their kinds, as they are stored.
        error: The ± at 95 % of a number that a person moves by so much, at an ε of this account.
    """
    found = [*_budget(policy), *_exposed(policy)]
    found += [*_persons(policy, tables), *_spaces(policy, tables, stored)]
    for name, table in policy.tables.items():
        found += _table(policy, table)
        found += _columns(policy, table, tables[name])
        if not table.public:
            found += _costs(policy, table, tables[name], error)
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))


def _found(severity: Severity, place: str, problem: str, fix: str) -> Finding:
    return Finding(severity=severity, place=place, problem=problem, fix=fix)


_error, _warning, _advice = (partial(_found, each) for each in Severity)


def _budget(policy: Policy) -> Iterator[Finding]:
    epsilon, delta = policy.budget.epsilon, policy.budget.delta
    if epsilon > _EPSILON_LARGE:
        odds = f"{exp(float(epsilon)):,.0f}" if epsilon < 40 else "a million million million"
        yield _warning(
            "budget.epsilon",
            f"At ε = {float(epsilon):g} the odds that someone is in the data may rise by a factor "
            f"of {odds}.",
            "Use a budget of 10 or less; see noisegate explain-epsilon.",
        )
    sizes = [table.rows_max for table in policy.tables.values() if table.rows_max]
    if delta and not sizes:
        yield _advice(
            "budget.delta",
            "The size of the tables is not declared, so δ cannot be judged.",
            "Declare rows_max in the tables.",
        )
    elif delta and delta * max(sizes) * 10 > 1:
        finding = _error if delta * max(sizes) >= 1 else _warning
        yield finding(
            "budget.delta",
            f"δ = {float(delta):g} is not far below one over {max(sizes):,} rows: someone may be "
            "exposed with this probability.",
            f"Use at most {0.01 / max(sizes):.0e}.",
        )
    shares = sum((share.epsilon for share in policy.analysts.values()), Fraction(0))
    if shares > epsilon:
        yield _advice(
            "analysts",
            f"The shares add up to ε = {float(shares):g}, the budget is {float(epsilon):g}: "
            "whoever asks last may find it spent.",
            "This is allowed. Lower the shares if every analyst should be sure of theirs.",
        )
    for key, value in (
        ("default_epsilon", policy.default_epsilon), ("max_epsilon", policy.max_epsilon)
    ):  # fmt: skip
        if value is None:
            yield _advice(
                f"questions.{key}",
                "It is not set: "
                + ("every question must name its price." if key == "default_epsilon" else
                   "one question may spend the whole budget."),
                f"Set it, for example {key} = 0.1.",
            )  # fmt: skip


def _exposed(policy: Policy) -> Iterator[Finding]:
    """Which optional capabilities analysts have, and which are off."""
    for who, allowed in (
        ("allow", policy.allowed),
        *((f"analysts.{name}.allow", policy.allowed_of(name)) for name in policy.allowed_to),
    ):
        off = [name for name in CAPABILITIES if name not in allowed]
        on = ", ".join(name for name in CAPABILITIES if name in allowed)
        yield _advice(
            who,
            f"Besides SQL, {f'these may be used: {on}' if on else 'nothing may be used'}"
            + (f"; not: {', '.join(off)}." if off else "."),
            "Write [allow] others = false, and name = true for each that is needed.",
        )
    for name in policy.allowed.intersection(OPT_IN):
        yield _warning(
            f"allow.{name}",
            f"The policy allows {OPT_IN[name]}. noisegate proves nothing about them.",
            "Leave it out, unless you trust whoever writes them as you trust this process.",
        )
    if policy.crowd is not None and "crowds" not in policy.allowed:
        yield _warning(
            "questions.crowd",
            "Crowds may be asked without a price, and are not allowed: the door refuses them.",
            "Allow crowds under [allow], or leave out crowd.",
        )


def _persons(policy: Policy, tables: Mapping[str, TableDomain]) -> Iterator[Finding]:
    if not any(not table.public for table in policy.tables.values()):
        yield _error(
            "tables", "No table is private, so nothing is protected.", "Declare a table's unit."
        )
    for name, table in policy.tables.items():
        if table.unit is None or table.path:
            continue
        place, column = f"tables.{name}.unit", tables[name].columns[table.unit]
        if column.kind not in (Kind.INTEGER, Kind.TEXT):
            yield _error(
                place,
                f"Column {table.unit!r} is {column.kind.value}, which does not name a "
                f"{policy.noun(name)} exactly.",
                "Use a whole number or text.",
            )
        if column.hidden:
            yield _warning(
                place,
                f"Column {table.unit!r} is hidden, so no question can join on it or count each "
                f"{policy.noun(name)} once.",
                "Leave out hidden: the unit never leaves in an answer.",
            )


def _spaces(policy: Policy, tables: Mapping[str, TableDomain], stored: Stored) -> Iterator[Finding]:
    """Which tables name the same people, and which do not."""
    spaces = {
        space: [table for table in found if not table.path and table.unit is not None]
        for space, found in policy.spaces().items()
    }
    for space, found in spaces.items():
        names = ", ".join(f"{table.name}.{table.unit}" for table in found)
        if len(found) > 1 and all(table.ids is None for table in found):
            yield _advice(
                "tables",
                f"{names} are treated as ids of the same people, because they have the same name.",
                f"Say so with unit = {{ column = '{found[0].unit}', ids = 'name' }}, or give them "
                "different ids.",
            )
        elif len(spaces) > 1:
            yield _advice(
                "tables",
                f"The id space {space!r} is that of {names}.",
                "Tables of different id spaces are never matched.",
            )
        yield from _one_space(policy, found, tables, stored)
    yield from _apart(policy, spaces)


def _one_space(
    policy: Policy,
    found: Sequence[TablePolicy],
    tables: Mapping[str, TableDomain],
    stored: Stored,
) -> Iterator[Finding]:
    first, *others = found
    for other in others:
        kinds = [tables[one.name].columns[str(one.unit)].kind for one in (first, other)]
        held = [stored[one.name][str(one.unit)] for one in (first, other)]
        place, noun = f"tables.{other.name}.unit", policy.noun(other.name)
        if kinds[0] is not kinds[1]:
            yield _error(
                place,
                f"The unit is {kinds[1].value} here and {kinds[0].value} in {first.name!r}, so "
                f"rows of one {noun} are not matched.",
                "Declare the same type for both columns.",
            )
        elif held[0] is not held[1]:
            yield _warning(
                place,
                f"The unit is stored as {held[1].value} here and as {held[0].value} in "
                f"{first.name!r}. Ids are compared as they are stored, letter by letter: 05 and 5 "
                f"are two {noun}s.",
                "Store both in one type.",
            )


def _apart(policy: Policy, spaces: Mapping[str, Sequence[TablePolicy]]) -> Iterator[Finding]:
    """Of spaces that nobody named, it may not be meant that they are apart."""
    for one, other in pairwise(found[0] for found in spaces.values()):
        if one.ids is None or other.ids is None:
            nouns = (whose(str(each.unit)) for each in (one, other))
            noun = next(filter(None, nouns), policy.protects)
            yield _warning(
                f"tables.{other.name}.unit",
                f"{other.name}.{other.unit} and {one.name}.{one.unit} are treated as ids of "
                "different people, so their tables cannot be joined. A person in both counts as "
                "two, with twice the ε.",
                f"Write unit = {{ column = '{other.unit}', ids = '{noun}' }} in both if these are "
                "the same people, else different ids.",
            )


def _table(policy: Policy, table: TablePolicy) -> Iterator[Finding]:
    place = f"tables.{table.name}"
    if table.trusted_view:
        yield _warning(
            f"{place}.trusted_view",
            "The source is a view. Nothing checks that the rows of one person depend on that "
            "person alone; every guarantee says that you vouch for it.",
            "Store the rows as a table if you can.",
        )
    if table.public and not table.key:
        yield _advice(
            place,
            "No key is declared, so a table in which every row is one person cannot be joined to "
            "it.",
            "Add key = ['the columns whose values do not repeat'].",
        )
    if table.unit is not None and table.rows_per_unit is None:
        yield _advice(
            place,
            "Without rows_per_unit, each question estimates its own contribution bound, for a "
            "share of its price.",
            f"Add rows_per_unit if you know the most rows that one {policy.noun(table.name)} has.",
        )
    if table.unit is not None and table.groups_per_unit is None:
        yield _advice(
            place,
            f"Without groups_per_unit, counts of {policy.noun(table.name)}s by group, and groups "
            "that are not declared, estimate a contribution bound for a share of their price.",
            "Add groups_per_unit if you know it.",
        )
    if table.every_row_is_one_person:
        units = {other.unit for other in policy.tables.values() if other.unit}
        for name in table.columns:
            if name in units or person(name):
                yield _warning(
                    f"{place}.every_row_is_one_person",
                    f"Column {name!r} seems to identify a person, who may then have several rows.",
                    f"Write unit = '{name}' unless it never repeats.",
                )


def _columns(policy: Policy, table: TablePolicy, domain: TableDomain) -> Iterator[Finding]:
    if table.public:
        return
    leads = leading(policy, table)
    for name, column in domain.columns.items():
        place = f"tables.{table.name}.columns.{name}"
        if column.hidden or name in leads or name == table.unit:
            continue
        if is_identifying(name):
            yield _warning(
                place,
                "The name sounds as if it identified a person.",
                "Add hidden = true if no question needs it.",
            )
        elif column.kind.is_numeric and column.between is None and column.keys is None:
            yield _advice(
                place,
                f"Without bounds, {_NEEDS_BOUNDS} of it are refused, unless a question has "
                "bounds estimated (--choose bounds).",
                "Add between = [low, high]; an id needs none.",
            )
        elif column.kind is Kind.TIMESTAMP and (last := _last_midnight(column)):
            yield _warning(
                place,
                f"The bounds end when {last} begins: later times of that day count as midnight.",
                f"End them with the day after, {last + timedelta(days=1)}, if that day belongs to "
                "the rows.",
            )
        elif column.kind in (Kind.TEXT, Kind.BOOLEAN) and column.keys is None:
            fix = "Add in = [...] or references = 'table.column'"
            if policy.budget.delta:
                why = "Without keys, grouping by it costs δ, and rare groups are not shown."
                yield _advice(place, why, f"{fix}.")
            else:
                why = "Without keys, and as the budget has no δ, no question can group by it."
                yield _advice(place, why, f"{fix}, or give the budget a delta.")


def _last_midnight(column: Column) -> date | None:
    """The day at whose start bounds end, unless a month starts with it."""
    if column.between is None:
        return None
    end = datetime(1970, 1, 1) + timedelta(microseconds=int(column.between[1]))  # noqa: DTZ001
    return None if end.day == 1 or end.time() != time() else end.date()


def _costs(
    policy: Policy, table: TablePolicy, domain: TableDomain, error: Error
) -> Iterator[Finding]:
    """The ± of a count and of each sum, where it is known how many rows of a person count."""
    rows = 1 if table.every_row_is_one_person else table.rows_per_unit
    if rows is None:
        return
    epsilon = policy.default_epsilon or _EPSILON
    margin = Fraction(error(Fraction(rows * _GRAINS), epsilon), _GRAINS)
    at, adds = f"at ε = {float(epsilon):g} for one cell", f"one {policy.noun(table.name)} may add"
    place, of_rows = f"tables.{table.name}", f"{rows:,} row{'s' * (rows > 1)}"
    less = "A smaller bound means less noise; but a person with more rows counts only this much."
    if table.every_row_is_one_person or (rows == 1 and table.rows_per_unit_holds):
        less = "No bound is smaller: less noise needs a larger ε."
    elif rows == 1:
        less = "If nobody has more, add rows_per_unit_holds = true: else counts are lower bounds."
    yield _advice(
        f"{place}.rows_per_unit" if table.unit else place,
        f"COUNT(*): ± {_shown(margin)} {at}, because {adds} {of_rows}.",
        less,
    )
    if rows > _ROWS_LARGE:
        yield _warning(
            f"{place}.rows_per_unit",
            f"{of_rows} per {policy.noun(table.name)} is a lot: the noise grows with it.",
            "Choose a number that most people stay below, not the maximum.",
        )
    for name, column in domain.columns.items():
        reach = column.domain.magnitude
        if not column.hidden and column.kind.is_numeric and reach is not None:
            yield _sum(f"{place}.columns.{name}", table, column, reach, margin * reach,
                       f"{at}, because {adds} {of_rows} of up to {_shown(reach)}")  # fmt: skip


def _sum(
    place: str, table: TablePolicy, column: Column, reach: Fraction, margin: Fraction, why: str
) -> Finding:
    most = (table.rows_max or 0) * reach
    if most and margin > most * _NOISY:
        return _warning(
            place,
            f"SUM({column.name}): ± {_shown(margin)} {why}. The sum itself is at most "
            f"{_shown(most)}.",
            "Narrow the bounds, lower rows_per_unit, or let questions cost more.",
        )
    return _advice(
        place,
        f"SUM({column.name}): ± {_shown(margin)} {why}.",
        "Narrower bounds mean less noise; but values outside are moved to the nearer bound.",
    )


def _shown(value: Fraction) -> str:
    """Three digits are enough for a margin; rounded up where it is not a whole number."""
    if value.denominator == 1 and value < 10**6:
        return f"{value.numerator:,}"
    whole = -(-value.numerator // value.denominator)
    return f"{whole:,}" if value >= 100 else f"{float(value):.3g}"
