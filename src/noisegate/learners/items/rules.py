"""Association rules: who holds these items also holds those. All from counted sets, so free.

rules = AssociationRules(epsilon=1, k=20, size=2, confidence=0.5).fit(gate.matrix("baskets"))
for rule in rules.rules_: print(rule)
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, final

from noisegate.desk.plan import Plan
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.learners.fitting import Carded, FitExpected
from noisegate.learners.items.baskets import Itemset
from noisegate.learners.items.itemsets import FrequentItemsets
from noisegate.learners.matrix import Matrix
from noisegate.mechanisms.base import failure_of


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Baskets with ``given`` hold ``then`` with this confidence: ``lift`` times as often as all.

    ``ranges`` are where support, confidence and lift lie, at the level that was asked for.
    """

    given: tuple[str, ...]
    then: tuple[str, ...]
    support: float
    confidence: float
    lift: float
    ranges: Mapping[str, tuple[float, float]]

    def __str__(self) -> str:
        low, high = self.ranges["confidence"]
        return (
            f"{' + '.join(self.given)} → {' + '.join(self.then)}: support {self.support:.3f}, "
            f"confidence {self.confidence:.3f} ({low:.3f} to {high:.3f}), lift {self.lift:.2f}"
        )


class AssociationRules(Carded):
    """Rules between the parts of frequent sets, with at least a ``confidence``.

    The other parameters are those of `FrequentItemsets`; ``level`` is the confidence level of the
    ranges of a rule. After `fit`: ``rules_``, most confident first; ``itemsets_``, the fitted sets;
    and ``cost_``, ``remaining_``, ``guarantee_``, ``free_``.
    """

    def __init__(
        self,
        *,
        epsilon: Number | None = None,
        confidence: Number = 0.5,
        level: Number = USUAL,
        **search: Any,  # noqa: ANN401 - as for FrequentItemsets
    ) -> None:
        self.epsilon, self.confidence, self.level, self.search = epsilon, confidence, level, search

    def plan(self, matrix: Matrix, *, fresh: bool = False) -> Plan[FitExpected]:
        """The price of the search: rules are free. Spends nothing, reads no row."""
        return self._sets().plan(matrix, fresh=fresh)

    def _sets(self) -> FrequentItemsets:
        """The sets to be found, with their parts."""
        least = fraction(self.confidence, name="confidence")
        if not 0 <= least <= 1:
            raise SpecError("confidence is not a share.", fix="For example: 0.5.")
        failure_of(self.level)
        search = {"least": 2, "size": 2} | self.search | {"subsets": True}
        return FrequentItemsets(epsilon=self.epsilon, **search)

    def fit(self, matrix: Matrix, *, fresh: bool = False) -> "AssociationRules":
        """Find frequent sets with their parts, and the rules between those."""
        least = fraction(self.confidence, name="confidence")
        found = self._sets().fit(matrix, fresh=fresh)
        self.itemsets_ = found
        self._paid(found._receipt, matrix)  # noqa: SLF001 - of the sets that they are made of
        self.free_ = found.free_
        names = {name: place for place, name in enumerate(found.named(range(len(matrix.marks))))}
        sets = [tuple(sorted(names[item] for item in each.items)) for each in found.itemsets_]
        made = [rule for each in sets for rule in _rules(each, found, self.level)]
        kept = [rule for rule in made if rule.confidence >= float(least)]
        self.rules_ = sorted(kept, key=lambda rule: (-rule.confidence, rule.given, rule.then))
        return self


def _rules(each: Itemset, found: FrequentItemsets, level: Number) -> list[Rule]:
    """All rules from one part of a set to the rest."""
    made = []
    for size in range(1, len(each)):
        for given in combinations(each, size):
            then = tuple(item for item in each if item not in given)
            rule = _rule(each, given, then, found, level)
            if rule is not None:
                made.append(rule)
    return made


def _rule(
    each: Itemset, given: Itemset, then: Itemset, found: FrequentItemsets, level: Number
) -> Rule | None:
    """The rule and its ranges; None where nothing is known of a part, or hardly anybody has it.

    Claim: all three ranges hold together with the level. Why: each of three counts and the number
        of baskets is within its bound but for a fourth of what may fail; in between, quotients
        are furthest off at the ends.
    """
    counts = found.counts
    if given not in counts or then not in counts:
        return None
    both, left, right, rows = counts[each], counts[given], counts[then], found.rows_
    fourth = 1 - failure_of(level) / 4
    off, rows_off = found.within(fourth), found.rows_within(fourth)
    if min(left, right, rows) <= 0:
        return None
    confidence = min(1.0, max(0.0, both / left))
    low, high = max(0.0, both - off), max(0.0, both + off)
    sure = _share(low, left + off), _share(high, left - off)
    others = _share(right - off, rows + rows_off), _share(right + off, rows - rows_off)
    top = sure[1] / others[0] if others[0] > 0 else float("inf")
    return Rule(
        given=found.named(given),
        then=found.named(then),
        support=min(1.0, max(0.0, both / rows)),
        confidence=confidence,
        lift=confidence / min(1.0, right / rows),
        ranges={
            "support": (_share(low, rows + rows_off), _share(high, rows - rows_off)),
            "confidence": sure,
            "lift": (sure[0] / others[1], top),
        },
    )


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part) / whole) if whole > 0 else 1.0
