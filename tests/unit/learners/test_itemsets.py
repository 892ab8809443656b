"""Frequent itemsets and rules: found as by hand where noise is small, charged and stated rightly."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import SpecError
from noisegate.learners.items.baskets import Supports
from noisegate.learners.items.itemsets import FrequentItemsets, Search, search
from noisegate.learners.items.rules import AssociationRules
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.geometric import Geometric

ITEMS = ("bread", "milk", "beer", "tea", "soap")


def held(count=600):
    """Milk goes with bread, beer without tea; soap is rare."""
    chance = np.random.default_rng(2)
    table = chance.random((count, 5)) < [0.6, 0.3, 0.3, 0.4, 0.02]
    table[:, 1] |= table[:, 0] & (chance.random(count) < 0.5)
    table[:, 3] &= ~table[:, 2]
    return table


def by_hand(table, size, least=1):
    sets = [each for n in range(least, size + 1) for each in combinations(range(5), n)]
    return {each: int(table[:, each].all(axis=1).sum()) for each in sets}


def gate(epsilon=100_000, **more):
    return ng.open(pa.table(dict(zip(ITEMS, held().T, strict=True))), epsilon=epsilon, **more)


def pairs(epsilon=100_000):
    who, item = np.nonzero(held())
    twice = np.concatenate([np.arange(who.size), np.arange(0, who.size, 3)])  # bought again
    rows = pa.table({"who": who[twice], "item": [ITEMS[i] for i in item[twice]]})
    return ng.open(
        rows, epsilon=epsilon, unit="who", rows_per_unit=4, columns={"item": {"in": list(ITEMS)}}
    )


def best(counts, k):
    return sorted(counts, key=lambda each: (-counts[each], each))[:k]


# searching without noise


class Exact:
    """Baskets without noise, for the search alone."""

    items = 5

    def __init__(self, table):
        self._table, self.spent, self.asked = table, Fraction(0), []

    def choose(self, sets, k, share):
        self.spent += share
        counts = {each: int(self._table[:, each].all(axis=1).sum()) for each in sets}
        return best(counts, k)

    def supports(self, sets, share):
        self.spent += share
        self.asked.append(list(sets))
        counts = np.array([float(self._table[:, each].all(axis=1).sum()) for each in sets])
        noise = Geometric(scale=1)
        return Supports(
            sets=tuple(sets), counts=counts, rows=float(len(self._table)), noise=noise,
            count_noise=noise, reach=1, whole=1,
        )  # fmt: skip


def plan(**terms):
    usual = {"method": "apriori", "k": None, "support": None, "size": 3, "least": 1}
    return Search(**(usual | {"subsets": False} | terms))


@pytest.mark.parametrize("support", ["0.05", "0.2", "0.5"])
def test_apriori_counts_every_frequent_set_and_few_others(support):
    ask, share = Exact(held()), Fraction(support)
    rounds = search(ask, plan(support=share))
    counted = {each for part in rounds for each in part.sets}
    exact = by_hand(held(), 3)
    assert {each for each, count in exact.items() if count >= share * 600} <= counted
    for each in counted:  # nothing whose part is rare
        assert all(exact[p] >= share * 600 for n in range(1, len(each)) for p in combinations(each, n))  # fmt: skip
    assert ask.spent <= 1


def test_apriori_for_k_keeps_what_may_still_be_among_them():
    rounds = search(Exact(held()), plan(k=6))
    counted = {each for part in rounds for each in part.sets}
    assert set(best(by_hand(held(), 3), 6)) <= counted


def test_top_k_counts_the_chosen_first_and_their_parts_for_rules():
    ask = Exact(held())
    (found,) = search(ask, plan(method="top-k", k=3, least=2, subsets=True))
    chosen = best(by_hand(held(), 3, least=2), 3)
    assert list(found.sets[:3]) == chosen
    assert set(found.sets[3:]) == {p for each in chosen for n in range(1, len(each))
                                   for p in combinations(each, n)}  # fmt: skip
    assert ask.spent == 1
    every = Exact(held())
    search(every, plan(method="top-k", k=5, size=1))
    assert (every.spent, len(every.asked[0])) == (1, 5)


# through the door


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("method", ["top-k", "apriori"])
def test_with_hardly_any_noise_the_most_frequent_are_found(accountant, method):
    asked = gate(delta="1e-6", accountant=accountant)
    found = FrequentItemsets(epsilon=400, k=6, size=3, method=method).fit(asked.matrix())
    exact = by_hand(held(), 3)
    names = [tuple(ITEMS[i] for i in each) for each in best(exact, 6)]
    assert [each.items for each in found.itemsets_] == names
    for each, place in zip(found.itemsets_, best(exact, 6), strict=True):
        assert abs(each.count - exact[place]) <= 1
        assert each.support == pytest.approx(exact[place] / 600, abs=5e-3)
    assert found.rows_ == pytest.approx(600, abs=1)


def test_pairs_of_person_and_item_are_baskets_of_the_person():
    asked = pairs()
    found = FrequentItemsets(epsilon=400, k=4, size=2, least=2).fit(asked.matrix(None, ["item"]))
    exact = by_hand(held(), 2, least=2)
    names = [tuple(f"item={ITEMS[i]}" for i in each) for each in best(exact, 4)]
    assert [each.items for each in found.itemsets_] == names
    assert found.rows_ == pytest.approx(held().any(axis=1).sum(), abs=1)
    by_row = FrequentItemsets(epsilon=400, k=2, size=2, least=2, basket="row")
    assert max(each.count for each in by_row.fit(asked.matrix(None, ["item"])).itemsets_) < 3


def test_sets_of_enough_support_are_reported():
    found = FrequentItemsets(epsilon=400, support="0.25", size=2).fit(gate().matrix())
    exact = by_hand(held(), 2)
    assert {each.items for each in found.itemsets_} == {
        tuple(ITEMS[i] for i in each) for each, count in exact.items() if count >= 150
    }


def test_all_of_the_price_is_the_price_and_a_search_is_made_once():
    asked = gate(epsilon=5)
    search_for = FrequentItemsets(epsilon=1, k=3, size=2)
    first = search_for.fit(asked.matrix()).itemsets_
    assert (search_for.free_, search_for.cost_.epsilon, asked.spent.epsilon) == (False, 1, 1)
    assert search_for.fit(asked.matrix()).itemsets_ == first
    assert (search_for.free_, search_for.cost_.epsilon, asked.spent.epsilon) == (True, 0, 1)
    search_for.fit(asked.matrix(), fresh=True)
    assert asked.spent.epsilon == 2
    assert "these itemsets of 'data'" in str(search_for.guarantee_)
    assert asked.ledger.verify().ok


def test_what_apriori_does_not_need_goes_back():
    asked = gate(epsilon=800)
    found = FrequentItemsets(epsilon=600, support="0.9", size=3).fit(asked.matrix())
    assert found.itemsets_ == []
    assert asked.spent.epsilon == found.cost_.epsilon == 200  # one of three sizes was asked


def test_a_count_is_within_as_often_as_stated():
    """2,000 draws at 80 %: more than 520 misses of at most 400 come once in 10**10."""
    noise, count_noise, draws = BoxNoise(scale=32, width=12), Geometric(scale=6), 2_000
    exact, rows, reach = np.full(12, -3000), 900, 8
    found = count_noise.sample(np.full(draws, rows))
    sums = noise.sample(np.tile(exact, draws)).reshape(draws, 12)
    supports = Supports(
        sets=((0,),) * 12, counts=(sums[0] / reach + found[0]) / 2, rows=int(found[0]), noise=noise,
        count_noise=count_noise, reach=reach, whole=1,
    )  # fmt: skip
    stated = supports.within("0.8")
    off = np.abs((sums[:, 0] / reach + found) / 2 - (-3000 / reach + rows) / 2)
    missed, near = np.sum(off > stated), np.sum(off > stated / 4)
    assert missed <= 520
    assert near >= 200


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"k": 3, "support": "0.1"},
        {"k": 0},
        {"k": True},
        {"k": 99},
        {"support": 0},
        {"support": 2},
        {"support": "0.1", "method": "top-k"},
        {"k": 3, "method": "guess"},
        {"k": 3, "size": 0},
        {"k": 3, "size": 9},
        {"k": 3, "size": 2, "least": 3},
        {"k": 3, "basket": "shelf"},
    ],
)
def test_a_search_that_makes_no_sense_is_refused_and_costs_nothing(terms):
    asked = gate(epsilon=3)
    with pytest.raises(SpecError) as refusal:
        FrequentItemsets(epsilon=1, **terms).fit(asked.matrix())
    assert refusal.value.fix
    assert asked.spent.epsilon == 0


def test_many_candidates_are_for_apriori():
    rows = pa.table({f"x{place}": [True, False] for place in range(60)})
    asked = ng.open(rows, epsilon=3)
    with pytest.raises(SpecError, match="50,000"):
        FrequentItemsets(epsilon=1, k=3, size=4, method="top-k").fit(asked.matrix())
    assert FrequentItemsets(k=3, size=4)._plan(60).method == "apriori"


# rules


def exact_rule(given, then):
    table = held()
    left, right = (table[:, [ITEMS.index(i) for i in each]].all(axis=1) for each in (given, then))
    both = (left & right).mean()
    return {
        "support": both, "confidence": both / left.mean(),
        "lift": both / left.mean() / right.mean(),
    }  # fmt: skip


@pytest.mark.parametrize("terms", [{"k": 4}, {"support": "0.1", "size": 3}])
def test_rules_are_those_of_the_rows_within_their_ranges(terms):
    """Each range at 1 - 10**-8."""
    found = AssociationRules(epsilon=20, confidence="0.3", level="0.99999999", **terms)
    rules = found.fit(gate(epsilon=20).matrix()).rules_
    assert len(rules) >= 4
    assert rules == sorted(rules, key=lambda rule: -rule.confidence)
    for rule in rules:
        for name, value in exact_rule(rule.given, rule.then).items():
            low, high = rule.ranges[name]
            assert low <= value <= high
            assert low <= getattr(rule, name) <= high
        assert rule.ranges["confidence"][1] - rule.ranges["confidence"][0] < 0.5
    assert (("bread",), ("milk",)) in [(rule.given, rule.then) for rule in rules]
    assert "→" in str(rules[0])
    assert found.cost_.epsilon <= 20


def test_rules_need_a_confidence():
    for wrong in ("2", "-1"):
        with pytest.raises(SpecError):
            AssociationRules(epsilon=1, k=3, confidence=wrong).fit(gate().matrix())
