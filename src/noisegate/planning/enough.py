"""How many rows k questions need, or how sharp they are, or what they cost: n = kb / (γε), in full.

The textbook formula leaves out how surely it holds. With ε for all k questions together, each has
ε/k, and noise of scale b k / ε on its sum stays within γ n with probability 1 - e^{-γnε/(kb)}; all
of them together, except with k e^{-γnε/(kb)}. So

    n γ ε = f b ln(k / β),   f = k;   n = 1 for sums and counts;   f = 1 for cells of a histogram

since cells are disjoint and each has the whole ε. Given all but one, the last follows.

>>> found = enough("mean", queries=10, bound=1, tolerance="0.01", epsilon=1, confidence="0.95")
>>> found.rows, found.textbook_rows
(5299, 1000)
>>> float(round(enough("count", queries=10, epsilon=1, confidence="0.95").tolerance, 3))
52.983

Before any question is asked it also says how many a budget buys:

>>> sample_size(bound=1, accuracy="0.01", epsilon="0.1", failure="0.05")
2996
>>> from noisegate.accounting.pure import PureAccountant
>>> from noisegate.privacy.event import DeclaredEvent
>>> questions(DeclaredEvent(epsilon=Fraction(1, 10)), ApproxDP(2), accountant=PureAccountant())
20
"""

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Final, Literal, TypeAlias, final, get_args

from noisegate.accounting.accountant import Accountant
from noisegate.accounting.search import digits_down, digits_up
from noisegate.errors import SpecError
from noisegate.exact import Number, Real, fraction, lower, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.planning.calibrate import require_delta
from noisegate.planning.composition import optimal_delta_up
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP

What: TypeAlias = Literal["mean", "sum", "count", "histogram"]
_QUERIES_MAX: Final = 1 << 40


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """Questions that are all within ``tolerance`` together, with ``confidence``, for ``epsilon``.

    ``solved`` is what followed from the others. ``rows`` is None but for means: sums and counts
    err as much on any number of rows.
    """

    what: What
    solved: str
    queries: int
    bound: Fraction
    tolerance: Fraction
    epsilon: Fraction
    rows: int | None
    confidence: Fraction

    @property
    def epsilon_each(self) -> Fraction:
        """What each question has of ε: a k-th, or all of it where cells are disjoint."""
        return self.epsilon / _factor(self.what, self.queries)

    @property
    def textbook_rows(self) -> int:
        """N = kb / (γε): enough with the confidence of `textbook_confidence`."""
        factor = _factor(self.what, self.queries)
        return ceil(factor * self.bound / (self.tolerance * self.epsilon))

    @property
    def textbook_confidence(self) -> tuple[Fraction, Fraction]:
        """At n = kb / (γε): that one question is within γ, and that all are. Rounding: down."""
        one = lower(lambda: -real(-1).expm1())
        return one, lower(lambda: (-real(-1).expm1()) ** self.queries)

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "what": self.what, "solved": self.solved, "queries": self.queries,
            "bound": float(self.bound), "tolerance": float(self.tolerance),
            "epsilon": float(self.epsilon), "epsilon_each": float(self.epsilon_each),
            "rows": self.rows, "confidence": float(self.confidence),
            "textbook_rows": self.textbook_rows if self.what == "mean" else None,
        }  # fmt: skip

    def facts(self) -> list[tuple[str, str]]:
        """In words, one fact a line; what followed is marked."""
        words = {
            "queries": ("cells" if self.what == "histogram" else "questions", f"{self.queries:,}"),
            "bound": ("one person moves a number by", _short(self.bound)),
            "tolerance": ("all within ±", _short(self.tolerance)),
            "epsilon": ("ε of all together", _short(self.epsilon)),
            "rows": ("rows", "any" if self.rows is None else f"{self.rows:,}"),
            "confidence": ("confidence", f"{100 * float(self.confidence):.6g}%"),
        }
        found = [
            (name + (" ← solved" if key == self.solved else ""), value)
            for key, (name, value) in words.items()
        ]
        found.append(("ε of each", _short(self.epsilon_each)))
        if self.what != "mean":
            return found
        one, all_of_them = self.textbook_confidence
        return [
            *found,
            ("rows by n = kb/(γε)", f"{self.textbook_rows:,}"),
            ("… its confidence, one question", f"{float(one):.1%}"),
            ("… its confidence, all together", f"{float(all_of_them):.2%}"),
        ]


