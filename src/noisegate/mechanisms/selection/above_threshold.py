"""The sparse vector technique: a long stream of yes/no questions, paid by its few yeses.

Noise on the threshold is drawn once and pays for all the noes together; each yes pays for itself.
Both noises are whole numbers on the grid of the questions, so there is no rounding to account for,
and the proof is the continuous one with sums for integrals. Of what is compared, the gap of a yes
may be released: by how much the noisy value passes the noisy threshold. It costs nothing more.

>>> sparse = AboveThreshold.for_epsilon(1, threshold=100, sensitivity=1, cutoff=2, monotone=True)
>>> event = sparse.event(Fraction(1))
>>> event.epsilon_threshold + event.epsilon_queries
Fraction(1, 1)
"""

import os
from collections.abc import Callable
from fractions import Fraction
from threading import Lock
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.tails import upper_tail
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.selection.scores import questions_of, require_flag, sides
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, discrete_laplace
from noisegate.privacy.event import AboveThresholdEvent
from noisegate.transforms.query import Query

CUTOFF_MAX: Final = 1 << 31
CUT: Final = -(1 << 62)  # no answer: the run was over


class SparseVector(base.Repeatable[Fraction]):
    """What questions are compared with: noise of its own, and noise of each question."""

    __slots__ = ()
    threshold: int
    threshold_scale: Fraction
    query_scale: Fraction
    cutoff: int

    def require_fields(self, *, least: int) -> None:
        """Refuse a threshold below the least, and what no sampler takes."""
        base.require_whole(self, "threshold", least=least, most=base.INPUT_MAX)
        base.require_whole(self, "cutoff", least=1, most=CUTOFF_MAX)
        for field in ("threshold_scale", "query_scale"):
            base.store_positive(self, field, least=SCALE_MIN, most=SCALE_MAX)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """A whole run on questions known in advance: 0 for each no, cut after the last yes."""
        run = self.uses(exact, 1, bits=bits)
        found: Int64Array = run[run != CUT]
        return found


def scales(epsilon: Number, *, sensitivity: Number, times: int) -> dict[str, Fraction]:
    """Those whose run costs exactly ``epsilon``, where all yeses together cost so many sides.

    Why: the variance of a comparison, 2(Δ/ε₁)² + 2(mΔ/ε₂)² with m = ``times``, is least at
        ε₁ : ε₂ = 1 : m^(2/3) [LSL17, Sec. 4.2]. The ratio is a nearby fraction; any split is
        private.
    """
    whole, reach = positive(epsilon, name="epsilon"), positive(sensitivity, name="sensitivity")
    first = whole / (1 + Fraction(times ** (2 / 3)).limit_denominator(1000))
    return {"threshold_scale": reach / first, "query_scale": times * reach / (whole - first)}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThreshold(SparseVector):
    """Says for each question in turn whether its noisy value reaches a noisy threshold."""

    name: ClassVar[str] = "above-threshold/1"
    takes: ClassVar[base.Takes] = base.Takes.ANY_ONE
    threshold: int
    threshold_scale: Fraction
    query_scale: Fraction
    cutoff: int
    monotone: bool = False

    def __post_init__(self) -> None:
        self.require_fields(least=-base.INPUT_MAX)
        require_flag(self, "monotone")

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        threshold: int,
        sensitivity: Number,
        cutoff: int,
        monotone: bool = False,
    ) -> "AboveThreshold":
        """Scales whose event costs exactly ``epsilon``, split between threshold and questions.

        All yeses together cost 2 · cutoff sides, or cutoff if monotone; see `scales`.
        """
        times = sides(monotone=monotone) * base.whole_count(cutoff, name="cutoff")
        held = scales(epsilon, sensitivity=sensitivity, times=times)
        return cls(threshold=threshold, cutoff=cutoff, monotone=monotone, **held)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """One block of questions about the cells of one sum, in the order of the block."""
        questions_of(query)
        if self.monotone and not query.is_monotone:
            raise Unsupported(
                "These sums are not monotone.", fix="Use monotone=False.", about="monotone"
            )

    def event(self, sensitivity: Fraction, /) -> AboveThresholdEvent:
        """What a whole run is, however many questions it answers.

        Claim: ε₁ + ε₂ with ε₁ = Δ / threshold_scale and ε₂ = 2 · cutoff · Δ / query_scale, or half
            of that if one unit moves all answers the same way (counts under add/remove).
        Adjacency: that of ``sensitivity``, the largest change of any one question.
        Why: [LSL17, Thm 4 and 5]. Move the threshold noise by Δ: every no stays at least as likely,
            at a cost of ε₁ once; each yes moves its own noise by at most 2Δ (Δ if monotone).
        Why, with gaps: as in [DWZK19], here on whole numbers. Let answers change by dᵢ. Where the
            threshold moves by Δ, a yes moves its noise by Δ - dᵢ, a whole number from 0 to 2Δ: its
            gap is then the same, and so is the yes. If all dᵢ >= 0, that is at most Δ. If all
            dᵢ <= 0, the threshold stays, since a no remains one, and a yes moves by -dᵢ <= Δ.
        Rounding: none, but that noise stops at ±2**62, which a draw reaches with probability below
            e^(-2**21) at the largest scale.
        """
        reach = positive(sensitivity, name="sensitivity")
        times = sides(monotone=self.monotone) * self.cutoff
        return AboveThresholdEvent(
            epsilon_threshold=reach / self.threshold_scale,
            epsilon_queries=times * reach / self.query_scale,
            cutoff=self.cutoff,
        )

    def start(self, *, bits: Bits = SYSTEM) -> "SparseRun":
        """A run: the threshold's noise is drawn here, once."""
        noise = int(discrete_laplace(self.threshold_scale, 1, bits=bits)[0])
        return SparseRun(self, bar=self.threshold + noise, bits=bits)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """So many whole runs, a run a row; each has its own price. `CUT` is where a run is over."""
        values = asked(exact)
        bars = self.threshold + discrete_laplace(self.threshold_scale, (count, 1), bits=bits)
        noise = discrete_laplace(self.query_scale, (count, values.size), bits=bits)
        return cut_off((values + noise >= bars).astype(np.int64), self.cutoff)

    def accuracy(self, confidence: Number, *, questions: int) -> int:
        """A t so that every yes means at least threshold - t, and every no less than threshold + t.

        Claim: |threshold noise| and all |question noises| stay below their parts of t, failing with
            half of 1 - confidence each (compare [DR14, Thm 3.24]). Rounding: up.
        """
        count = base.whole_count(questions, name="questions")
        half = base.failure_of(confidence) / 2
        return _half_width(self.threshold_scale, half) + _half_width(self.query_scale, half / count)


