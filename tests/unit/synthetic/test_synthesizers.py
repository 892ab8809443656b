"""Synthesizers: what they ask for, what they make of it, what they refuse."""

from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from noisegate.errors import SpecError
from noisegate.noise.bits import SYSTEM
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.fit.allocation import plain_design
from noisegate.synthetic.model.junction import cells_with
from noisegate.synthetic.model.model import Evidence
from noisegate.synthetic.recipes import SYNTHESIZERS, TablesWorkload, synthesizer
from noisegate.synthetic.recipes.aim import overlaps
from noisegate.synthetic.recipes.auto import _Steps
from noisegate.synthetic.recipes.shared import evidence_of, spanning
from noisegate.synthetic.sharing import Item, allotted, exact_shares
from refusals import about
from trials import TrialTables

SIZES = (3, 4, 2, 5, 3)
PAIRS = TablesWorkload(tuple(combinations(range(5), 2)))
TRIPLES = TablesWorkload(((0, 1, 2), (2, 3), (4,)))
RICH, POOR = Fraction(100), Fraction(1, 10**5)


@pytest.fixture(scope="module")
def rows():
    """A chain, each column near the one before it, then one by itself. The fourth tells the third."""
    chance = np.random.default_rng(3)
    first = chance.integers(0, 3, 4000)
    second = (first + (chance.random(4000) < 0.2)) % 4
    third = (second > 1) ^ (chance.random(4000) < 0.1)
    fourth = np.where(third, chance.integers(0, 2, 4000), chance.integers(2, 5, 4000))
    return np.stack([first, second, third, fourth, chance.integers(0, 3, 4000)], axis=1)


def asked(rows, amount, *, gaussian=True):
    return TrialTables(rows, SIZES, amount, gaussian=gaussian, bits=SYSTEM)


def far(model, rows, sets):
    """The largest total variation distance of the model's tables from the rows' own."""
    ask = asked(rows, RICH)
    exact = [ask._table(axes) for axes in sets]
    tables = model.tables(sets)
    gaps = [
        np.abs(x / x.sum() - tables[s] / tables[s].sum()) for x, s in zip(exact, sets, strict=True)
    ]
    return max(gap.sum() / 2 for gap in gaps)


def few_rounds(name, rounds=10):
    return synthesizer(name, **({"rounds": rounds} if name in ("aim", "mwem-pgm") else {}))


class Recorded(TrialTables):
    """Keeps what is answered, or answers what was kept."""

    def __init__(self, *args, answers=None, **options):
        super().__init__(*args, **options)
        self.kept, self.again = [], None if answers is None else iter(answers)

    def _answer(self, ask, *args, **options):
        found = ask(*args, **options)
        found = found if self.again is None else next(self.again)
        self.kept.append(found)
        return found

    def tables(self, *args):
        return self._answer(super().tables, *args)

    def distances(self, *args):
        return self._answer(super().distances, *args)

    def furthest(self, *args, **options):
        return self._answer(super().furthest, *args, **options)


@pytest.fixture(scope="module")
def built(rows):
    """What is asked, and the model: once, for all that look at it."""

    @cache
    def built(name, amount, *, gaussian):
        ask = asked(rows, amount, gaussian=gaussian)  # raises a Bug above 1
        return ask, few_rounds(name).build(ask, PAIRS)

    return built


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("amount", [Fraction(1, 10), POOR])
@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_the_price_is_spent_and_never_exceeded(built, name, amount, gaussian):
    ask, made = built(name, amount, gaussian=gaussian)
    assert Fraction(1) - Fraction(1, 10**6) <= ask.spent <= 1
    assert made.words
    assert made.evidence
    assert np.isfinite(made.model.table((0, 1))).all()


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_what_is_measured_has_the_shares_that_were_planned(built, name, gaussian):
    """Each draw of a table has a share up to the largest; together they have the least or more."""
    ask, made = built(name, Fraction(1, 10), gaussian=gaussian)
    planned = few_rounds(name).planned(SIZES, PAIRS, gaussian=gaussian)
    if name == "chosen":
        of = [[axes for axes in {each.axes for each in made.evidence} if axes]]
    else:
        measured = {each.axes for each in made.evidence}
        of = [[axes for axes in measured if len(axes) == columns] for columns in (1, 2)]
    for each, sets in zip(planned, of, strict=False):
        least, most = ask.variance(each.most), ask.variance(each.least)
        for axes in sets if "equally" not in each.what else ():
            variances = [one.variance for one in made.evidence if one.axes == axes]
            assert min(variances) >= least * (1 - 1e-9)
            assert 1 / sum(1 / variance for variance in variances) <= most * (1 + 1e-9)
    assert len(planned) == 1 + (name not in ("chosen", "independent"))


