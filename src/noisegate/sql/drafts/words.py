"""What the error bars do not show, in words."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from noisegate.algebra.expression import Call, Expression, Field, domain_of
from noisegate.algebra.relation import sample_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Cells, Distinct, Keys, Sums, Term, Values
from noisegate.privacy.domain import Kind, TableDomain
from noisegate.sql.drafts.declared import declared_rows
from noisegate.sql.drafts.recipe import ADDITIVE
from noisegate.sql.laws.known import is_key_selection
from noisegate.sql.laws.sampling import sample_words
from noisegate.sql.question import Block, Function, GroupKey
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

if TYPE_CHECKING:
    from noisegate.mechanisms.keys.key_selection import Finder

_COUNTS = (Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS)
_UNBOUNDED = (*_COUNTS, Function.COUNT_DISTINCT)
_AROUND = {"case": 1, "least": 0, "greatest": 0}  # where a value is, inside of calls around it

# A query, its function where it is drawn or weighed for itself, and whether its sums are so.
Drawn: TypeAlias = tuple[Query, Function | None, bool]


def capped_words(block: Block, drawn: Iterable[Drawn], *, known: bool = False) -> tuple[str, ...]:
    """How much of one unit counts in each number; ``known``: what that loses is in the ±."""
    lower, most = _rises(block), declared_rows(block.relation, sure=True)
    found = (
        _capped(query, function, apart=apart, lower=lower, known=known)
        for query, function, apart in drawn
        if apart or most is None or most > query.per_unit
    )
    return tuple(dict.fromkeys(words for words in found if words))


def sums_words(terms: Iterable[Term]) -> str:
    """Sums as SQL calls them."""
    return " and ".join(dict.fromkeys(f"SUM({_inside(_unmasked(each))})" for each in terms))


def _unmasked(term: Term) -> Expression:
    """What is added, whatever FILTER says where, and within whatever bounds."""
    value = term.expression
    while isinstance(value, Call) and value.function in _AROUND:
        value = value.args[_AROUND[value.function]]
    return value


def amount(value: Fraction) -> str:
    """A number of a cap, to six digits."""
    return f"{float(value):,.6g}"


def caveats(block: Block, *, kinds: Collection[Kind] = ()) -> tuple[str, ...]:
    """Sentences for a plan and an answer; they depend on the question and the policy only."""
    found: list[str] = []
    functions = [aggregate.function for aggregate in block.aggregates]
    if any(function not in _UNBOUNDED for function in functions):
        found.append(
            "Values are clipped to their bounds; unless these were estimated, the error bars are "
            "about the clipped values."
        )
    sampled = sample_of(block.relation)
    if sampled is not None:
        held = [each in (*ADDITIVE, Function.COUNT_UNITS) for each in functions]
        in_bars = len(set(block.sets)) == 1 and any(held)
        found.append(sample_words(sampled.probability, in_bars=in_bars))
        if in_bars and not all(held):
            found.append("Error bars of quantiles, and of distinct values, cover the noise only.")
        if Function.COUNT_DISTINCT in functions:
            found.append("COUNT(DISTINCT …) is that of the sample: all rows have as many or more.")
        if any(key.domain.keys is None for key in block.by):
            found.append("Groups are those found in the sample.")
    if len(set(block.sets)) > 1:
        found.append("Totals are over the groups shown: rows with other keys are in none of them.")
    elif any(map(_is_listed, block.by)):
        found.append(
            "Rows whose key is missing or not on the declared list, if any, are in no group."
        )
    if Kind.TIMESTAMP in kinds:
        found.append("Quantiles of timestamps are rounded to the hour.")
    found += [
        words for table in stability_of(block.relation).tables if (words := _ownerless(table))
    ]
    return tuple(dict.fromkeys(found))


def rare(query: Query, finder: "Finder", *, shown: bool) -> str:
    """How large a group must be to be found; ``shown``: by the very count that is shown of it."""
    noun, of = noun_of(query), " of the sample" if query.sample is not None else ""
    certain = is_key_selection(finder)
    once = f"each {noun} once"
    if query.stability.rows != 1:
        once += f", in {_of(query.per_unit, 'group')} at most"
    how = (
        f"shown where the noisy number of units that hold them ({once}) is {finder.turn:,} or more"
        if shown
        else f"found privately by how many units{of} hold them ({once})"
    )
    found = (
        f"Groups are {how}: groups of {finder.sure:,} are shown "
        f"{'for certain' if certain else 'nearly always'}, those of {finder.turn:,} in about half "
        "of all cases, and far smaller ones are not shown."
    )
    return found + (" The effect on shown numbers is included in their ±." if shown else "")


def quantiles(
    expression: Expression | None,
    errors: Mapping[Fraction, int],
    confidence: Fraction,
    *,
    sampled: bool,
) -> str:
    """How far levels of one column may be off in ranks, those that are alike together."""
    alike: dict[int, list[Fraction]] = {}
    for level, error in errors.items():
        alike.setdefault(error, []).append(level)
    said = (
        f"{_quantile(expression, alike[error])}: {ranks(error, confidence, sampled=sampled)}"
        for error in sorted(alike)
    )
    return f"{'; '.join(said)}."


EVENLY = (
    "The ± of a quantile assumes that values lie about evenly around it; at 99.9 % it covers the "
    "noise whatever the values are."
)


def _quantile(expression: Expression | None, levels: Sequence[Fraction]) -> str:
    """Quantiles as SQL calls them."""
    name = _inside(expression)
    if levels == [Fraction(1, 2)]:
        return f"MEDIAN({name})"
    return f"QUANTILE({name}, {' and '.join(f'{float(level):g}' for level in levels)})"


def ranks(error: int, confidence: Fraction, *, sampled: bool = False) -> str:
    """A rank error: how many rows lie between the answer and the exact place, at most."""
    of = " of the sample" if sampled else ""
    return f"± {_of(error, 'rank')}{of} at {float(confidence * 100):g} %"


def extreme(function: Function, expression: Expression | None, level: Fraction, error: str) -> str:
    """What a private MIN or MAX means."""
    side = "below" if function is Function.MIN else "above"
    return (
        f"{function.value}({_inside(expression)}) is a private quantile: about "
        f"{float(level * 100):.2g} % of the rows lie {side} it, {error}, because the extreme "
        "value belongs to one person. Its ± is about that quantile."
    )


def _rises(block: Block) -> bool:
    """Whether a number can only fall when a unit is scaled down: a count, a sum from 0 on."""
    schema = schema_of(block.relation)
    for aggregate in block.aggregates:
        if aggregate.function in _UNBOUNDED:
            return True
        low = domain_of(aggregate.args[0], schema).low if aggregate.args else None
        if aggregate.function is Function.SUM and low is not None and low >= 0:
            return True
    return False


def _capped(
    query: Query, function: Function | None, *, apart: bool, lower: bool, known: bool
) -> str | None:
    """How much of one unit counts, and what becomes of more."""
    tally, cap, noun = query.tally, query.per_unit, noun_of(query)
    what, left_out = f"{_of(cap, 'row')} per {noun}", "(not in the ±)"
    if isinstance(tally, Sums):
        if not tally.is_weighed or (function is Function.COUNT_UNITS and cap >= tally.cells):
            return None  # nobody is in more groups than there are
        what = f"{_of(cap, 'group')} per {noun}" if function is Function.COUNT_UNITS else what
        what += " in averages" if function is Function.AVG else ""
        if apart:
            most = " and ".join(amount(tally.bound(term) * term.grain) for term in tally.terms)
            what = f"what one {noun} adds to {sums_words(tally.terms)} counts up to {most}"
        more = "a unit with more is scaled down as a whole"
        if known:
            left_out = ""
        elif lower:
            left_out = "(not in the ±): counts, and sums of non-negative values, are lower bounds"
    elif isinstance(tally, Cells) and tally.rows_per_unit is not None:
        more = "of a unit with more, some are left out evenly"
        left_out = "" if known else "(not in the ±): counts are lower bounds"
    elif isinstance(tally, Values) and tally.rows_per_unit is not None:
        more, left_out = "of a unit with more, some are left out evenly", "" if known else left_out
    elif isinstance(tally, Keys) and query.stability.rows is None:
        what, more = f"{_of(cap, 'group')} per {noun}", "of a unit with more, some are left out"
        left_out = "" if known else "(not in the ±): counts are lower bounds"
    elif isinstance(tally, Distinct) and query.stability.rows is None:
        what, more = f"{_of(cap, 'value')} per {noun}", "of a unit with more, some are left out"
    else:
        return None
    return f"Capped: {what}; {more} {left_out}".rstrip() + "."


def _is_listed(key: GroupKey) -> bool:
    """Whether rows may have other keys than those that a list declares, or none."""
    domain = key.domain
    if domain.keys is None or key.closed:
        return False
    whole = domain.is_bounded or domain.kind is Kind.BOOLEAN
    return domain.unlisted or (isinstance(key.expression, Field) and not whole)


def _ownerless(table: TableDomain) -> str | None:
    """That rows without an owner are left out, where there may be any: a fact of the policy."""
    if table.unit is None or table.unit.column is None:
        return None
    first = table.path[0].column if table.path else table.unit.column
    held = table.columns.get(first)
    if held is not None and not held.nullable and not table.path:
        return None
    leads = f" or leads to no {table.unit.noun}" if table.path else ""
    return f"Rows of {table.name} whose {first} is NULL{leads} belong to no unit and are left out."


def _inside(expression: Expression | None) -> str:
    return expression.name if isinstance(expression, Field) else "…"


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def noun_of(query: Query) -> str:
    """What one unit is called."""
    return next(table.unit.noun for table in query.tables if table.unit is not None)
