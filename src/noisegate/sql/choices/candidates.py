"""Candidates of a private choice, and their scores: what one SELECT of counts and sums says.

Two spellings. With GROUP BY, each declared key is a candidate and its number the score:

    SELECT ward, COUNT(*) FROM visits GROUP BY ward

Without, each aggregate is a candidate, under the name it is shown by; scores may overlap:

    SELECT SUM(CASE WHEN bid >= 1 THEN 1 END) AS "1", SUM(CASE WHEN bid >= 2 THEN 2 END) AS "2" …
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Rows, Sums, Term
from noisegate.desk.display.numbers import bare
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Domain, Key, Kind
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.terms import masked, present, require_bounds, sum_term
from noisegate.sql.drafts.words import capped_words, caveats
from noisegate.sql.question import Aggregate, Block, Function, Question
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

Candidate: TypeAlias = Key | float | tuple[Key | float, ...]

_FORM: Final = (
    "For example: SELECT ward, COUNT(*) FROM visits GROUP BY ward, or SELECT SUM(a) AS a, SUM(b) "
    "AS b FROM visits."
)
_SCORES: Final = (Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS, Function.SUM)
_ONE: Final = Domain(kind=Kind.INTEGER, low=Fraction(0), high=Fraction(1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What can be chosen, and the sums that are their scores, in whole multiples of ``grain``.

    ``monotone``: one more person moves all scores one way.
    """

    names: Sequence[Candidate]
    query: Query
    grain: Fraction
    monotone: bool
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls, names: Sequence[Candidate], query: Query, grain: Fraction, words: tuple[str, ...] = ()
    ) -> "Candidates":
        """Those of a question; of a sample, scores are scaled up to all rows."""
        if (chance := query.sample) is not None:
            sample = f"The best of a secret sample that holds each unit with probability {chance}."
            grain, words = grain / chance, (sample,)
        whole = isinstance(query.tally, Rows)  # a row is held by a stretch, or not
        monotone = whole or query.is_monotone
        return cls(names=names, query=query, grain=grain, monotone=monotone, caveats=words)

    @property
    def sensitivity(self) -> Fraction:
        """How far one unit moves any one score, in grains."""
        if isinstance(self.query.tally, Rows):
            return Fraction(self.query.weight)
        return self.query.any_one

    @property
    def path(self) -> tuple[str, ...]:
        """In words, how far one unit moves a score."""
        facts = self.query.stability
        noun = next(table.unit.noun for table in facts.tables if table.unit is not None)
        moved = bare(float(self.sensitivity * self.grain))
        return (*facts.path, f"one {noun} changes each score by at most {moved}")


def candidates_of(
    question: Question,
    terms: Terms,
    *,
    accountant: str,
    least: bool = False,
    nulls: bool = False,
) -> Candidates:
    """The candidates of a question, or a refusal. With ``least``, low sums are high scores.

    With ``nulls``, rows without a key are a candidate as well.
    """
    block = _block(question)
    if block.by:
        names, tally, words = _by_keys(block, terms, accountant, nulls=nulls)
    else:
        names, tally, words = _by_columns(question, block, terms)
    if least:
        turned = (
            replace(each, expression=Call("negate", (each.expression,)), low=-each.high,
                    high=-each.low)
            for each in tally.terms
        )  # fmt: skip
        tally = replace(tally, terms=tuple(turned))
    return Candidates.of(names, Query(tally), tally.terms[0].grain, words)


_Found: TypeAlias = tuple[tuple[Candidate, ...], Sums, tuple[str, ...]]


def _block(question: Question) -> Block:
    if len(question.blocks) != 1 or question.picked is None or question.explain:
        raise Unsupported("A private choice takes one plain SELECT over private rows.", fix=_FORM)
    (block,) = question.blocks
    if not block.aggregates or any(each.function not in _SCORES for each in block.aggregates):
        raise Unsupported(
            "A score must be a COUNT or a SUM, whose sensitivity is known.", fix=_FORM
        )
    if block.by and (len(block.aggregates) != 1 or len(set(block.sets)) != 1):
        raise Unsupported(
            "With GROUP BY, each group is one candidate and needs exactly one score.",
            fix="Ask for one aggregate with one GROUP BY, or for several aggregates without GROUP "
            "BY.",
        )
    return block


