"""Where the error depends on the rows, a model tells how large it may be; here is how often."""

from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from cells_ask import CellsAsk

from noisegate.desk.terms.price import Price
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.ask.transcript import Listening
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.estimate import finish
from noisegate.releases.cells.spatial import Boxes, fit
from noisegate.releases.cells.workload import all_ranges, cells, prefixes, ranges
from noisegate.releases.fit.plausible import DRAWS, Plausible
from noisegate.releases.forms.provenance import Making, workload_of
from noisegate.releases.forms.table import TableRelease
from noisegate.releases.recipes import recipe
from noisegate.releases.trees import hierarchy as hierarchy_module
from noisegate.releases.trees.covers import covers
from noisegate.releases.trees.hierarchy import hierarchy
from noisegate.transforms.strategy import Groups

rng = np.random.default_rng(11)
PLACE = np.arange(256)
SHAPES = {
    "flat": np.ones(256),
    "smooth": np.exp(-(((PLACE - 100) / 40) ** 2)) + 0.05,
    "spiky": np.where(PLACE % 37 == 5, 1.0, 0.0),
    "rough": rng.gamma(0.5, 2, 256),
}


def each_cell(shape):
    count = int(np.prod(shape))
    return Groups(np.arange(count, dtype=np.int32), count)


def model(values, variance, name="x"):
    shape = np.shape(values)
    noisy = Noisy(np.array(values, np.int64).ravel(), variance)
    return Plausible(hierarchy(shape, [(each_cell(shape), noisy)]), 1.0, name, shape)


def released(exact, method, workload, price=Fraction(1, 10), **options):
    """A release as a job makes it, without the door."""
    asked = workload_of(workload, exact.shape)
    ask = Listening(CellsAsk(exact, price))
    found = recipe(method, **options).build(ask, asked)
    values = (
        finish(found.cells.reshape(exact.shape), asked, is_whole=True, signed=False)
        if found.mend is None
        else found.mend(1.0)
    )
    making = Making(
        method=method,
        options=options,
        workload=workload,
        price=Price(amount=price, gaussian=False),
        moved=1,
        grain=Fraction(1),
        whole=True,
        signed=False,
        rounds=tuple(ask.rounds),
    )
    axes = tuple(
        Axis(name=f"x{place}", keys=tuple(range(size))) for place, size in enumerate(exact.shape)
    )
    return TableRelease(
        sql="",
        axes=axes,
        values=values.reshape(exact.shape),
        value="n",
        making=making,
        words=(),
        cost=ApproxDP(price),
        remaining=None,
        guarantee=Guarantee(loss=ApproxDP(price), unit=PrivacyUnit(column=None), scope="a test"),
        question="",
        request_id="",
    )


def narrow(release):
    """The same with a model that thinks that it errs by a quarter."""
    found = release.making.estimate(release.shape)

    def quarter(lows, highs):
        guess = found.guess(lows, highs)
        return guess._replace(spread=guess.spread / 4)

    kept = {"estimate": replace(found, guess=quarter)}
    return replace(release, making=replace(release.making, _kept=kept))


def held(release, exact, asked):
    """The share of answers within their ±."""
    widths = np.array(release.widths(asked, 0.95), np.float64)
    away = np.abs(asked.answers(release.values) - asked.answers(exact))
    return np.mean(away <= widths)


def test_draws_are_the_same_each_time_and_others_for_another_release():
    one, two = model([5, 0, 9, 40], 8.0), model([5, 0, 9, 40], 8.0)
    other = model([5, 0, 9, 40], 8.0, "y")
    assert len(one.tables) == DRAWS
    assert np.array_equal(one.tables, two.tables)
    assert not np.array_equal(one.tables, other.tables)


def test_cells_that_were_measured_exactly_are_known():
    values = np.array([[5, 0, 9], [40, 1, 0]])
    for table in model(values, 0.0).tables:
        assert table == pytest.approx(values, abs=0.01)


def test_no_draw_is_negative_also_where_the_numbers_are():
    tables = np.array(model([-30, 4, -3, -50], 100.0).tables)
    assert tables.min() >= 0
    assert tables.sum(axis=1).std() > 1  # that nothing is there is not certain


def test_one_number_has_the_spread_of_its_noise():
    """The standard error of a deviation of 32 draws is 1/8 of it: 0.3 to 2 is 5 and more away."""
    tables = np.array(model([1000], 400.0).tables)
    assert 0.3 * 20 < tables.std() < 2 * 20
    assert abs(tables.mean() - 1000) < 6 * 20 / np.sqrt(DRAWS)


