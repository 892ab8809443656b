"""What a loss means in beliefs, and how a guarantee reads."""

import math
from fractions import Fraction

import pytest

from noisegate.errors import SpecError
from noisegate.planning.meaning import meaning, posterior_up
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ZCDP, ApproxDP
from noisegate.privacy.unit import Adjacency, PrivacyUnit
from refusals import about

PERSON = PrivacyUnit(column="patient_id")


@pytest.mark.parametrize(("epsilon", "posterior"), [("1", 0.7311), ("0.1", 0.5250)])
def test_a_fair_belief_rises_to_its_published_bound(epsilon, posterior):
    found = meaning(epsilon)
    assert float(found.posterior) == pytest.approx(posterior, abs=5e-5)
    assert found.posterior == found.guess_accuracy
    assert float(found.posterior_least) == pytest.approx(1 - posterior, abs=5e-5)


@pytest.mark.parametrize(("epsilon", "distance"), [
    ("0.5", 0.244919), ("1", 0.462117), ("2", 0.761594),
])  # fmt: skip
def test_beliefs_with_and_without_differ_by_the_hyperbolic_tangent(epsilon, distance):
    assert float(meaning(epsilon).total_variation) == pytest.approx(distance, abs=5e-7)


def test_every_bound_is_on_the_cautious_side():
    found = meaning("0.3", prior="0.2", delta="1e-3")
    e = math.exp(0.3)
    assert found.odds_factor >= Fraction(e) * (1 - Fraction(1, 10**15))
    assert found.posterior >= Fraction(0.2 * e / (1 + 0.2 * (e - 1))) * (1 - Fraction(1, 10**15))
    assert found.posterior_least <= Fraction(0.2 / (0.2 + 0.8 * e)) * (1 + Fraction(1, 10**15))
    assert float(found.guess_accuracy) == pytest.approx((e + 1e-3) / (1 + e), rel=1e-12)


def test_the_fair_guess_is_attained_by_randomised_response():
    """Two-point loss: the best test answers as the mechanism does."""
    truth = math.exp(0.7) / (1 + math.exp(0.7))
    assert float(meaning("0.7").guess_accuracy) == pytest.approx(truth, rel=1e-12)


def test_groups_multiply_the_exponent():
    found = meaning("0.1")
    assert [group.size for group in found.groups] == [2, 5, 10]
    for group in found.groups:
        assert float(group.odds_factor) == pytest.approx(math.exp(0.1 * group.size), rel=1e-12)
        assert group.posterior == posterior_up(Fraction(group.size, 10), prior=Fraction(1, 2))


def test_no_loss_leaves_beliefs_alone():
    found = meaning(0, prior="0.3")
    assert found.posterior == found.posterior_least == Fraction(3, 10)
    assert (found.odds_factor, found.total_variation) == (1, 0)


def test_the_sentences_say_the_numbers_and_the_proviso():
    lines = meaning(1, delta="1e-6").sentences
    assert (
        lines[0]
        == "The answers raise the odds that one person is in the data by a factor of at most 2.719."
    )
    assert "73.2 % and at least 26.8 %" in lines[1]
    assert any("For 5 people" in line and "148.414" in line for line in lines)
    assert "1e-6" in lines[-2]
    assert "relative" in lines[-1]
    assert "independent" in lines[-1]
    assert str(meaning(1)).startswith("What ε = 1 means\n- The answers")


def test_a_huge_loss_never_reads_as_certainty_where_it_is_not():
    lines = meaning(10, prior="0.01").sentences
    assert "99.6 %" in lines[1]
    assert "at least 0.00004 %" in lines[1]
    assert "99.996 %" in lines[2]
    assert "× 10^43" in lines[7]


@pytest.mark.parametrize("prior", [0, 1, -1, 2])
def test_a_belief_of_certainty_is_refused(prior):
    with pytest.raises(SpecError, check=about("prior")):
        meaning(1, prior=prior)


def test_a_guarantee_is_a_sentence():
    text = str(Guarantee(loss=ApproxDP("0.5", "1e-6"), unit=PERSON, scope="table 'visits'"))
    assert text == (
        "(ε = 0.5, δ = 1e-6) for adding or removing one person "
        "(all rows with the same 'patient_id') in table 'visits'."
    )


def test_the_corollary_for_changing_one_unit():
    given = Guarantee(loss=ApproxDP("0.5"), unit=PERSON, scope="the survey")
    changed = given.change_one()
    assert changed.loss == ApproxDP(1)
    assert changed.adjacency is Adjacency.CHANGE_ONE
    assert "for changing one person" in str(changed)
    assert changed.change_one() is changed
    concentrated = Guarantee(loss=ZCDP("0.1"), unit=PERSON, scope="the survey")
    assert concentrated.change_one().loss == ZCDP("0.4")
    assert concentrated.group(3) == ZCDP("0.9")


def test_a_guarantee_travels_as_exact_text():
    row = PrivacyUnit(column=None)
    assert Guarantee(loss=ApproxDP("1/3"), unit=row, scope="the survey").to_dict() == {
        "kind": "approx", "epsilon": "1/3", "delta": "0", "adjacency": "add_remove",
        "unit_column": None, "unit_noun": "person", "scope": "the survey",
            "units": [{"column": None, "noun": "person", "ids": None}],
        "sentence": "ε = 0.333334 for adding or removing one row "
        "(declared: every row is one person) in the survey.",
    }  # fmt: skip
    loss = ZCDP("0.1", "1e-6")
    record = Guarantee(loss=loss, unit=row, scope="the survey").to_dict()
    assert (record["kind"], record["rho"], record["delta"]) == ("zcdp", "1/10", "1/1000000")


def test_a_guarantee_without_scope_is_refused():
    with pytest.raises(SpecError, check=about("scope")):
        Guarantee(loss=ApproxDP(1), unit=PERSON, scope="")
