"""Marginal tables: least squares in closed form, the best shares, and one table behind them all."""

from fractions import Fraction
from itertools import combinations
from math import prod

import numpy as np
import pytest
from cells_ask import CellsAsk
from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.errors import SpecError
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.workload import marginals, prefixes
from noisegate.releases.fit.allocation import _gains, design
from noisegate.releases.fit.residuals import Question, box_variance, combine, known, subsets
from noisegate.releases.recipes import recipe
from noisegate.releases.recipes.marginals import Marginals, fitted, marginals_of, whole_table
from noisegate.transforms.strategy import Matrix

PAIRS = [(0, 1), (0, 2), (1, 2)]


def dense(block):
    if isinstance(block, Matrix):
        return block.matrix.toarray()
    return (block.labels[None, :] == np.arange(block.size)[:, None]).astype(float)


@st.composite
def asked(draw):
    """Sizes, questions that cover the tables of the first question's subsets, and variances."""
    sizes = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=3)))
    every = tuple(range(len(sizes)))
    questions = [Question(draw(st.sampled_from(subsets(every)[1:])))]
    for _ in range(draw(st.integers(0, 4))):
        kept = draw(st.sampled_from(subsets(every)))
        questions.append(Question(kept, draw(st.sampled_from(subsets(kept)))))
    variances = [draw(st.floats(0.25, 9)) for _ in questions]
    return sizes, questions, variances


@given(asked(), st.integers(0, 2**32))
@settings(max_examples=60)
def test_closed_form_is_dense_least_squares_and_so_is_its_variance(case, seed):
    sizes, questions, variances = case
    every, rng = tuple(range(len(sizes))), np.random.default_rng(seed)
    blocks = [q.block(sizes, every) for q in questions]
    rows = np.vstack([dense(b) for b in blocks])
    weight = np.repeat([1 / v for v in variances], [b.size for b in blocks])
    numbers = [rng.integers(-20, 20, b.size) for b in blocks]
    answers = [Noisy(n, v) for n, v in zip(numbers, variances, strict=True)]
    parts = combine(sizes, zip(questions, answers, strict=True))
    inverse = np.linalg.pinv(rows.T @ (weight[:, None] * rows), rcond=1e-9)
    cells = inverse @ rows.T @ (weight * np.concatenate(numbers))
    for axes in subsets(questions[0].kept):
        table = dense(Question(axes).block(sizes, every))
        assert np.allclose(parts.table(axes).ravel(), table @ cells)
        assert np.allclose(np.diag(table @ inverse @ table.T), parts.cell_variance(axes))
        counts = [int(rng.integers(1, sizes[a] + 1)) for a in axes]
        box = np.zeros([sizes[a] for a in axes])
        box[tuple(map(slice, counts))] = 1
        summed = box.ravel() @ table
        found = parts.variance(axes, np.array([counts], np.int64).reshape(1, -1))
        assert np.allclose(found, summed @ inverse @ summed)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), st.data())
@settings(max_examples=40)
def test_the_gain_of_a_question_is_its_precision_at_its_own_sensitivity(sizes, data):
    sizes = tuple(sizes)
    every = tuple(range(len(sizes)))
    kept = data.draw(st.sampled_from(subsets(every)))
    question = Question(kept, data.draw(st.sampled_from(subsets(kept))))
    block = question.block(sizes, every)
    precision = question.precision(sizes, variance=block.columns[1].max())
    together = _gains(sizes, subsets(every), [question])[:, 0]
    for part, gain in zip(subsets(every), together, strict=True):
        assert np.isclose(question.gain(sizes, part), precision.get(part, 0))
        assert np.isclose(question.gain(sizes, part), gain)
    if all(sizes[a] == 2 for a in question.bare):
        assert [norms.max() for norms in block.columns] == [1, 1]


def test_what_was_not_measured_has_no_variance():
    parts = combine((2, 3), [(Question((0,)), Noisy(np.array([3, 4]), 1.0))])
    found = parts.variance((0, 1), np.array([[1, 3], [1, 1]]))
    assert np.allclose(found[0], 1)
    assert np.isinf(found[1])


