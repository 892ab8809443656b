"""What does ε mean? Beliefs, odds and guesses, in numbers and in sentences.

>>> print(meaning("0.1").sentences[1])
A belief of 50 % that the person is there becomes at most 52.5 % and at least 47.5 %.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import floor
from typing import Final, final

from noisegate.errors import SpecError
from noisegate.exact import Number, exp_up, fraction, real, upper
from noisegate.frozen import dataclass
from noisegate.privacy.loss import ApproxDP, decimal_up

GROUPS: Final = (2, 5, 10)
_PROVISO: Final = (
    "All this is relative: it compares the answers with and without the person, everyone else's "
    "rows being fixed or independent of that person's. It does not limit what the answers teach "
    "about people in general, and rows that depend on each other count as a group."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeaning:
    """The same for several persons whose rows go together."""

    size: int
    odds_factor: Fraction
    posterior: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a loss says about an attacker who knows everything else.

    Claim: presence: posterior odds/prior odds ≤ e^ε, so a belief p rises to at most
        p e^ε/(1 + p (e^ε - 1)) and falls to at least p/(p + (1 - p) e^ε); the value of a present
        unit: the same with 2ε; posteriors with and without the unit's rows differ by at most
        tanh(ε/2) in total variation; a fair guess "in or out?" is right with probability at most
        (e^ε + δ)/(1 + e^ε). With δ > 0 all but the last are statements about an ε-private twin of
        the answers, which differs from them with probability at most δ on either table; they are
        not true of the answers themselves outside an event of probability δ.
    Adjacency: add/remove.
    Why: Bayes' rule, given the other rows or independent of them; [KS14] with its constant
        sharpened to tanh(ε/2); [KOV15] for guesses; [DR14, Lemma 3.17] for the twin; [DN10] for
        why nothing absolute can be promised. Rounding: every bound away from comfort.
    """

    loss: ApproxDP
    prior: Fraction
    odds_factor: Fraction
    posterior: Fraction
    posterior_least: Fraction
    posterior_change_one: Fraction
    total_variation: Fraction
    guess_accuracy: Fraction
    groups: tuple[GroupMeaning, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The numbers in plain words, the proviso last."""
        before = _percent(self.prior)
        groups = [_group_sentence(group, before) for group in self.groups]
        return (*_person_sentences(self, before), *groups, *_delta_sentence(self.loss), _PROVISO)

    def __str__(self) -> str:
        return "\n".join((f"What {self.loss} means", *(f"- {line}" for line in self.sentences)))


def meaning(
    epsilon: Number,
    *,
    delta: Number = 0,
    prior: Number = Fraction(1, 2),
    groups: Iterable[int] = GROUPS,
) -> Meaning:
    """What an (ε, δ) under add/remove means for a person believed present with ``prior``."""
    loss, belief = ApproxDP(epsilon, delta), fraction(prior, name="prior")
    if not 0 < belief < 1:
        raise SpecError(
            f"prior is {prior}.", fix="Use a probability strictly between 0 and 1.", about="prior"
        )
    size = loss.epsilon
    return Meaning(
        loss=loss,
        prior=belief,
        odds_factor=exp_up(size),
        posterior=posterior_up(size, prior=belief),
        posterior_least=1 - posterior_up(size, prior=1 - belief),
        posterior_change_one=posterior_up(2 * size, prior=belief),
        total_variation=upper(lambda: real(size / 2).tanh()),
        guess_accuracy=_guess_accuracy_up(loss),
        groups=tuple(_group(size, belief, count) for count in groups),
    )


def posterior_up(epsilon: Fraction, *, prior: Fraction) -> Fraction:
    """The largest belief that Bayes' rule allows after an ε-private answer.

    Claim: p e^ε/(1 + p (e^ε - 1)) = 1/(1 + (1/p - 1) e^-ε). Rounding: up.
    """
    if epsilon == 0:
        return prior
    return min(Fraction(1), upper(lambda: 1 / (1 + real(1 / prior - 1) * real(-epsilon).exp())))


def _guess_accuracy_up(loss: ApproxDP) -> Fraction:
    pure = posterior_up(loss.epsilon, prior=Fraction(1, 2))
    if loss.delta == 0:
        return pure
    extra = upper(lambda: real(loss.delta) / (1 + real(loss.epsilon).exp()))
    return min(Fraction(1), pure + extra)


def _group(epsilon: Fraction, prior: Fraction, size: int) -> GroupMeaning:
    together = size * epsilon
    posterior = posterior_up(together, prior=prior)
    return GroupMeaning(size=size, odds_factor=exp_up(together), posterior=posterior)


def _person_sentences(found: Meaning, before: str) -> tuple[str, ...]:
    factor, guess = _decimal(found.odds_factor), _percent(found.guess_accuracy)
    most, least = _percent(found.posterior), _percent_down(found.posterior_least)
    value, drift = _percent(found.posterior_change_one), _percent(found.total_variation)
    presence = (
        "The answers raise the odds that one person is in the data by a factor of at most "
        f"{factor}."
    )
    there = f"A belief of {before} that the person is there"
    belief = f"{there} becomes at most {most} and at least {least}."
    coin = f"Guessing “in or out?” of a fair coin succeeds at most {guess} of the time."
    rows = f"A belief of {before} about the values of a present person becomes at most {value}."
    conclusion = (
        "Conclusions about the person would be the same without that person's rows, "
        f"up to {drift} of probability."
    )
    return presence, belief, coin, rows, conclusion


def _group_sentence(group: GroupMeaning, before: str) -> str:
    factor, most = _decimal(group.odds_factor), _percent(group.posterior)
    return (
        f"For {group.size} people whose rows depend on each other the odds rise by a factor of at "
        f"most {factor}, and {before} becomes at most {most}."
    )


def _delta_sentence(loss: ApproxDP) -> tuple[str, ...]:
    if loss.delta == 0:
        return ()
    chance = decimal_up(loss.delta)
    twin = f"answers that differ from the real ones with probability at most {chance}"
    return (f"With δ, these limits hold for {twin} (more for groups).",)


def _percent(value: Fraction) -> str:
    """Rounded up to a tenth of a percent, finer where that would read as certainty."""
    for digits in range(1, 7):
        shown = Fraction(-((-value * 100 * 10**digits) // 1), 10**digits)
        if shown < 100:
            break
    return f"{float(shown):.6f}".rstrip("0").rstrip(".") + " %"


def _percent_down(value: Fraction) -> str:
    for digits in range(1, 7):
        shown = Fraction((value * 100 * 10**digits) // 1, 10**digits)
        if shown > 0:
            break
    return f"{float(shown):.6f}".rstrip("0").rstrip(".") + " %"


def _decimal(value: Fraction) -> str:
    """Rounded up to three decimals, or to three digits where it is large."""
    if value < 1000:
        return f"{float(Fraction(-((-value * 1000) // 1), 1000)):g}"
    exponent = len(str(floor(value))) - 1
    leading = -((-value * 100) // 10**exponent)  # three digits, or 1000
    if exponent < 6:
        return f"{leading * 10**exponent // 100:,}"
    return f"{leading / 100:.2f} × 10^{exponent}"
