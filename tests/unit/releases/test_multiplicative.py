"""Multiplicative weights: the inequalities of its proof, and what the recipe makes of questions."""

from fractions import Fraction

import numpy as np
import pytest
from cells_ask import CellsAsk
from scipy.sparse import csr_array

import noisegate
from noisegate.errors import SpecError
from noisegate.releases.cells.workload import all_ranges, ranges
from noisegate.releases.fit import multiplicative
from noisegate.releases.fit.multiplicative import STEPS_MAX, answers, best_rounds, build, row_of
from noisegate.releases.fit.weights import Weights
from noisegate.releases.recipes import recipe
from noisegate.transforms.strategy import Groups, Matrix
from refusals import about

DICE = np.random.default_rng(7)


def entropy(exact, table):
    """KL(exact ‖ table), of tables with one total."""
    held = exact > 0
    part = exact[held] / exact.sum()
    return float((part * np.log(exact[held] / table[held])).sum())


def instance():
    cells = int(DICE.integers(2, 30))
    exact = DICE.multinomial(int(DICE.integers(50, 2000)), DICE.dirichlet(np.full(cells, 0.4)))
    table = Weights(exact.sum() * DICE.dirichlet(np.full(cells, 0.7)))
    masks = [DICE.random(cells) < DICE.random() for _ in range(3)]
    return exact, table, masks, [table.add(mask) for mask in masks]


def test_a_step_lowers_the_potential_by_what_the_proof_says():
    for _ in range(200):
        exact, table, masks, known = instance()
        for mask, question in zip(masks, known, strict=True):
            right = exact[mask].sum()
            target = right + DICE.normal(0, 30)
            before, held = entropy(exact, table.cells), table.answer(question)
            table.step([(question, target)])
            gain = ((held - right) / (2 * table.total)) ** 2
            loss = ((target - right) / (2 * table.total)) ** 2
            assert before - entropy(exact, table.cells) >= gain - loss - 1e-12


def test_a_projection_towards_the_truth_lowers_it_by_twice_the_square():
    for _ in range(200):
        exact, table, masks, known = instance()
        for mask, question in zip(masks, known, strict=True):
            right, held = exact[mask].sum(), table.answer(question)
            if not 1e-6 < held / table.total < 1 - 1e-6:
                continue
            target = held + DICE.random() * (right - held)
            before = entropy(exact, table.cells)
            table.project(question, target)
            assert table.answer(question) == pytest.approx(target, abs=1e-6 * table.total)
            least = 2 * ((target - held) / table.total) ** 2
            assert before - entropy(exact, table.cells) >= least - 1e-9


def test_a_projection_beyond_the_truth_can_do_harm():
    exact, table = np.array([90.0, 10.0]), Weights(np.array([80.0, 20.0]))
    before = entropy(exact, table.cells)
    table.project(table.add(np.array([True, False])), 99.9)
    assert entropy(exact, table.cells) > before


def test_one_question_converges_from_one_side():
    exact = np.array([70, 10, 15, 5])
    table = Weights(np.full(4, 25.0))
    question = table.add(np.array([True, True, False, False]))
    seen = [table.answer(question)]
    for _ in range(90):
        table.step([(question, 80.0)])
        seen.append(table.answer(question))
    assert np.all(np.diff(seen) > 0)
    assert 79.9 < seen[-1] <= 80
    assert table.cells.sum() == pytest.approx(exact.sum())


def test_many_steps_are_the_textbooks_one_after_another():
    for _ in range(20):
        _, table, masks, known = instance()
        cells, whole = table.cells.copy(), table.total
        targets = [float(whole * DICE.normal(0.5, 1)) for _ in known]
        for _ in range(7):
            for mask, target in zip(masks, targets, strict=True):
                cells[mask] *= np.exp((target - cells[mask].sum()) / (2 * whole))
                cells *= whole / cells.sum()
        table.step(list(zip(known, targets, strict=True)), 7)
        assert table.cells == pytest.approx(cells, rel=1e-9, abs=1e-9 * whole)


@pytest.mark.parametrize("target", [1e9, -1e9, 1e300, -1e300])
def test_targets_far_beyond_the_total_leave_a_table_of_positive_numbers(target):
    table = Weights(np.ones(6))
    masks = ([1, 1, 0, 0, 0, 0], [1] * 6, [0, 1, 1, 1, 0, 0])
    known = [table.add(np.array(mask, np.bool_)) for mask in masks]
    table.step([(question, target) for question in known], 200)
    assert table.cells.min() > 0
    assert table.cells.sum() == pytest.approx(6)


@pytest.mark.parametrize(
    ("most", "replays", "times"), [(STEPS_MAX, 50, 50), (100, 50, 2), (9, 0, 0)]
)
def test_of_many_rounds_the_measurements_are_gone_through_less_often(
    monkeypatch, most, replays, times
):
    seen = []
    monkeypatch.setattr(multiplicative, "STEPS_MAX", most)
    monkeypatch.setattr(
        Weights, "step", lambda self, told, times=1: seen.append((len(told), times))
    )
    ask = CellsAsk(np.array([5, 6, 7, 8]), Fraction(10))
    build(ask, BLOCK, rounds=8, replays=replays, total=26.0)
    assert seen[1::2] == [(done + 1, times) for done in range(8)]
    assert sum(told * times for told, times in seen[1::2]) <= most