def enough(  # noqa: PLR0913 - the six of the formula
    what: What = "mean",
    *,
    queries: int | None = None,
    bound: Number | None = None,
    tolerance: Number | None = None,
    epsilon: Number | None = None,
    rows: int | None = None,
    confidence: Number | None = None,
) -> Enough:
    """What is left out, from all others. Without a confidence, it is 0.95 or what is left out.

    Claim: with probability at least ``confidence`` all questions are within ``tolerance``. For
        means of values in an interval of length ``bound``, over a public number of rows (under
        change-one); for sums and counts, of which one unit moves each by at most ``bound`` (under
        add/remove). Laplace noise; the geometric noise of the gate errs no more on its grid.
    Why: Pr[|noise| > t] = e^{-t/scale}, and a union bound over the questions. Rounding: against
        whoever asks: rows, tolerance and ε up; bound, questions and confidence down.
    """
    if what not in get_args(What):
        raise SpecError(
            f"There is no formula for {what!r}.",
            fix=f"Use {', '.join(get_args(What))}.",
            about="what",
        )
    given = {
        "queries": queries, "bound": bound, "tolerance": tolerance, "epsilon": epsilon,
        "confidence": confidence,
    } | ({"rows": rows} if what == "mean" else {})  # fmt: skip
    if bound is None and what in ("count", "histogram"):
        given["bound"] = 1
    if confidence is None and any(given[name] is None for name in given if name != "confidence"):
        given["confidence"] = "0.95"
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1 or (rows is not None and what != "mean"):
        raise SpecError(
            f"All but one of {', '.join(given)} must be given.",
            fix="Leave out exactly one of them: it is what will be solved.",
            about="missing",
        )
    known = {name: _checked(name, value) for name, value in given.items() if value is not None}
    known.setdefault("rows", Fraction(1))
    (solved,) = missing
    known[solved] = _SOLVE[solved](known, what)
    return Enough(
        what=what, solved=solved, queries=int(known["queries"]), bound=known["bound"],
        tolerance=known["tolerance"], epsilon=known["epsilon"],
        rows=int(known["rows"]) if what == "mean" else None, confidence=known["confidence"],
    )  # fmt: skip


def _factor(what: What, queries: int | Fraction) -> Fraction:
    return Fraction(1) if what == "histogram" else Fraction(queries)


def _need(known: dict[str, Fraction], what: What, queries: Fraction) -> Fraction:
    """F b ln(k / β), rounded up; without b where that is what is asked for."""
    logarithm = upper(lambda: real(queries / (1 - known["confidence"])).log())
    return _factor(what, queries) * known.get("bound", Fraction(1)) * logarithm


def _quotient(*names: str) -> Callable[[dict[str, Fraction], What], Fraction]:
    def solved(known: dict[str, Fraction], what: What) -> Fraction:
        found = _need(known, what, known["queries"])
        for name in names:
            found /= known[name]
        return digits_up(found)

    return solved


def _product(known: dict[str, Fraction]) -> Fraction:
    return known["rows"] * known["tolerance"] * known["epsilon"]


def _queries(known: dict[str, Fraction], what: What) -> Fraction:
    def fits(count: int) -> bool:
        return _need(known, what, Fraction(count)) <= _product(known)

    if not fits(1):
        raise SpecError(
            "Not even one question is within the tolerance.",
            fix="Allow more ε, rows or tolerance, or less confidence.",
            about="queries",
        )
    low, high = 1, 2
    while high < _QUERIES_MAX and fits(high):
        low, high = high, 2 * high
    return Fraction(
        bisect_left(range(high), x=True, lo=low + 1, key=lambda count: not fits(count)) - 1
    )