def _by_keys(block: Block, terms: Terms, accountant: str, *, nulls: bool) -> _Found:
    """All combinations of declared keys; rows without a key only with ``nulls``."""
    found = []
    for key in block.by:
        if key.domain.keys is None:
            raise Unsupported(
                "The candidates are not declared.",
                fix="Declare the column's keys, or declare its bounds and use BIN(x, width).",
            )
        if nulls:
            found.append(key)
            continue
        listed = tuple(each for each in key.domain.keys if each is not None)
        found.append(replace(key, domain=replace(key.domain, keys=listed, nullable=False)))
    asked = replace(block, by=tuple(found))
    caps = _caps(asked, terms)
    drafted = draft(asked, caps, accountant=accountant, derive=False)
    tally = drafted.parts[0].query.tally
    if len(drafted.parts) != 1 or not isinstance(tally, Sums) or len(tally.terms) != 1:
        raise Unsupported("The score is not a single sum.", fix=_FORM)
    plain = replace(tally, by=tuple(replace(each, rest=False) for each in tally.by))
    rows = tuple(product(*(grouping.keys for grouping in plain.by)))
    names = tuple(row[0] if len(row) == 1 else row for row in rows)
    return names, plain, () if caps.groups_per_unit == CAP_MAX else drafted.caveats


def _caps(block: Block, terms: Terms) -> Caps:
    """People are counted in any number of groups: no score moves by more than 1 for that."""
    caps = caps_of(block, terms)
    if block.aggregates[0].function is Function.COUNT_UNITS and terms.groups_per_unit is None:
        return replace(caps, groups_per_unit=CAP_MAX)
    return caps


def _by_columns(question: Question, block: Block, terms: Terms) -> _Found:
    """The aggregates, all in multiples of one grain, so that their scores compare."""
    by_name = {each.name: each for each in block.aggregates}
    asked = [by_name[name] for name in question.picked or ()]
    names = question.columns
    if len(asked) < 2 or len(set(names)) < len(names):
        raise Unsupported("A choice needs at least two candidates with different names.", fix=_FORM)
    rows, caps = stability_of(block.relation).rows, caps_of(block, terms)
    cap = None if rows is not None else caps.rows_per_unit
    if rows is None and cap is None:
        raise Unsupported(
            "The rows per unit have no bound, so the choice could not be private.",
            fix="Give rows_per_unit=..., or declare it in the policy.",
            about="cap",
        )
    schema = schema_of(block.relation)
    scores = [_score(each, schema, one_row=rows == 1) for each in asked]
    tally = Sums(relation=block.relation, terms=_on_one_grain(scores, cap), rows_per_unit=cap)
    words = (*capped_words(block, [(Query(tally), None, False)]), *caveats(block))
    return tuple(names), tally, words


def _score(aggregate: Aggregate, schema: Schema, *, one_row: bool) -> tuple[Expression, Domain]:
    """What an aggregate adds up for each row, and its bounds."""
    where = () if aggregate.where is None else (aggregate.where,)
    function = aggregate.function
    if function is Function.COUNT_UNITS and not one_row:
        raise Unsupported(
            "A COUNT of units can be a score only with GROUP BY.",
            fix="Add GROUP BY, or count rows.",
        )
    if function is not Function.SUM:
        held = [present(arg) for arg in aggregate.args]
        return masked(Literal(1), (*where, *held)), _ONE
    (value,) = aggregate.args
    domain = domain_of(value, schema)
    require_bounds(domain, "A score")
    return masked(value, where), domain


def _on_one_grain(scores: Sequence[tuple[Expression, Domain]], cap: int | None) -> tuple[Term, ...]:
    """Whole numbers where all are, else steps far below the largest."""
    terms = [sum_term(value, domain, cap=cap) for value, domain in scores]
    grains = {term.grain for term in terms}
    grain = Fraction(1)
    if grains != {grain}:
        size = max(domain.magnitude or Fraction(0) for _, domain in scores)
        widest = Domain(kind=Kind.NUMBER, low=-size, high=size)
        grain = sum_term(scores[0][0], widest, cap=cap).grain
    return tuple(_on_grain(value, domain, grain) for value, domain in scores)


def _on_grain(value: Expression, domain: Domain, grain: Fraction) -> Term:
    low, high = require_bounds(domain, "A score")
    bottom, top = floor(low / grain), ceil(high / grain)
    return Term(expression=value, grain=grain, low=bottom, high=max(top, bottom + 1))