def test_fourier_coefficients_lose_to_marginals_as_the_theorem_says():
    """Three two-way marginals of four bits at ε: variances 32 and 18 times 1 / ε² [BCDKMT07]."""
    sizes, sets = (2, 2, 2, 2), [(0, 1), (1, 2), (2, 3)]
    every = {part for axes in sets for part in subsets(axes)}
    fourier = known(sizes, [(Question(p, p), 2 * len(every) ** 2) for p in every])
    plain = known(sizes, [(Question(axes), 2 * len(sets) ** 2) for axes in sets[:1]])
    ones = np.ones((1, 2), np.int64)
    assert np.isclose(box_variance(sizes, fourier, (0, 1), ones)[0], 32)
    assert np.isclose(box_variance(sizes, plain, (0, 1), ones)[0], 18)
    chosen = design(sizes, sets, [1.0] * 3, gaussian=False)
    assert "residuals" not in chosen.words
    pairs = zip(chosen.questions, chosen.shares, strict=True)
    found = known(sizes, [(q, 2 / float(s) ** 2) for q, s in pairs])
    assert max(box_variance(sizes, found, axes, ones)[0] for axes in sets) < 18


def test_under_gaussian_noise_the_shares_reach_the_optimum_of_the_residual_basis():
    """(Σ √(p v))² over all parts: no linear mechanism has less [XHZK23]."""
    sizes, sets = (2, 3, 5), PAIRS
    chosen = design(sizes, sets, [1.0] * 3, gaussian=True)
    pairs = zip(chosen.questions, chosen.shares, strict=True)
    cells = (0, 1, 2)
    asked = [(q, q.block(sizes, cells).columns[1].max() / float(s)) for q, s in pairs]
    precision = known(sizes, asked)
    ones = np.ones((1, 2), np.int64)
    error = sum(
        prod(sizes[a] for a in s) * box_variance(sizes, precision, s, ones)[0] for s in sets
    )
    best = 0.0
    for part in {p for axes in sets for p in subsets(axes)}:
        own = prod(1 - 1 / sizes[a] for a in part)
        value = sum(
            prod(sizes[a] for a in axes) * own / prod(sizes[a] for a in axes if a not in part) ** 2
            for axes in sets
            if set(part) <= set(axes)
        )
        best += (own * value) ** 0.5
    assert np.isclose(error, best**2, rtol=1e-6)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("sets", [PAIRS, [(0,), (1,), (2,)], [(0, 1, 2)], [()], [(0, 1), (2,)]])
def test_shares_add_up_to_one_at_most_and_waste_nothing(sets, gaussian):
    chosen = design((2, 3, 9), sets, [1.0] * len(sets), gaussian=gaussian)
    assert 1 - 1e-9 < sum(chosen.shares) <= 1
    assert len(chosen.questions) == len(chosen.shares)
    covered = {p for q in chosen.questions for p in subsets(q.kept) if q.covers(p)}
    assert {p for axes in sets for p in subsets(axes)} <= covered


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("shape", [(2, 2, 2), (5, 2, 3)])
def test_the_predicted_error_is_the_measured_one(shape, gaussian):
    """Of least squares. The mean square has a relative deviation of 0.06 at most: 0.4 is 6 of them,
    and a gamma law of that spread is further off less than once in 10⁶ runs."""
    trials = 80 if gaussian else 400
    cells = np.zeros(shape, np.int64)
    workload = marginals(shape, PAIRS)

    def ask():
        return CellsAsk(cells, Fraction(1, 2), gaussian=gaussian)

    predicted = Marginals().predict(ask(), workload).rms
    chosen = design(shape, *marginals_of(workload), gaussian=gaussian, cells=(0, 1, 2))
    blocks = [q.block(shape, (0, 1, 2)) for q in chosen.questions]
    squares = []
    for _ in range(trials):
        answers = ask().sums(blocks, chosen.shares)
        parts = combine(shape, zip(chosen.questions, answers, strict=True))
        errors = np.concatenate([parts.table(axes).ravel() for axes in PAIRS])
        squares.append(np.mean(errors**2))
    assert abs(np.mean(squares) / predicted**2 - 1) < 0.4  # a factor of two cannot hide