def _confidence(known: dict[str, Fraction], what: What) -> Fraction:
    exponent = _product(known) / (_factor(what, known["queries"]) * known["bound"])

    def held() -> Real:
        return 1 - real(known["queries"]) * real(-exponent).exp()

    found = lower(held)
    if found <= 0:
        raise SpecError(
            "So many questions are not surely within the tolerance at all.",
            fix="Allow more ε, rows or tolerance, or fewer questions.",
            about="confidence",
        )
    return found


_SOLVE: Final[dict[str, Callable[[dict[str, Fraction], What], Fraction]]] = {
    "rows": lambda known, what: Fraction(ceil(_quotient("tolerance", "epsilon")(known, what))),
    "tolerance": _quotient("rows", "epsilon"),
    "epsilon": _quotient("rows", "tolerance"),
    "bound": lambda known, what: digits_down(
        _product(known) / _need(known, what, known["queries"])
    ),
    "queries": _queries,
    "confidence": _confidence,
}


def _checked(name: str, value: Number) -> Fraction:
    exact = positive(value, name=name)
    if name in ("queries", "rows") and exact.denominator != 1:
        raise SpecError(f"{name} is not a whole number.", fix="Use one.", about="whole")
    if name == "confidence" and not 0 < fraction(value, name=name) < 1:
        raise SpecError("confidence is not below 1.", fix="For example: 0.95.", about="confidence")
    return exact


def _short(value: Fraction) -> str:
    return f"{float(value):,.6g}"


def sample_size(
    *, bound: Number, accuracy: Number, epsilon: Number, failure: Number, queries: int = 1
) -> int:
    """How many rows make every one of k averages accurate to γ, except with probability β.

    Claim: n = ⌈b ln(k/β)/(γε)⌉ for averages of values in an interval of length b, each asked with
        its own ε (under change-one, Laplace noise of scale b/(nε)). This is the noise alone; the
        sampling error of the rows comes on top.
    Why: Pr[|noise| > γ] = e^{-γnε/b} ≤ β/k, and a union bound. The textbook n = b/(γε) is the case
        ln(k/β) = 1: a failure probability of 1/e for one query. Rounding: up.
    """
    reach = positive(bound, name="bound") / (
        positive(accuracy, name="accuracy") * positive(epsilon, name="epsilon")
    )
    chance = _chance_of(failure)
    _require_count(queries)
    return ceil(reach * upper(lambda: real(queries / chance).log()))


def questions(event: Event, budget: ApproxDP, *, accountant: Accountant) -> int:
    """How many times the budget buys the event, by the accountant that will authorise it.

    Claim: ⌊limit/price⌋, the smaller of both parts. Rounding: down.
    """
    price, limit = accountant.price(event), accountant.limit(budget)
    pairs = ((limit.amount, price.amount), (limit.delta, price.delta))
    counts = [have // each for have, each in pairs if each > 0]
    if not counts:
        raise SpecError(
            "The event is free.", fix="It can be asked as often as you like.", about="free"
        )
    return min(counts)


def questions_optimal(budget: ApproxDP, *, epsilon_each: Number) -> int:
    """How many ε-private questions fit by optimal composition: a report, not an authorisation.

    Claim: the largest k with `optimal_delta_up` ≤ δ. Why: [KOV15]; valid for a k fixed beforehand.
    """
    each = positive(epsilon_each, name="epsilon_each")
    require_delta(budget)
    low = floor(budget.epsilon / each)  # basic composition needs no δ
    if budget.delta == 0:
        return low

    def fits(count: int) -> bool:
        found = optimal_delta_up(each, count=count, total=budget.epsilon)
        return found <= budget.delta

    high = low + 1
    while fits(high):
        low, high = high, 2 * high
    return bisect_left(range(high), x=True, lo=low + 1, key=lambda count: not fits(count)) - 1


def _chance_of(failure: Number) -> Fraction:
    exact = positive(failure, name="failure")
    if exact >= 1:
        raise SpecError(
            f"failure is {failure}.",
            fix="Use a probability below 1, such as 0.05.",
            about="failure",
        )
    return exact


def _require_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SpecError(
            f"The number is {count!r}.", fix="Use a whole number of at least 1.", about="count"
        )