@pytest.mark.parametrize("name", sorted(set(SYNTHESIZERS) - {"independent", "mst"}))
def test_tables_are_reproduced_where_there_is_hardly_any_noise(rows, name):
    made = few_rounds(name, 20).build(asked(rows, RICH), PAIRS)
    assert far(made.model, rows, PAIRS.sets) < 0.005


def test_a_tree_reproduces_its_own_pairs_and_columns_all_columns(rows):
    tree = synthesizer("mst").build(asked(rows, RICH), PAIRS)
    chosen = [each.axes for each in tree.evidence if len(each.axes) == 2]
    assert {(0, 1), (2, 3)} <= set(chosen)
    assert len(chosen) == 4
    assert far(tree.model, rows, chosen) < 0.005
    alone = synthesizer("independent").build(asked(rows, RICH), PAIRS)
    assert far(alone.model, rows, [(axis,) for axis in range(5)]) < 0.005


@pytest.mark.parametrize("name", ["auto", "aim", "chosen", "mwem-pgm"])
def test_larger_tables_of_the_workload_are_measured(rows, name):
    made = synthesizer(name).build(asked(rows, RICH), TRIPLES)
    assert (0, 1, 2) in [each.axes for each in made.evidence]
    assert far(made.model, rows, TRIPLES.sets) < 0.01


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_the_same_answers_make_the_same_model(rows, name):
    def built(answers=None):
        ask = Recorded(rows, SIZES, Fraction(1, 10), gaussian=True, bits=SYSTEM, answers=answers)
        return few_rounds(name).build(ask, PAIRS), ask.kept

    first, kept = built()
    second, _ = built(kept)
    assert first.model.to_record() == second.model.to_record()
    assert [t.values.tobytes() for t in first.targets] == [
        t.values.tobytes() for t in second.targets
    ]


@pytest.mark.parametrize("name", sorted(set(SYNTHESIZERS) - {"independent"}))
def test_the_model_stays_within_its_bound(rows, name):
    made = synthesizer(name, cells_max=60).build(asked(rows, RICH), PAIRS)
    assert made.model.cells <= 60
    assert cells_with(made.model.cliques, SIZES) <= 60


def test_rows_are_moved_towards_tables_that_the_model_cannot_hold(rows):
    tight = synthesizer("auto", cells_max=30).build(asked(rows, RICH), PAIRS)
    assert tight.model.left_out
    held = {each.axes for each in tight.targets}
    assert held >= {axes for axes in PAIRS.sets if np.prod([SIZES[a] for a in axes]) <= 30}
    assert not synthesizer("auto").build(asked(rows, RICH), PAIRS).targets


@pytest.mark.parametrize("name", sorted(set(SYNTHESIZERS) - {"independent"}))
def test_a_model_without_room_is_refused(name):
    for cells in (10, 1e5, "many"):
        with pytest.raises(SpecError, check=about("cells")):
            synthesizer(name, cells_max=cells).require(SIZES, PAIRS)
    synthesizer(name, cells_max=17).require(SIZES, PAIRS)


@pytest.mark.parametrize("name", ["aim", "mwem-pgm"])
@pytest.mark.parametrize("rounds", [0, -1, 1.5, "few"])
def test_nonsense_rounds_are_refused(name, rounds):
    with pytest.raises(SpecError, check=about("rounds")):
        synthesizer(name, rounds=rounds).require(SIZES, PAIRS)


def test_unknown_names_and_options_are_refused():
    with pytest.raises(SpecError, check=about("method")):
        synthesizer("gan")
    with pytest.raises(SpecError, check=about("option")):
        synthesizer("auto", layers=3)


class Scripted:
    """Answers with exact tables, and writes down what is asked."""

    def __init__(self, rows):
        self._trial, self.sizes, self.gaussian = asked(rows, RICH), SIZES, True
        self.rounds = []

    def tables(self, sets, shares):
        self.rounds.append((tuple(sets), sum(shares)))
        return [Noisy(self._trial._table(axes), self.variance(shares[0])) for axes in sets]

    def furthest(self, guesses, share, *, weights, less):
        self.rounds.append(("choice", share))
        return next(iter(guesses))  # a column: there is nothing to learn from it

    def variance(self, share):
        return 1e4 / float(share)

    def done(self, part, words):
        assert 0 <= part <= 1


def test_aim_halves_its_noise_where_a_round_teaches_nothing(rows):
    ask = Scripted(rows)
    synthesizer("aim").build(ask, PAIRS)
    tables = [share for kind, share in ask.rounds[1:] if kind != "choice"]
    choices = [share for kind, share in ask.rounds if kind == "choice"]
    assert ask.rounds[0][1] == 5 * Fraction(9, 10 * 80)
    assert tables[:2] == [Fraction(9, 10 * 80), 4 * Fraction(9, 10 * 80)]
    assert [9 * share for share in choices] == tables
    assert ask.rounds[0][1] + sum(tables) + sum(choices) == 1


