"""What noise costs whose width is a secret: a public scale times a smooth bound S.

The answer is f + scale · S · Z, where a unit that comes or goes moves f by at most S, and ln S by
at most β. So the laws of two neighbours are one law, moved by at most 1/scale widths of the
narrower and stretched by at most e^β. Whoever scales noise by what the rows at hand allow, without
a smooth bound, tells what they allow.
"""

from fractions import Fraction
from typing import Final

from noisegate.exact import Real, real, upper

NARROW: Final = Fraction(1, 2)  # of Student's scales; most are wider


def student_epsilon_up(scale: Fraction, beta: Fraction) -> Fraction:
    """The ε of Student's t with three degrees of freedom.

    Claim: pure, ε = β + 2 arcosh(cosh β + e^-β/(6 scale²)); without the e^-β for scales below ½.
    Adjacency: that of the smooth bound. For scales of at least ½ no smaller ε holds.
    Why: the log-ratio of noise of width 1 at 0 to noise of width w at s is
        2 ln[(3w² + (z - s)²)/(3 + z²)] - 3 ln w. A ratio of two quadratic forms in (z, 1) is at
        most the largest eigenvalue λ of the pair; both eigenvalues have the product w² and the sum
        1 + w² + s²/3, so λ = w e^θ with cosh θ = cosh(ln w) + s²/6w, and the ratio is at most
        2θ - ln w. It grows with s ≤ min(w, 1)/scale. With w = e^-b that is
        b + 2 arcosh(cosh b + q), q = e^-b/(6 scale²), and w = e^b has less. It grows with b too if
        √(q² + 2q) ≥ 2q, hence if q ≤ ⅔, hence if scale ≥ ½; and in any case after q is replaced
        by its largest value. The constants of [NRS07] and [BS19] are larger. Rounding: up.
    """

    def epsilon() -> Real:
        stretch = real(beta)
        move = real(1 / (6 * scale * scale))
        if scale >= NARROW:
            move = move * (-stretch).exp()
        return stretch + 2 * (stretch.cosh() + move).acosh()

    return upper(epsilon)


def laplace_delta_up(scale: Fraction, beta: Fraction, epsilon: Fraction) -> Fraction:
    """The δ of Laplace noise, at an ``epsilon`` of at least 1/scale + β.

    Claim: with s = 1/scale,
        δ = ½ (1 - e^-β) (e^(-(ε - s + β)/(e^β - 1)) + e^(-(ε + s + β)/(e^β - 1))).
    Adjacency: that of the smooth bound.
    Why: from narrow to wide the log-ratio is at most s + β ≤ ε. From wide to narrow it is
        -β - |z| e^-β + |z - s|, above ε in both tails only, where both densities are plain
        exponentials; the formula is their integral. It rises with s and with β, so the largest of
        both is the worst pair. Rounding: up.
    """
    shift = 1 / scale

    def delta() -> Real:
        growth = real(beta).expm1()
        near = (-real(epsilon - shift + beta) / growth).exp()
        far = (-real(epsilon + shift + beta) / growth).exp()
        return -(-real(beta)).expm1() * (near + far) / 2

    return upper(delta)


def lognormal_rho_up(scale: Fraction, beta: Fraction, sigma: Fraction) -> Fraction:
    """The ρ of noise X e^(σY), X Laplace and Y normal.

    Claim: ρ = ½ (e^(3σ²/2)/scale + β/σ)². Adjacency: that of the smooth bound.
    Why: [BS19]. The density h is a mean of e^(-σY - |z| e^(-σY)) / 2, so |∂ ln h| is a mean of
        e^(-σY) under weights that fall for large e^(-σY) as |z| grows: largest at 0, where it is
        E[e^(-2σY)] / E[e^(-σY)] = e^(3σ²/2). So a move is pure, with ρ = ½ e^(3σ²)/scale². A
        dilation by e^β shifts Y by β/σ: post-processing of a Gaussian, ρ = ½ (β/σ)². Roots of ρ
        add up from one law over a second to a third [BS16, Prop. 1.9]. Rounding: up.
    """
    return upper(
        lambda: (real(3 * sigma * sigma / 2).exp() / real(scale) + real(beta / sigma)) ** 2 / 2
    )
