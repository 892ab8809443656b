"""Audits of recipes, learners and programs, through the door, and of copies with too little noise.

A path is what the door was asked in one real run, with the exact numbers of both neighbours; see
`noisegate.audit.path`. False alarms: each audit calls an honest product a violation at most once in
10⁶ runs. Misses, estimated and not measured: most bounds of broken copies lie ten standard errors
above the claim, those of choices about three.
"""

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from noisegate.audit import Extent, of_programs, of_recipes
from noisegate.audit.draws import weaker
from noisegate.audit.of_recipes import opened, rows
from noisegate.audit.path import Ears, Use, path_audit
from noisegate.errors import Bug
from noisegate.learners import ESTIMATORS
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.catalogue import all_kinds
from noisegate.privacy.distance import L1
from noisegate.releases.recipes import RECIPES
from noisegate.synthetic.recipes import SYNTHESIZERS
from refusals import about

AUDITS = of_recipes.AUDITS | of_programs.AUDITS
QUICK = ["release: tree", "synthetic: independent", "learner: scaler"]
FEWER = Extent(trials=60_000)
PAIR = (rows((0, 0, "a")), rows())
COUNT = "SELECT COUNT(*) FROM data"


def checked(audit, extent=None):
    """The honest copy keeps its promise, nearly to the end; the broken one is seen."""
    honest = audit.run(extent)
    assert not honest.is_violation, str(honest)
    assert honest.power >= 0.7 * audit.reachable, str(honest)
    broken = audit.run(extent, broken=True)
    assert broken.is_violation, str(broken)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_few_whole_recipes_lose_what_they_claim_and_no_more(name):
    checked(AUDITS[name](), FEWER)


def test_no_recipe_synthesizer_or_estimator_is_left_out():
    named = (name.partition(": ") for name in of_recipes.AUDITS)
    released = {name for kind, _, name in named if kind == "release"}
    assert set(RECIPES) - {"auto"} <= released  # it asks another one
    assert {f"synthetic: {name}" for name in SYNTHESIZERS} <= set(of_programs.AUDITS)
    learners = {fitted.learner for fitted, _ in of_recipes.FITS.values()}
    assert set(ESTIMATORS) <= learners


def test_the_door_itself_with_a_fifth_too_little_noise_is_caught(monkeypatch):
    """The events still claim all of it: what is drawn is wrong, not what is said."""
    audit = path_audit(
        "count", lambda gate: gate.sql(COUNT, epsilon=2, fresh=True),
        opened=opened, pair=PAIR, neighbours="no row, or one", tries=1,
    )  # fmt: skip
    assert audit.claims == {0.0: 2.0}
    assert 0.9 < audit.run(FEWER).power <= 1
    honest = Geometric.sample

    def short(self, exact, **bits):
        return honest(Geometric(scale=self.scale * Fraction(4, 5)), exact, **bits)

    monkeypatch.setattr(Geometric, "sample", short)
    assert audit.run(FEWER).is_violation


def test_a_question_that_follows_from_the_rows_and_not_from_answers_is_a_bug():
    seen = []

    def peeking(gate):
        seen.append(gate)  # the first run has the unit
        return gate.sql(COUNT, epsilon=len(seen), fresh=True)

    with pytest.raises(Bug, check=about("path")):
        path_audit("peeks", peeking, opened=opened, pair=PAIR, neighbours="", tries=1)


def test_ears_leave_every_mechanism_as_it_was():
    names = ("sample", "summary", "event")
    before = {
        (kind, name): kind.__dict__.get(name) for kind in all_kinds().values() for name in names
    }
    with Ears(()).listening():
        assert Geometric.sample is not before[Geometric, "sample"]
    after = {
        (kind, name): kind.__dict__.get(name) for kind in all_kinds().values() for name in names
    }
    assert after == before


def test_the_exact_loss_of_a_draw_is_its_price_where_the_unit_moves_it_most():
    noise = Geometric(scale=Fraction(1, 2))
    use = Use(noise, (np.array([1, 5]),), (np.array([0, 5]),))
    assert use.tells
    assert use.loss == float(noise.event(L1(1)).sensitivity.value / noise.scale) == 2
    assert weaker(noise) == replace(noise, scale=Fraction(2, 5))


@pytest.mark.parametrize("name", ["release: dawa", "release: adaptive", "synthetic: mst"])
def test_no_answers_of_an_adaptive_recipe_tell_more_than_was_charged(name):
    """Exactly, not by sampling: the largest log-likelihood ratio along a real path."""
    audit = AUDITS[name]()
    (claim,) = audit.claims.values()
    told = sum(use.loss for use in audit.draws[0].uses)
    assert 0.9 * claim < told <= claim * (1 + 1e-9)


def test_a_path_can_be_sent_to_other_processes():
    audit = path_audit(
        "count", lambda gate: gate.sql(COUNT, epsilon=2, fresh=True),
        opened=opened, pair=PAIR, neighbours="", tries=1,
    )  # fmt: skip
    sent = pickle.loads(pickle.dumps(audit.draws[0]))
    assert sent(10).shape == audit.draws[0](10).shape
