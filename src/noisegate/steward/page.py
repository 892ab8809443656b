"""A policy as a page to read: plain text that is also Markdown."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from noisegate.inert import markdown
from noisegate.privacy.capability import MEANINGS
from noisegate.privacy.domain import Kind
from noisegate.privacy.loss import decimal_up
from noisegate.sources.policy.columns import column_of
from noisegate.sources.policy.policy import Policy, TablePolicy

_Row = tuple[str, ...]


def page(policy: Policy) -> str:
    """The data set, who is protected, who may ask, and what of each column. Nothing is opened."""
    lines = [f"# {markdown(policy.name)}", "", *_grid(("", ""), _facts(policy))]
    for table in policy.tables.values():
        lines += ["", f"## {markdown(table.name)}", "", *_about(policy, table)]
        rows = [_column(policy, table, name, terms) for name, terms in table.columns.items()]
        if rows:
            lines += ["", *_grid(("column", "type", "declared", "can be asked"), rows)]
    return "\n".join(lines) + "\n"


def _facts(policy: Policy) -> list[_Row]:
    most = policy.max_epsilon or policy.budget.epsilon
    default = policy.default_epsilon
    return [
        ("protects", _protected(policy)),
        ("budget", f"{policy.budget}, for all questions together"),
        ("accountant", policy.accountant),
        (
            "one question",
            f"at most ε = {decimal_up(most)}"
            + (f", ε = {decimal_up(default)} unless it says otherwise" if default else ""),
        ),
        ("besides SQL", _besides(policy.allowed)),
        *([] if policy.steward is None else [("steward's own looks", f"at most {policy.steward}")]),
        *((f"analyst {name}", _analyst(policy, name)) for name in policy.analysts),
        ("snapshot", policy.snapshot),
        ("source", policy.source or "the folder of the policy"),
        ("ledger", policy.ledger or "beside the policy"),
    ]


def _besides(allowed: frozenset[str]) -> str:
    return ", ".join(name for name in MEANINGS if name in allowed) or "nothing"


def _analyst(policy: Policy, name: str) -> str:
    window = policy.windows.get(name)
    said = f"at most {policy.analysts[name]}{'' if window is None else window}"
    mine = policy.allowed_of(name)
    said += f", of the data set's {policy.budget} for ever" if window and window.every else ""
    return said if mine == policy.allowed else f"{said}; besides SQL: {_besides(mine)}"


def _protected(policy: Policy) -> str:
    """One unit of each id space."""
    spaces = policy.spaces()
    nouns = [policy.noun(tables[0].name) for tables in spaces.values()]
    if any(table.every_row_is_one_person for table in policy.tables.values()):
        nouns.append(policy.protects)
    words = " or ".join(f"one {noun}" for noun in dict.fromkeys(nouns))
    if len(spaces) < 2:
        return words
    return (
        f"{words}; ids of different spaces are never matched: a person in two of them counts as two"
    )


def _about(policy: Policy, table: TablePolicy) -> list[str]:
    if table.public:
        key = markdown(f" Key: {', '.join(table.key)}.") if table.key else ""
        return [f"Public: exact and free, all columns.{key}"]
    noun = markdown(policy.noun(table.name))
    vouched = [f"A view: the steward vouches that a {noun}'s rows depend on that {noun} alone."]
    view = vouched if table.trusted_view else []
    if table.unit is None:
        return [f"Private. Every row is one {noun}, by declaration.", *view]
    way = "".join(f" {hop.column} → {hop.table}.{hop.key}," for hop in table.path)
    named = markdown(f"{way} {table.unit}: ids of the space {policy.space(table.name)}")
    lines = [f"Private. The {noun} is named by{named}.", *view]
    for cap, words in ((table.rows_per_unit, "row"), (table.groups_per_unit, "group")):
        said = f"At most {cap:,} {words}{'s' * (cap > 1)}" if cap else f"No cap on {words}s"
        lines.append(f"{said} per {noun} and question.")
    if table.rows_per_unit_holds:
        lines.append(f"The steward vouches that no {noun} has more rows.")
    return [*lines, *([f"Never more than {table.rows_max:,} rows."] if table.rows_max else [])]


def _column(policy: Policy, table: TablePolicy, name: str, terms: Mapping[str, Any]) -> _Row:
    kind = column_of("", name, {k: v for k, v in terms.items() if k != "references"}).kind
    open_kind = not {"type", "in", "between"} & set(terms)
    facts = []
    if "between" in terms:
        low, high = map(_value, terms["between"])
        facts.append(f"{low} to {high}")
    if "in" in terms:
        shown = ", ".join(map(_value, terms["in"][:6]))
        facts.append(shown if len(terms["in"]) <= 6 else f"{shown}, … ({len(terms['in'])} keys)")
    if "references" in terms:
        facts.append(f"the values of {terms['references']}")
    if terms.get("nullable") is False:
        facts.append("never missing")
    can = "nothing: hidden" if terms.get("hidden") else _uses(policy, table, name, terms, kind)
    shown_kind = "as stored" if open_kind else kind.value
    return name, shown_kind, "; ".join(facts), can


def _uses(
    policy: Policy, table: TablePolicy, name: str, terms: Mapping[str, Any], kind: Kind
) -> str:
    if table.public:
        return "anything"
    if name == table.unit:
        return f"COUNT(DISTINCT {name}), joins, sub-queries per {policy.noun(table.name)}"
    uses = ["WHERE", "COUNT"]
    if "in" in terms or "references" in terms:
        uses.append("GROUP BY")
    elif kind.is_ordered and "between" in terms:
        uses.append("GROUP BY bins" if kind.is_numeric else "GROUP BY its months or years")
    elif policy.budget.delta and kind is not Kind.NUMBER:
        uses.append("GROUP BY with δ")
    if "between" in terms:
        uses += ["SUM", "AVG", "STDDEV", "MEDIAN"] if kind.is_numeric else []
    return ", ".join(uses)


def _value(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _grid(head: _Row, rows: list[_Row]) -> list[str]:
    """A Markdown table whose columns line up."""
    cells = [[*map(markdown, row)] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