def test_aim_weighs_tables_by_their_overlap_with_the_workload():
    weights = overlaps(TablesWorkload(((0, 1), (1, 2))))
    assert weights == {(0,): 1, (1,): 2, (2,): 1, (0, 1): 3, (1, 2): 3}


def test_shares_too_small_to_buy_anything_are_left_out():
    shares = exact_shares({(0,): 1.0, (1,): 1e-12}, Fraction(1, 3))
    assert shares == {(0,): Fraction(1, 3)}


def test_aim_counts_overlaps_by_weights():
    weights = overlaps(TablesWorkload(((0, 1), (1, 2)), (Fraction(3), Fraction(1))))
    assert weights == {(0,): 3, (1,): 4, (2,): 1, (0, 1): 7, (1, 2): 5}


def test_a_table_weighs_as_much_as_the_heaviest_set_that_holds_it():
    workload = TablesWorkload(((0, 1), (0, 1, 2), (3,)), (Fraction(2), Fraction(5), Fraction(1, 2)))
    tables = [(0, 1, 2), (0, 1), (1,), (3,), (0, 3)]
    assert list(map(workload.weight, tables)) == [5, 5, 5, Fraction(1, 2), Fraction(1, 2)]
    assert PAIRS.weight((0, 1)) == PAIRS.weight((4,)) == 1


@pytest.mark.parametrize("name", ["mst", "mwem-pgm"])
def test_choices_are_made_by_weights(rows, name):
    heavy = TablesWorkload(PAIRS.sets, tuple(map(Fraction, range(1, 11))))
    asked_for = []

    class Weighed(TrialTables):
        def furthest(self, guesses, share, *, weights, less=None):
            asked_for.append({axes: weights[axes] for axes in guesses})
            return super().furthest(guesses, share, weights=weights, less=less)

    few_rounds(name, 2).build(Weighed(rows, SIZES, RICH, gaussian=True, bits=SYSTEM), heavy)
    known = dict(heavy)
    assert asked_for
    assert all(each.items() <= known.items() for each in asked_for)


def test_chosen_and_independent_shares_are_the_closed_form_of_weights(rows):
    """Variances as 1 / √weight make a weighted sum of them least, as weight^-2/3 of deviations."""

    def variances(name, sets, weights):
        workload = TablesWorkload(sets, tuple(map(Fraction, weights)))
        made = synthesizer(name).build(asked(rows, RICH), workload)
        return {each.axes: each.variance for each in made.evidence if len(each.axes) == 1}

    chosen = variances("chosen", ((0,), (4,)), (16, 1))
    assert chosen[4,] / chosen[0,] == pytest.approx(4, rel=0.15)  # but for the total
    alone = variances("independent", tuple((a,) for a in range(5)), (8, 1, 1, 1, 1))
    assert alone[4,] / alone[0,] == pytest.approx(4, rel=0.2)  # shares are nearly powers of √2


def test_auto_measures_what_weighs_more_more_precisely(rows):
    """With equal weights (0, 1) has a little more than (2, 3); 40 runs gave it 5 times less."""
    heavy = TablesWorkload(
        PAIRS.sets, tuple(Fraction(64 if s == (2, 3) else 1) for s in PAIRS.sets)
    )
    made = synthesizer("auto").build(asked(rows, Fraction(1, 20)), heavy)
    precision = {
        axes: sum(1 / each.variance for each in made.evidence if each.axes == axes)
        for axes in PAIRS.sets
    }
    assert precision[2, 3] > 2 * precision[0, 1]


def test_the_heaviest_tree():
    scores = {(0, 1): 5.0, (1, 2): 4.0, (0, 2): 4.5, (2, 3): 0.1, (4, 5): 9.0}
    assert spanning(scores) == [(4, 5), (0, 1), (0, 2), (2, 3)]


def test_shares_add_up_exactly():
    wanted = {(0,): 0.1, (1,): 0.7, (2,): 0.7, (3,): 0.0}
    shares = exact_shares(wanted, Fraction(1, 3))
    assert sum(shares.values()) == Fraction(1, 3)
    assert shares[1,] == shares[2,]  # one noise for both
    assert list(shares) == [(0,), (1,), (2,)]
    assert exact_shares({}, Fraction(1)) == {}


def test_shares_of_different_budgets_need_few_amounts_of_noise():
    chance = np.random.default_rng(1)
    amounts = set()
    for budget in (Fraction(1, 7), Fraction(2, 5), Fraction(3, 20)):
        wanted = {(a,): float(w) for a, w in enumerate(chance.uniform(1, 16, 40))}
        shares = exact_shares(wanted, budget)
        assert sum(shares.values()) == budget
        whole = sum(wanted.values())
        for axes, share in shares.items():
            assert 2**-0.5 <= float(share / budget) / (wanted[axes] / whole) <= 2**0.5
        amounts |= set(shares.values())
    assert len(amounts) <= 16


