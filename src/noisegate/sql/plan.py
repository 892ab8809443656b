"""A question before it is paid for: price, noise, error and why. Made without touching a row."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor, log10, sqrt
from re import escape, sub
from typing import Any, Final, TypeAlias, final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from noisegate.arrow import holds_numbers
from noisegate.desk.display.numbers import bare, percent
from noisegate.desk.plan import Fact, Plan
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism, to_record
from noisegate.privacy.event import Event
from noisegate.sql.drafts.draft import Draft
from noisegate.sql.drafts.purchase import Purchase, finder_of
from noisegate.sql.laws.known import grains_of, is_key_selection, is_quantiles, is_thresholded
from noisegate.sql.question import Question
from noisegate.sql.steps.shown import Expectation, Foreseen
from noisegate.transforms.query import Query

_OF_FIRST: Final = ("first", "groups", "measured", "noise", "because", "error", "price")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerExpected:
    """What would be measured for a question, and how far the answer may be off.

    ``event`` is what asking now would charge. ``reused`` says in words what comes from earlier
    answers. ``error`` says how far numbers may be off. ``schema`` has the columns of the answer and
    their types, as the free SQL made them of made-up numbers.
    ``firsts`` are the plans of numbers that are measured before the question, and in its price.
    """

    question: Question
    bought: tuple[Purchase, ...]
    event: Event
    error: Expectation
    reused: tuple[str, ...] = ()
    clipping: tuple[str, ...] = ()
    schema: pa.Schema
    firsts: "tuple[AnswerPlan, ...]" = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the answer's columns."""
        return self.question.columns

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold numbers."""
        return tuple(each.name for each in self.schema if holds_numbers(each.type))

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the error bars do not cover."""
        drafted = (words for bought in self.bought for words in bought.caveats)
        return tuple(dict.fromkeys((*self.question.caveats, *drafted)))

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± to expect of each noisy column of the answer, in its worst row.

        Averages, ratios and quantiles err by how many rows there are: as said (``rows``), or as
        released before. None where that is not known, where a bound is still to be estimated, and
        where the free SQL does not say how errors follow. Conditions may leave any share of the
        rows: the ± is the larger one. That of quantiles is for values that are spread evenly over
        their bounds.
        """
        found = self.error.columns(confidence).items()
        return {name: None if each.at_best or each.guessed else each.most for name, each in found}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "columns": list(self.columns),
            "margins_at_best": {
                name: each.most
                for name, each in self.error.columns(confidence).items()
                if each.at_best and not each.guessed
            },
            "measurements": [each for bought in self.bought for each in _measurements(bought)],
            "reused": list(self.reused),
            "clipping": list(self.clipping),
            **(
                {"first": [each.to_dict(confidence) for each in self.firsts]} if self.firsts else {}
            ),
        }

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        lines = [("columns", ", ".join(self.columns))]
        for each in self.firsts:
            told = each.facts(confidence)
            lines += [("first", each.sql), *(line for line in told if line[0] in _OF_FIRST)]
        names = shown_names(self.question)
        for bought in self.bought:
            lines += _groups(bought, names)
            for record in _measurements(bought):
                lines.append(("measured", record["what"]))
                lines.append(("noise", "; ".join(record["noise"])))
                because = _with_names("; ".join(record["stability"]), bought.draft, names)
                lines.append(("because", because))
        lines += self._errors(confidence)
        lines += [("clipping", words) for words in self.clipping]
        return lines + [("reused", words) for words in self.reused]

    def _errors(self, confidence: Number) -> list[tuple[str, str]]:
        """How far each number may be off."""
        names, found = shown_names(self.question), self.error.columns(confidence)
        ranked = {
            names.get((bought.draft.block.name, each.aggregate.name), each.aggregate.name)
            for bought in self.bought
            for part, noises in zip(bought.draft.parts, bought.mechanisms, strict=True)
            if is_quantiles(noises[0])
            for each in bought.draft.recipes
            if each.direct in part.pieces
        }
        said = {name: _off(each, confidence) for name, each in found.items()}
        said |= dict.fromkeys(ranked & said.keys(), "in ranks, as stated below")
        return [("error", f"{name}: {words}") for name, words in said.items()]


AnswerPlan: TypeAlias = Plan[AnswerExpected]


def _off(foreseen: Foreseen, confidence: Number) -> str:
    """An error in words: of all rows, or from the best to the worst."""
    if foreseen.most is None or foreseen.least is None:
        return "depends on the rows" if foreseen.followed else "no ± is known"
    ends = [bare(readable(end)) for end in (foreseen.least, foreseen.most)]
    words = f"± {' to '.join(dict.fromkeys(ends))} at {percent(confidence)} confidence"
    if foreseen.guessed:
        return f"depends on the bound that is estimated: {words} for that of one row"
    if not foreseen.rows:
        return words
    rows = " and ".join(f"{each:,}" for each in foreseen.rows)
    if foreseen.at_best:
        return f"depends on the rows: {words} with {rows} of them, the most that there can be"
    return f"{words}, for about {rows} rows"


def readable(width: float) -> float | int:
    """A width to look at, never smaller than it is: about three digits."""
    if width == int(width) or width >= 100:
        return ceil(width)
    step = Fraction(10) ** (floor(log10(width)) - 2)
    return float(ceil(Fraction(width) / step) * step)


def shown_names(question: Question) -> dict[tuple[str, str], str]:
    """For each released column that the answer shows as it is: its name there."""
    tree = sqlglot.parse_one(question.outer, dialect="duckdb")
    if not isinstance(tree, exp.Select) or len(question.blocks) != 1:
        return {}
    found = {}
    for item, name in zip(tree.expressions, question.columns, strict=False):
        inner = item.unalias()
        if isinstance(inner, exp.Column):
            found[question.blocks[0].name, inner.name] = name
    return found


def is_calculated(question: Question) -> bool:
    """Whether the answer shows what is calculated from released numbers, and not these alone."""
    if question.picked is not None or not question.blocks:
        return False
    tree = sqlglot.parse_one(question.outer, dialect="duckdb")
    items = [item.unalias() for query in tree.find_all(exp.Select) for item in query.expressions]
    return any(item.find(exp.Column) and not isinstance(item, exp.Column) for item in items)


def _groups(bought: Purchase, names: Mapping[tuple[str, str], str]) -> list[tuple[str, str]]:
    """The groups of a block, column by column."""
    draft, lines = bought.draft, []
    finders = [finder_of(each) for each in bought.keys]
    least = max((each.sure for each in finders), default=0)
    certain = all(is_key_selection(each) for each in finders)
    often = "for certain" if certain else "nearly always"
    for key, keys in zip(draft.block.by, draft.groups, strict=True):
        name = names.get((draft.block.name, key.name), key.name)
        if key.domain.keys is None and keys == (None,):
            lines.append(
                ("groups", f"{name}: partition selection, those of {least:,} units {often}")
            )
        else:
            some = ", ".join("NULL" if each is None else str(each) for each in keys[:6])
            more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
            lines.append(("groups", f"{name}: {some}{more}"))
    return lines


def _with_names(words: str, draft: Draft, names: Mapping[tuple[str, str], str]) -> str:
    """The same words with the keys of the block under the names that the answer shows."""
    for key in draft.block.by:
        shown = names.get((draft.block.name, key.name), key.name)
        words = sub(rf"\b{escape(key.name)}\b", lambda _, shown=shown: shown, words)  # type: ignore[misc]
    return words


def _measurements(bought: Purchase) -> list[dict[str, Any]]:
    draft = bought.draft
    what = "which groups exist" + ("" if draft.decided is None else ", and the units of each")
    found = [_record(each.query, each.mechanisms, what) for each in bought.keys]
    for part, mechanisms in zip(draft.parts, bought.mechanisms, strict=True):
        cells = draft.cells(part.columns)
        what = type(part.query.tally).__name__.lower()
        count, where = len(mechanisms), "1 cell" if cells == 1 else f"{cells} cells"
        words = f"{count} {what if count > 1 else what.rstrip('s')} in {where}"
        found.append(_record(part.query, mechanisms, words))
    return found


def _record(query: Query, mechanisms: tuple[Mechanism[Any], ...], what: str) -> dict[str, Any]:
    return {
        "what": what,
        "noise": _noises(query, mechanisms),
        "sensitivity": [str(each.value) for each in query.l1s],
        "stability": list(query.path),
        "mechanisms": [to_record(mechanism) for mechanism in mechanisms],
    }


def _noises(query: Query, mechanisms: tuple[Mechanism[Any], ...]) -> list[str]:
    """The noise in words, in the unit of what is measured."""
    found = []
    for mechanism, grain in zip(mechanisms, grains_of(query), strict=True):
        noise, more = mechanism, ""
        if is_thresholded(mechanism):
            noise, more = mechanism.noise, f", shown from {mechanism.threshold:,} on"
        if isinstance(noise, Geometric):
            found.append(f"geometric of scale {float(noise.scale * grain):.4g}{more}")
        elif isinstance(noise, DiscreteGaussian):
            sigma = sqrt(noise.variance) * float(grain)
            found.append(f"discrete Gaussian of σ {sigma:.4g}{more}")
        else:
            found.append(str(to_record(mechanism)["mechanism"]).partition("/")[0])
    return found