@pytest.mark.parametrize("gaussian", [True, False])
def test_the_table_is_whole_non_negative_and_no_worse_than_predicted(gaussian):
    shape = (6, 2, 4)
    cells = np.random.default_rng(3).poisson(4, shape)
    workload = marginals(shape, PAIRS)
    errors = []
    for _ in range(20):
        ask = CellsAsk(cells, Fraction(1, 2), gaussian=gaussian)
        estimate = Marginals().build(ask, workload)
        table = estimate.mend(1.0)
        assert table.dtype == np.int64
        assert table.min() >= 0
        assert 1 - 1e-9 < ask.spent.max() <= 1 + 1e-9
        errors.append(np.mean((workload.answers(table) - workload.answers(cells)) ** 2))
    predicted = Marginals().predict(CellsAsk(cells, Fraction(1, 2), gaussian=gaussian), workload)
    assert np.mean(errors) < 1.3 * predicted.rms**2 + 1
    ones = workload.lows[:1], workload.highs[:1]
    assert estimate.variance(*ones)[0] <= 4 * predicted.rms**2


@pytest.mark.parametrize("gaussian", [True, False])
def test_without_noise_to_speak_of_the_marginals_are_exact(gaussian):
    shape = (7, 5, 3)
    cells = np.random.default_rng(5).poisson(2, shape)
    workload = marginals(shape, PAIRS)
    price = Fraction(10**6 if gaussian else 200)
    estimate = Marginals().build(CellsAsk(cells, price, gaussian=gaussian), workload)
    assert np.abs(workload.answers(estimate.cells) - workload.answers(cells)).max() < 0.1
    table = estimate.mend(1.0)
    assert np.abs(workload.answers(table) - workload.answers(cells)).max() <= 1
    assert table.sum() == cells.sum()
    halves = estimate.mend(0.5)
    assert np.abs(workload.answers(halves) - workload.answers(cells) / 2).max() <= 1.5


def test_an_empty_table_stays_empty_or_small():
    workload = marginals((3, 4, 2), PAIRS)
    estimate = Marginals().build(CellsAsk(np.zeros((3, 4, 2)), Fraction(200)), workload)
    assert estimate.mend(1.0).sum() == 0


def test_fitting_gives_back_marginals_that_a_table_has():
    shape, rng = (6, 5, 4), np.random.default_rng(8)
    cells = rng.poisson(1, shape)
    answers = [
        (Question(axes), Noisy(cells.sum(axis=3 - sum(axes)).ravel(), 1.0)) for axes in PAIRS
    ]
    table = fitted(combine(shape, answers), PAIRS, [1.0] * 3)
    assert table.min() >= 0
    for axes in PAIRS:
        assert np.abs(table.sum(axis=3 - sum(axes)) - cells.sum(axis=3 - sum(axes))).max() < 0.05


def test_rounding_keeps_the_total_and_stays_near_the_marginals():
    shape = (18, 19, 15)
    table = np.random.default_rng(2).gamma(0.3, 1, shape)
    found = whole_table(table, PAIRS)
    assert found.sum() == round(table.sum())
    assert found.min() >= 0
    for axes in PAIRS:
        away = (found - table).sum(axis=3 - sum(axes))
        assert np.abs(away).max() < 2
        assert np.mean(away**2) < 0.25


@pytest.mark.parametrize(
    ("shape", "workload"),
    [((8,), prefixes(8)), ((2048, 4096), marginals((2048, 4096), [(0,), (1,)]))],
)
def test_what_it_cannot_do_is_refused_before_anything_is_asked(shape, workload):
    with pytest.raises(SpecError):
        recipe("marginals").require(shape, workload)


def test_sets_are_read_off_the_workload_with_their_weight():
    shape = (2, 3, 4)
    sets, weights = marginals_of(marginals(shape, [(0, 1), (2,), (2,), ()]))
    assert dict(zip(sets, weights, strict=True)) == {(0, 1): 1, (2,): 2, (): 1}


def test_what_is_measured_depends_on_public_sizes_alone():
    shape, sets = (4, 2, 3), list(combinations(range(3), 2))
    first, second = (
        Marginals().predict(CellsAsk(np.full(shape, n), Fraction(1)), marginals(shape, sets))
        for n in (0, 999)
    )
    assert first == second