def test_a_number_far_from_all_others_weighs_little_where_noise_is_geometric():
    """A total of 600 ± 30 above eight cells of 100 ± 15: normal noise settles between them.

    Geometric noise leaves all between them nearly as likely, so the draws are spread: 1.8 times as
    far in the mean of 60 names, and 1.27 times at least.
    """
    parts = each_cell((8,)), Noisy(np.full(8, 100), 15.0**2)
    whole = Groups(np.zeros(8, np.int32), 1), Noisy(np.array([600]), 30.0**2)
    tree = hierarchy((8,), [whole, parts])
    usual, normal = (
        np.sum(Plausible(tree, 1.0, "x", (8,), gaussian).tables, axis=1)
        for gaussian in (False, True)
    )
    assert usual.std() > 1.2 * normal.std()
    assert usual.mean() > normal.mean()  # one number gives way sooner than eight


def test_a_factor_holds_for_nine_of_ten_sums_of_all_draws_but_one():
    """Sums that are off together need a larger one than single cells, which are off one by one."""
    found = model(rng.integers(0, 60, 256), 200.0)
    values, factors = np.mean(found.tables, axis=0), []
    for asked in (cells((256,)), prefixes(256)):
        shown = asked.answers(values)
        factor = found.factor(asked, shown, 1.0)
        half = factor * found.spread(asked, shown, 1.0, together=False)
        away = np.abs([asked.answers(table) - shown for table in found.tables])
        inside = away <= np.maximum(half, factor / 2)
        assert np.sort(inside.mean(axis=1))[1] >= 0.9
        assert inside.mean() >= 0.95
        factors.append(factor)
    assert 2.16 < factors[0] < factors[1] < 5


def test_where_nearly_all_cells_are_empty_sums_of_them_have_no_smaller_factor():
    """Most cells are off by nothing, and the total by the noise of those that are not."""
    found = model(np.where(np.arange(256) % 16 == 0, 40, 0), 2.0)
    values = np.rint(np.median(found.tables, axis=0))
    assert found.factor(cells((256,)), values, 1.0) > 2.16


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "workload", "rows", "shape"),
    [
        *(("adaptive", "cells", 20_000, shape) for shape in SHAPES),
        ("planned", "prefixes", 1000, "smooth"),
        ("planned", "prefixes", 50_000, "rough"),
    ],
)
def test_the_exact_numbers_lie_within_the_margins(method, workload, rows, shape):
    """0.97 to 1 of answers do, but in 1 of 15 adaptive releases of flat cells only 0.4: the mean of
    6 has a deviation of 0.03, and 0.85 is 3 away; 2 of them failed in 1 of 15 runs.

    Half as large, the ± would hold for 0.75 of cells and less.
    """
    shares, chances = [], SHAPES[shape] / SHAPES[shape].sum()
    for _ in range(6):
        exact = rng.multinomial(rows, chances)
        release = released(exact, method, workload)
        shares += [held(release, exact, asked) for asked in (cells((256,)), prefixes(256))]
    assert np.mean(shares) > 0.85


@pytest.mark.long
@pytest.mark.parametrize("method", ["adaptive", "privtree", "adaptive-grid"])
def test_rectangles_have_margins_whatever_they_cut_through(method):
    """0.95 to 0.99 of the rectangles of a release, give or take 0.02 to 0.05; 0.6 is far from it."""
    chances = np.outer(SHAPES["rough"][:32], SHAPES["smooth"][80:112]).ravel()
    shares = []
    for _ in range(2):
        exact = rng.multinomial(30_000, chances / chances.sum()).reshape(32, 32)
        release = released(exact, method, "ranges")
        widths = release.widths(all_ranges((32, 32), most=400), 0.95)
        assert None not in widths
        shares.append(held(release, exact, all_ranges((32, 32), most=400)))
    assert np.mean(shares) > 0.6


