"""The columns of a relation and what is public about them, from the tables below it."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final

from noisegate.algebra.expression import Expression, Schema, domain_of
from noisegate.algebra.intervals import scales
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import (
    Among,
    Filter,
    Fold,
    Folded,
    Join,
    JoinKind,
    Matching,
    Ordering,
    Partnered,
    PerUnit,
    Project,
    Relation,
    Sampled,
    Table,
    Union,
    Window,
    Windowed,
)
from noisegate.errors import Unsupported
from noisegate.frozen import replace
from noisegate.privacy.domain import Domain, Key, Kind, TableDomain

FRAME_MAX: Final = 1 << 20  # rows before or after the one at hand
SUM_MAX: Final = Fraction(2) ** 500  # of one value: no number of rows adds up to infinity


def schema_of(relation: Relation) -> dict[str, Domain]:
    """The columns in order. Refuses a tree whose expressions, names or kinds do not fit.

    Claim: every value of the relation keeps its domain. Why: base columns are clamped on reading,
        expressions keep theirs, and no other step makes values.
    """
    return dict(_schema_of(relation))


@remembered
def _schema_of(relation: Relation) -> dict[str, Domain]:
    rule = _RULES.get(type(relation))
    if rule is None:
        raise Unsupported("This is not a relation.", fix="Use the relations of the algebra.")
    return rule(relation)


def _table(table: Table) -> dict[str, Domain]:
    return _shown(table.domain)


@remembered
def _shown(table: TableDomain) -> dict[str, Domain]:
    columns = table.columns.values()
    return {column.name: column.domain for column in columns if not column.hidden}


def _filter(relation: Filter) -> dict[str, Domain]:
    found = schema_of(relation.of)
    require_kind(domain_of(relation.condition, found), Kind.BOOLEAN, "A condition")
    return found


def _sampled(relation: Sampled) -> dict[str, Domain]:
    chance = relation.probability
    if type(chance) is not Fraction or not 0 < chance < 1:
        raise Unsupported(
            "The sampling probability is out of range.", fix="Use one between 0 and 1."
        )
    return schema_of(relation.of)


def _project(relation: Project) -> dict[str, Domain]:
    return _named(relation.columns, schema_of(relation.of))


def _matching(relation: Matching) -> dict[str, Domain]:
    found = schema_of(relation.of)
    _require_comparable(relation.on, found, schema_of(relation.other))
    return found


def require_kind(domain: Domain, kind: Kind, what: str) -> None:
    """Refuse a value of another kind."""
    if domain.kind is not kind:
        raise Unsupported(f"{what} is {domain.kind.value}, not {kind.value}.", fix="Cast it.")


def _named(columns: Iterable[tuple[str, Expression]], below: Schema) -> dict[str, Domain]:
    pairs = [(name, domain_of(expression, below)) for name, expression in columns]
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unsupported("Two columns have the same name.", fix="Name one of them with AS.")
    return found


def _joined(join: Join) -> dict[str, Domain]:
    left, right = schema_of(join.left), schema_of(join.right)
    _require_comparable(join.on, left, right)
    if type(join.kind) is not JoinKind:
        raise Unsupported("This is not a kind of join.", fix="Use JoinKind.")
    if not join.on:
        raise Unsupported("A join has no equality.", fix="Join ON a column of each side.")
    if both := left.keys() & right.keys():
        raise Unsupported(f"Both sides have a column {min(both)!r}.", fix="Name one with AS.")
    if join.kind is JoinKind.LEFT:
        right = {name: replace(domain, nullable=True) for name, domain in right.items()}
    return left | right


def _require_comparable(
    on: tuple[tuple[Expression, Expression], ...], left: Schema, right: Schema
) -> None:
    for one, other in on:
        kinds = {domain_of(one, left).kind, domain_of(other, right).kind}
        if len(kinds) > 1:  # numbers too: large whole numbers would meet as one double
            names = sorted(kind.value for kind in kinds)
            raise Unsupported(f"A join compares {names[0]} with {names[1]}.", fix="Cast one side.")


def _per_unit(relation: PerUnit) -> dict[str, Domain]:
    below = schema_of(relation.of)
    found = _named(relation.keys, below)
    return _with(found, ((each.name, _folded(each, below)) for each in relation.folded))


def _partnered(relation: Partnered) -> dict[str, Domain]:
    found, other = schema_of(relation.of), schema_of(relation.other)
    require_kind(domain_of(relation.condition, _with(found, other.items())), Kind.BOOLEAN, "A tie")
    folds = ((each.name, _folded(each, other, may_lack=True)) for each in relation.folded)
    return _with(found, folds)


def _windowed(relation: Windowed) -> dict[str, Domain]:
    below = schema_of(relation.of)
    return _with(below, ((each.name, _window(each, below)) for each in relation.windows))


def _with(found: dict[str, Domain], more: Iterable[tuple[str, Domain]]) -> dict[str, Domain]:
    """The columns, and more under other names."""
    found = dict(found)
    for name, domain in more:
        if name in found:
            raise Unsupported("Two columns have the same name.", fix="Name one of them with AS.")
        found[name] = domain
    return found


def _folded(folded: Folded, below: Schema, *, may_lack: bool = False) -> Domain:
    """The domain of a fold of rows, of which there is one at least unless they ``may_lack``."""
    if type(folded) is not Folded or type(folded.fold) is not Fold:
        raise Unsupported("This is not a fold.", fix="Use Folded and Fold.")
    value = domain_of(folded.expression, below)
    if folded.fold in (Fold.COUNT, Fold.COUNT_DISTINCT):
        least = Fraction(0 if value.may_lack or may_lack else 1)
        return Domain(kind=Kind.INTEGER, low=least, nullable=False)
    return _sum_domain(value) if folded.fold is Fold.SUM else replace(value, nullable=True)


def _window(window: Window, below: Schema) -> Domain:
    shape = type(window), type(window.keys), type(window.order)
    if shape != (Window, tuple, tuple) or any(type(one) is not Ordering for one in window.order):
        raise Unsupported("This is not a window.", fix="Use Window and Ordering.")
    for expression in (*window.keys, *(one.expression for one in window.order)):
        domain_of(expression, below)
    sees_itself = _require_frame(window)
    if type(window.how) is Fold:
        folded = Folded(window.name, window.how, window.expression)
        return _folded(folded, below, may_lack=not sees_itself)
    if type(window.how) is not Among:
        raise Unsupported("This is not a window.", fix="Use Fold or Among.")
    if window.how in (Among.RANK, Among.DENSE_RANK):
        return Domain(kind=Kind.INTEGER, low=Fraction(1), nullable=False)
    return replace(domain_of(window.expression, below), nullable=True)


def _require_frame(window: Window) -> bool:
    """Refuse a frame that is none; whether the row at hand is in it."""
    is_rank = window.how in (Among.RANK, Among.DENSE_RANK)
    if window.frame is None and (is_rank or type(window.how) is Fold):
        return True
    if is_rank or type(window.frame) is not tuple or len(window.frame) != 2:
        raise Unsupported(
            "This is not a frame.", fix="FIRST and LAST need a pair, ranks have none."
        )
    if any(type(end) is not int or abs(end) > FRAME_MAX for end in window.frame if end is not None):
        raise Unsupported("A frame is too wide.", fix=f"Count at most {FRAME_MAX:,} rows.")
    start, end = window.frame
    if start is not None and end is not None and start > end:
        raise Unsupported("A frame ends before it starts.", fix="Swap its ends.")
    return (start is None or start <= 0) and (end is None or end >= 0)


def _sum_domain(value: Domain) -> Domain:
    if not value.kind.is_numeric:
        raise Unsupported(f"SUM of {value.kind.value} has no meaning.", fix="Cast it to a number.")
    if value.kind is Kind.NUMBER and not value.is_bounded:
        raise Unsupported(
            "A SUM per unit needs bounds on its values.",
            fix="Declare between = [low, high], or use LEAST and GREATEST.",
        )
    if value.kind is Kind.NUMBER and (value.magnitude or 0) > SUM_MAX:
        raise Unsupported(
            "A SUM could exceed the range of doubles.", fix="Use narrower bounds.", about="range"
        )
    low = Fraction(0) if value.low is not None and value.low >= 0 else None
    high = Fraction(0) if value.high is not None and value.high <= 0 else None
    return Domain(kind=value.kind, low=low, high=high)  # NULL where it is beyond all doubles


def _union(relation: Union) -> dict[str, Domain]:
    parts = [schema_of(part) for part in relation.parts]
    if not parts or any(list(part) != list(parts[0]) for part in parts):
        raise Unsupported(
            "The parts have different columns.", fix="Use the same names in the same order."
        )
    return {name: _either([part[name] for part in parts]) for name in parts[0]}


def _either(domains: list[Domain]) -> Domain:
    if len({domain.kind for domain in domains}) > 1:
        raise Unsupported(
            "The parts differ in a column's type.", fix="Cast one of them.", about="type"
        )
    lows = [domain.low for domain in domains]
    highs = [domain.high for domain in domains]
    keys: tuple[Key, ...] | None = None
    if all(domain.keys is not None for domain in domains):
        keys = tuple(dict.fromkeys(key for domain in domains for key in domain.keys or ()))
    given = scales(domains)
    return Domain(
        kind=domains[0].kind,
        scale=max(given) if given and domains[0].kind is Kind.NUMBER else None,
        low=None if None in lows else min(low for low in lows if low is not None),
        high=None if None in highs else max(high for high in highs if high is not None),
        keys=keys,
        nullable=any(domain.nullable for domain in domains),
        unlisted=any(domain.unlisted for domain in domains),
    )


_RULES: Final[dict[type, Callable[[Any], dict[str, Domain]]]] = {
    Table: _table,
    Filter: _filter,
    Project: _project,
    Join: _joined,
    Matching: _matching,
    Partnered: _partnered,
    PerUnit: _per_unit,
    Sampled: _sampled,
    Union: _union,
    Windowed: _windowed,
}