def test_atoms_are_cells_that_no_question_tells_apart():
    table = Weights(np.array([4.0, 2.0, 1.0, 1.0]))
    one = table.add(np.array([True, True, False, False]))
    other = table.add(np.array([True, False, True, False]))
    table.project(one, 3.0)
    table.project(other, 5.0)
    wanted = np.array([4, 2, 1, 1]) * [0.5, 0.5, 2.5, 2.5]
    inside = wanted[[0, 2]].sum()
    wanted = wanted * np.where([True, False, True, False], 5 / inside, 3 / (8 - inside))
    assert table.cells == pytest.approx(wanted)
    assert table.answer(one) == pytest.approx(wanted[:2].sum())


BLOCK = Matrix(csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])))


def test_rows_and_answers_of_both_kinds_of_blocks():
    table = np.array([1.0, 2.0, 4.0, 8.0])
    assert answers(BLOCK, table).tolist() == [3, 6, 9]
    assert row_of(BLOCK, 2).tolist() == [True, False, False, True]
    groups = Groups(np.array([0, 1, -1, 0], np.int32), 2)
    assert answers(groups, table).tolist() == [9, 2]
    assert row_of(groups, 0).tolist() == [True, False, False, True]


@pytest.mark.parametrize("gaussian", [False, True])
def test_with_hardly_any_noise_the_questions_are_answered(gaussian):
    cells = np.array([500, 20, 300, 180])
    ask = CellsAsk(cells, Fraction(10_000), gaussian=gaussian)
    found = build(ask, BLOCK, rounds=12).cells
    assert BLOCK.apply(cells) == pytest.approx(answers(BLOCK, found), abs=5)
    assert 0.5 < ask.spent.max() <= 1 + 1e-9  # a cell pays for questions that count it
    mean = build(CellsAsk(cells, Fraction(10_000)), BLOCK, rounds=12, total=1000, average=True)
    assert mean.cells.sum() == pytest.approx(1000)


@pytest.mark.parametrize("average", [False, True])
def test_without_noise_the_rounds_say_how_far_the_questions_are_off_at_most(average):
    cells = np.array([500, 20, 300, 180])
    ask = CellsAsk(cells, Fraction(10_000))
    made = build(ask, BLOCK, rounds=6, replays=0, total=1000, average=average)
    away = BLOCK.apply(cells) - answers(BLOCK, made.cells)
    assert np.sqrt(np.mean(away**2)) <= made.off < 400
    assert made.noise == 0


@pytest.mark.parametrize(
    ("epsilon", "known"),
    [(10_000, [True, False, False, False]), (0.001, [True, True, True, False])],
)
def test_boxes_unlike_all_questions_are_left_to_other_models(epsilon, known):
    """A table that is off by more than all rows tells no box from those around it."""
    cells = np.array([400, 300, 200, 0, 100, 900, 900, 200])
    asked = ranges((8,), [[0], [0], [5]], [[1], [4], [7]])
    made = recipe("mwem", rounds=20, total=3000)
    found = made.build(CellsAsk(cells, Fraction(str(epsilon))), asked)
    lows, highs = np.array([[0], [0], [6], [0]]), np.array([[4], [3], [6], [7]])
    sums, spread, _ = found.guess(lows, highs)
    assert sums == pytest.approx(ranges((8,), lows, highs).answers(found.cells))
    assert np.isfinite(spread).tolist() == known


def test_rounds_follow_the_bound():
    """T = (n² ε² ln|X| / (100 ln²|Q|))^(1/3) where all of ε is for the rounds."""
    ask = CellsAsk(np.zeros(4096, np.int64), Fraction(1, 10))
    for total, questions in ((10**5, 2000), (10**6, 500)):
        wanted = (total**2 * 0.01 * np.log(4096) / (100 * np.log(questions) ** 2)) ** (1 / 3)
        found = best_rounds(ask, questions, 4096, total, Fraction(1))
        assert found == pytest.approx(wanted, rel=0.12)
    assert best_rounds(ask, 2000, 4096, 100, Fraction(1)) == 1
    wide = CellsAsk(np.zeros(4096, np.int64), Fraction(1, 200), gaussian=True)  # the same ε
    assert best_rounds(wide, 2000, 4096, 10**5, Fraction(1)) > 100


def test_few_questions_have_few_rounds():
    cells = np.array([50_000, 2000, 30_000, 18_000])
    (words,) = build(CellsAsk(cells, Fraction(1)), BLOCK).words
    assert words.startswith(f"{2 * BLOCK.size} rounds, each for the one of {BLOCK.size} questions")


def test_other_weights_are_refused():
    with pytest.raises(SpecError, check=about("weights")):
        build(CellsAsk([1, 2], Fraction(1)), Matrix(csr_array(np.array([[1, 2]]))))


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"replays": -1}, {"total": 0}])
def test_bad_options_are_refused(bad):
    with pytest.raises(SpecError):
        recipe("mwem", **bad).require((8,), all_ranges((8,)))


def test_a_histogram_is_released_by_it():
    import pyarrow as pa

    rows = pa.table({"age": DICE.normal(40, 8, 3000).clip(0, 99).astype(int)})
    gate = noisegate.open(rows, epsilon=9, table="p", columns={"age": {"between": [0, 99]}})
    made = gate.release(
        "histogram", columns={"age": 10}, method="mwem", workload="ranges", epsilon=8, rounds=15
    )
    exact = np.histogram(rows["age"].to_numpy(), np.arange(0, 101, 10))[0]
    assert made.values[:10] == pytest.approx(exact, abs=250)
    again = gate.release(
        "histogram", columns={"age": 10}, method="mwem", workload="ranges", epsilon=8, rounds=15
    )
    assert again.free
    assert again.values.tolist() == made.values.tolist()