@pytest.mark.parametrize("method", ["kdtree", "hybrid"])
def test_rectangles_that_cut_boxes_of_a_kd_tree_hold_for_any_rows(method):
    """Proven for 0.95 of all: of rows in the corners of boxes too, where an even spread is wrong.

    Noise is so small that no rectangle is off by it: none fails.
    """
    exact = np.zeros((16, 16), np.int64)
    exact[::4, ::4] = 900 + np.arange(16).reshape(4, 4)
    options = {"depth": 4} if method == "kdtree" else {"cuts": 2, "depth": 1}
    release = released(exact, method, "ranges", Fraction(200), **options)
    every = all_ranges((16, 16), most=40_000)
    assert held(release, exact, every) == 1
    even = replace(release.making.estimate((16, 16)), between=None)
    tree = even.tree
    blind = replace(even, variance=tree.noise)  # a ± of noise alone
    kept = {"estimate": blind}
    assert held(replace(release, making=replace(release.making, _kept=kept)), exact, every) < 0.9


def test_what_a_rectangle_holds_is_between_the_boxes_inside_and_those_it_touches():
    boxes = Boxes.of((8,), [(np.array([[0], [3]]), np.array([[2], [7]]), np.array([0, 0]))])
    tree = fit(boxes, np.array([100.0, 30.0, 70.0]), np.array([np.inf, 4.0, 9.0]))
    ends = [[0], [1], [0], [4]], [[2], [5], [5], [5]]
    inside, touched = tree.between(*(np.array(each) for each in ends))
    assert inside.sums.tolist() == [30, 0, 30, 0]
    assert touched.sums.tolist() == [30, 100, 100, 70]
    assert inside.variance == pytest.approx([4, 0, 4, 0])
    assert touched.variance == pytest.approx([4, 13, 13, 9])


def test_margins_are_not_much_wider_than_needed():
    """About 1.5 times; the quantile of 1024 errors is known to 4.5 %, so that 2.2 is 7 away."""
    widths, away = [], []
    for _ in range(4):
        exact = rng.multinomial(100_000, SHAPES["smooth"] / SHAPES["smooth"].sum())
        release = released(exact, "adaptive", "cells")
        widths.append(release.margins().mean())
        away.append(np.abs(release.values - exact))
    assert np.mean(widths) < 2.2 * np.quantile(away, 0.95)


@pytest.mark.long
def test_sums_of_several_parts_have_a_margin_of_their_own():
    """Over that of the parts together it is 0.76 ± 0.14 in a release, over that of the larger one
    1.28 ± 0.27 (190 tried): the means of 12 are more than 5 deviations from 1 and from 1/2."""
    margins = []
    for _ in range(12):
        release = released(rng.poisson(50, 256), "adaptive", "cells")
        both = release.query(x0=[*range(10), *range(100, 110)]).margin
        parts = [release.query(x0=(0, 9)).margin, release.query(x0=(100, 109)).margin]
        margins.append((both / sum(parts), both / max(parts)))
        near, far = (release.query(level, x0=(0, 9)).margin for level in (0.5, 0.99))
        assert near < parts[0] < far
    over_sum, over_larger = np.mean(margins, axis=0)
    assert over_sum < 1
    assert over_larger > 1 / 2


def test_a_changed_recipe_or_signed_numbers_leave_the_margin_open():
    release = released(rng.poisson(50, 32), "adaptive", "cells")
    assert release.margins() is not None
    signed = replace(release, making=replace(release.making, signed=True, _kept={}))
    assert signed.margins() is None
    assert "± ? because the sums may be negative" in str(signed.query())
    other = replace(release, making=replace(release.making, rounds=(), _kept={}))
    assert other.margins() is None
    assert str(other.query()).endswith("± ? because the method has changed since the release")


@pytest.mark.parametrize(("method", "shape"), [("adaptive", (32, 32)), ("planned", (256,))])
def test_tables_too_large_for_a_model_have_margins_that_hold_for_any_rows(
    method, shape, monkeypatch
):
    """Proven for 0.95 of all; 0.986 or more of 60 releases, with a deviation of 0.003."""
    monkeypatch.setattr(hierarchy_module, "CELLS_MAX", 16)
    exact = rng.multinomial(20_000, rng.dirichlet(np.full(prod(shape), 0.2))).reshape(shape)
    release = released(exact, method, "ranges")
    for asked in (cells(shape), all_ranges(shape, most=300)):
        assert held(release, exact, asked) > 0.9
    assert release.query(x0=(3, 9)).margin is not None
    assert "No ±" not in release.footer()