@pytest.mark.parametrize("gaussian", [True, False])
def test_no_other_shares_promise_a_smaller_error(rows, gaussian):
    ask = asked(rows, Fraction(1, 100), gaussian=gaussian)
    chance = np.random.default_rng(1)
    items = {
        (axis,): Item.of(chance.dirichlet(np.ones(size)) * 4000, far)
        for axis, (size, far) in enumerate([(12, 900.0), (40, 300.0), (8, 50.0)])
    }
    shares, promised = allotted(ask, items, Fraction(1))
    whole, power = ask.variance(Fraction(1)), 1 if gaussian else 2

    def total(parts):
        return sum(
            float(item.off(np.array([part**power / whole]))[0])
            for part, item in zip(parts, items.values(), strict=True)
        )

    assert total([float(shares.get(axes, 0)) for axes in items]) == pytest.approx(
        promised, rel=0.02
    )
    others = min(total(parts) for parts in chance.dirichlet(np.full(3, 0.5), 2000))
    assert promised <= 1.001 * others


def test_a_table_is_off_by_its_guess_or_by_its_noise():
    item = Item.of(np.full(50, 30.0), 400.0)
    nothing, little, much = item.off(np.array([0.0, 1e-9, 1e9]))
    assert nothing == pytest.approx(400)
    assert little == pytest.approx(400, rel=1e-6)
    assert much == pytest.approx(50 * np.sqrt(2 / np.pi / 1e9), rel=1e-6)


def test_shares_of_plain_tables_are_the_closed_form_where_none_overlap():
    plan = plain_design((4, 9), [(0,), (1,)], [1.0, 1.0], gaussian=True)
    shares = {q.kept: float(s) for q, s in zip(plan.questions, plan.shares, strict=True)}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[1,] / shares[0,] == pytest.approx(1.5, rel=0.1)  # √(9 / 4), but for the total


def test_auto_believes_a_cell_that_stands_out_and_no_other():
    """One cell of 1,600 is off by twelve standard deviations: noise hides that once in 1e9 times."""
    grid = np.stack(np.divmod(np.arange(1600), 40), axis=1)
    exact = np.full(1600, 20)
    exact[210] += 360
    rows, sigma = np.repeat(grid, exact, axis=0), 30.0
    ask = TrialTables(rows, (40, 40), Fraction(1, 1800), gaussian=True, bits=SYSTEM)
    steps = _Steps(ask, TablesWorkload(((0, 1),)), (), None, 2000)
    steps.measure({(0, 1): Fraction(1)})
    off = np.abs(steps.target((0, 1), steps.even((0, 1))) - exact)
    assert off[210] < 200
    assert np.delete(off, 210).mean() < 0.4 * sigma  # noise alone: 0.8


def test_auto_measures_pairs_only_where_they_can_be_seen(rows):
    def tables(amount):
        made = synthesizer("auto").build(asked(rows, amount), PAIRS)
        return {each.axes for each in made.evidence if len(each.axes) == 2}

    assert not tables(POOR)
    assert {(0, 1), (2, 3)} <= tables(RICH)


def test_auto_is_nearer_than_columns_alone(rows):
    """The pair is 0.5 from independent; noise of the whole price is 0.003 a cell."""

    def error(name):
        made = synthesizer(name).build(asked(rows, Fraction(1, 200)), PAIRS)
        return far(made.model, rows, [(0, 1)])

    assert error("auto") < 0.5 * error("independent")


def test_what_is_public_is_used(rows):
    made = synthesizer("auto").build(asked(rows, POOR), PAIRS, total=4000.0)
    assert made.model.total == 4000
    known = asked(rows, RICH).tables([(0, 1)], [Fraction(1)])[0]
    helped = synthesizer("auto").build(
        asked(rows, POOR), PAIRS, known=[evidence_of((0, 1), known)], total=4000.0
    )
    assert far(helped.model, rows, [(0, 1)]) < 0.05 < far(made.model, rows, [(0, 1)])


def test_wider_groups_that_are_known_decide_where_measurements_are_mostly_noise(rows):
    """Two groups of the fourth column, sharp; its five cells are measured with noise of 1,000."""
    labels = np.array([0, 0, 1, 1, 1], np.int32)
    sums = np.bincount(labels[rows[:, 3]]).astype(float)
    made = synthesizer("auto").build(
        asked(rows, POOR), PAIRS, known=[Evidence((3,), sums, 4.0, labels)]
    )
    table = made.model.table((3,))
    assert np.abs(np.bincount(labels, table) - sums).max() < 20
