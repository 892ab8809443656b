"""A question before it is paid for: price, noise, error and why. Made without touching a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10, sqrt
from typing import Any, final

import sqlglot
from sqlglot import exp

from noisegate.exact import Number
from noisegate.inert import lines
from noisegate.mechanisms.base import Mechanism, to_record
from noisegate.mechanisms.gaussian import DiscreteGaussian
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP
from noisegate.query.display import bare, percent
from noisegate.query.estimates.draft import Draft
from noisegate.query.estimates.estimate import predicted
from noisegate.query.estimates.known import grains_of
from noisegate.query.estimates.purchase import Purchase
from noisegate.query.question import Question
from noisegate.query.shelf import Needed
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be measured, what it would cost now, and how far the answer may be off.

    ``price`` is what asking now would charge: less than ``epsilon`` where some of it was released
    before, 0 where all of it was. ``reused`` says in words what comes from earlier answers.
    ``rows`` finds about how many rows take part, if that was said or released. ``numbers`` are the
    columns of the answer that hold some.
    """

    sql: str
    question: Question
    bought: tuple[Purchase, ...]
    needed: tuple[tuple[Needed, ...], ...]
    epsilon: Fraction
    event: Event
    price: ApproxDP
    fits: bool
    rows: Callable[[], int | None] = lambda: None
    reused: tuple[str, ...] = ()
    clipping: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the answer's columns."""
        return self.question.columns

    def margins(self, confidence: Number = 0.95) -> dict[str, float | None]:
        """The ± to expect of each measured number, by the name under which the answer shows it.

        None where it depends on the rows (quantiles, and averages where no size is declared).
        """
        names, rows = shown_names(self.question), self.rows()
        found: dict[str, float | None] = {}
        for bought, needed in zip(self.bought, self.needed, strict=True):
            block = bought.draft.block
            widths = predicted(
                bought, confidence, rows=rows,
                known=lambda part, guessed, needed=needed: needed[part].expected(guessed),  # type: ignore[misc]
            )  # fmt: skip
            for name, width in widths.items():
                plain = name if len(self.bought) == 1 else f"{block.name}.{name}"
                found[names.get((block.name, name), plain)] = width
        return found

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the error bars do not cover."""
        drafted = (words for bought in self.bought for words in bought.caveats)
        return tuple(dict.fromkeys((*self.question.caveats, *drafted)))

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for --json."""
        return {
            "columns": list(self.columns),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            "fits": self.fits,
            "epsilon": float(self.epsilon),
            "confidence": float(confidence),
            "margins": self.margins(confidence),
            "measurements": [each for bought in self.bought for each in _measurements(bought)],
            "reused": list(self.reused),
            "clipping": list(self.clipping),
            "caveats": list(self.caveats),
        }

    def facts(self, confidence: Number = 0.95) -> list[tuple[str, str]]:
        """The plan in words, one fact a line."""
        lines = [("columns", ", ".join(self.columns))]
        names = shown_names(self.question)
        for bought in self.bought:
            lines += _groups(bought.draft, names)
            for record in _measurements(bought):
                lines.append(("measured", record["what"]))
                lines.append(("noise", "; ".join(record["noise"])))
                lines.append(("because", "; ".join(record["stability"])))
        for name, width in self.margins(confidence).items():
            sure = f"± {bare(_readable(width or 0))} at {percent(confidence)} confidence"
            words = "depends on the rows" if width is None else sure
            lines.append(("error", f"{name}: {words}"))
        lines += [("clipping", words) for words in self.clipping]
        lines += [("reused", words) for words in self.reused]
        lines += [("mind", words) for words in self.caveats]
        lines.append(("price", f"{self.price}" + ("" if self.fits else " (more than is left)")))
        return lines

    def __str__(self) -> str:
        return lines("\n".join(f"{name:12}{fact}" for name, fact in self.facts()))

    def _repr_html_(self) -> str:
        from noisegate.query.display import facts_html  # noqa: PLC0415 - notebooks only

        return facts_html(self.facts())


def _readable(width: float) -> float | int:
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


def _groups(draft: Draft, names: Mapping[tuple[str, str], str]) -> list[tuple[str, str]]:
    """The groups of a block, column by column."""
    lines = []
    for key, keys in zip(draft.block.by, draft.groups, strict=True):
        name = names.get((draft.block.name, key.name), key.name)
        if key.domain.keys is None and keys == (None,):
            lines.append(("groups", f"{name}: found privately"))
        else:
            some = ", ".join("NULL" if each is None else str(each) for each in keys[:6])
            more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
            lines.append(("groups", f"{name}: {some}{more}"))
    return lines


def _measurements(bought: Purchase) -> list[dict[str, Any]]:
    draft = bought.draft
    found = [
        _record(query, (mechanism,), "which groups exist")
        for query, mechanism in zip(draft.keys, bought.keys, strict=True)
    ]
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
        if isinstance(mechanism, Geometric):
            found.append(f"geometric of scale {float(mechanism.scale * grain):.4g}")
        elif isinstance(mechanism, DiscreteGaussian):
            sigma = sqrt(mechanism.variance) * float(grain)
            found.append(f"discrete Gaussian of σ {sigma:.4g}")
        else:
            found.append(str(to_record(mechanism)["mechanism"]).partition("/")[0])
    return found