def test_covers_are_the_latest_groups_and_earlier_ones_elsewhere():
    def told(labels, values, variance):
        return Groups(np.array(labels, np.int32), len(values)), Noisy(np.array(values), variance)

    heard = [
        told([0] * 6, [100], 1.0),
        told([0, 0, 1, 1, 2, 2], [40, 30, 20], 2.0),
        told([0, 1, -1, -1, -1, -1], [25, 16], 3.0),
    ]
    fine, coarse = covers((6,), heard)
    assert coarse.values.tolist() == [100]
    assert [fine.values[each] for each in fine.labels] == [25, 16, 30, 30, 20, 20]
    inside, touched = fine.between(ranges((6,), [[0], [1], [3]], [[1], [4], [3]]))
    assert (inside.sums.tolist(), inside.variance.tolist()) == ([41, 46, 0], [6, 5, 0])
    assert (touched.sums.tolist(), touched.variance.tolist()) == ([41, 66, 30], [6, 7, 2])
    single = fine.between(cells((6,)))
    assert single[0].sums.tolist() == [25, 16, 0, 0, 0, 0]
    assert single[1].sums.tolist() == [25, 16, 30, 30, 20, 20]
    assert covers((6,), heard[2:]) == []  # cells are left out
    cut = told([-1, 0, 0, -1, -1, -1], [9], 1.0)
    assert len(covers((6,), [*heard[:2], cut])) == 2  # of groups that are cut, those before count


@pytest.mark.long
@pytest.mark.parametrize("shape", [(32,), (6, 6)])
def test_rounds_that_ask_what_is_furthest_off_tell_how_far_the_rest_is(shape):
    """All answers of nearly every release are within: of 240, one had 0.997.

    The ± is 0.42 of that of a model which sees no groups that cross others, with a deviation of
    0.1 for each release and 0.76 as the largest of 240: 0.8 is 6 away from the mean of three.
    """
    size = prod(shape)
    chances = SHAPES["rough"][:size] + SHAPES["smooth"][60 : 60 + size]
    asked, shares, ratios = all_ranges(shape, most=300), [], []
    for _ in range(3):
        exact = rng.multinomial(10_000, chances / chances.sum()).reshape(shape)
        release = released(exact, "mwem", "ranges", Fraction(1), rounds=20, replays=10)
        found = replace(release.making.estimate(shape), guess=None)
        nested = replace(release, making=replace(release.making, _kept={"estimate": found}))
        shares.append(held(release, exact, asked))
        ratios.append(np.mean(release.widths(asked, 0.95)) / np.mean(nested.widths(asked, 0.95)))
    assert np.mean(shares) > 0.95
    assert np.mean(ratios) < 0.8


WEEK = np.add.outer(40 + 8 * np.arange(7), 30 * np.sin(np.arange(24) / 4) ** 2)
MODELS = {
    "waves chosen": ("fourier", SHAPES["smooth"], {}),
    "waves chosen of a rough series": ("fourier", SHAPES["rough"], {}),
    "few waves of spikes": ("fourier", SHAPES["spiky"], {"frequencies": 30}),
    "a week": ("seasonal", WEEK, {}),
    "a sharp season": ("seasonal", SHAPES["rough"][:96].reshape(4, 24), {}),
    "sketch": ("sketch", SHAPES["rough"], {}),
    "sketch of spikes": ("sketch", SHAPES["spiky"], {}),
    "count-min": ("sketch", SHAPES["spiky"], {"signed": False}),
    "sensing": ("sensing", SHAPES["spiky"], {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_waves_and_hashed_sums_have_margins_that_hold(name):
    """Of single cells 0.97 to 1, with a deviation of at most 0.006: 0.9 is 12 away.

    Ranges of one release are off together: 0.99 and more are within, with a deviation of 0.024 and
    none of 40 releases below 0.87. By a model that thinks that it errs by a quarter, 0.85 or less
    have, where the model counts much.
    """
    method, shape, options = MODELS[name]
    shares, far = [], []
    for _ in range(4):
        exact = rng.multinomial(20_000, (shape / shape.sum()).ravel()).reshape(shape.shape)
        release = released(exact, method, "cells", Fraction(1, 2), **options)
        for asked in (cells(shape.shape), all_ranges(shape.shape, most=400)):
            assert None not in release.widths(asked, 0.95)
            shares.append(held(release, exact, asked))
            far.append(held(narrow(release), exact, asked))
    assert np.mean(shares[0::2]) > 0.9
    assert np.mean(shares[1::2]) > 0.8
    if name in ("few waves of spikes", "a sharp season", "a week"):
        assert np.mean(far) < 0.9