class Run:
    """One run of questions, in order, until the cutoff."""

    __slots__ = ("_bits", "_left", "_lock", "_owner", "_spec")

    def __init__(self, spec: SparseVector, bits: Bits) -> None:
        self._spec, self._bits, self._left = spec, bits, spec.cutoff
        self._lock, self._owner = Lock(), os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether the last allowed yes was given; this is known to the asker anyway."""
        return self._left <= 0

    def _told(
        self, values: Int64Array, how: Callable[[Int64Array], Int64Array], most: int = CUTOFF_MAX
    ) -> Int64Array:
        """What is made of the noisy values, 0 for no; cut after so many yeses, or the last."""
        exact = asked(values)
        if os.getpid() != self._owner:
            raise SpecError(
                "This run belongs to another process.", fix="Pay for a new run.", about="process"
            )
        with self._lock:
            if self.is_over:
                raise SpecError(
                    "This run has used its last positive answer.", fix="Pay for a new run."
                )
            noise = discrete_laplace(self._spec.query_scale, exact.shape, bits=self._bits)
            answers = cut_off(how(exact + noise)[None], min(most, self._left))
            found: Int64Array = answers[answers != CUT]
            self._left -= int(np.count_nonzero(found))
            return found


@final
class SparseRun(Run):
    """A run with one threshold. Of what it compared it shows gaps alone."""

    __slots__ = ("_bar",)

    def __init__(self, spec: AboveThreshold, *, bar: int, bits: Bits) -> None:
        super().__init__(spec, bits)
        self._bar = bar

    def ask(self, values: Int64Array) -> NDArray[np.bool_]:
        """Answers to the next questions, cut after the yes that ends the run.

        Later questions may depend on these answers. The values are clamped to ±2**60.
        """
        return self.gaps(values) >= 0

    def gaps(self, values: Int64Array) -> Int64Array:
        """The same with the gap of each yes, from 0 on; -1 is a no."""
        return self._told(values, lambda noisy: np.maximum(noisy - self._bar, -1) + 1) - 1


def asked(values: Int64Array) -> Int64Array:
    """Questions in a row, clamped."""
    exact = base.clamped(values)
    if exact.ndim != 1:
        raise SpecError(
            "The questions are not one-dimensional.", fix="Give a one-dimensional array."
        )
    return exact


def cut_off(answers: Int64Array, yeses: int) -> Int64Array:
    """Rows of answers, 0 for no, with `CUT` for all after the last allowed yes."""
    is_yes = answers != 0
    before = np.cumsum(is_yes, axis=1) - is_yes
    return np.where(before < yeses, answers, CUT)


def _half_width(scale: Fraction, failure: Fraction) -> int:
    return base.smallest_whole(
        lambda t: base.surely_at_most(lambda: 2 * upper_tail(scale, t + 1), failure)
    )
