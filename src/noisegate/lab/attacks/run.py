"""All attacks by name, tried in order."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.lab.attacks.base import Outcome, Setting

TIMES: Final = 100
_EPSILON_MAX: Final = 20
_ATTACKS: Final = {  # the module and its function, loaded when tried
    "differencing": ("differencing", "run"),
    "averaging": ("averaging", "run"),
    "reconstruction": ("reconstruction", "least_squares"),
    "reconstruction-lp": ("reconstruction", "linear_program"),
    "linkage": ("linkage", "one_table"),
    "two-hospitals": ("linkage", "two_hospitals"),
    "ratings": ("ratings", "run"),
    "tracing": ("tracing", "run"),
    "model": ("model", "run"),
    "green-hair": ("green_hair", "run"),
    "synthetic": ("synthetic", "run"),
    "floats": ("floats", "run"),
    "width": ("width", "run"),
    "budget": ("budget", "run"),
    "timing": ("timing", "run"),
}
NAMES: Final = tuple(_ATTACKS)


def tried(
    names: Sequence[str] = NAMES,
    *,
    epsilon: Number = 1,
    times: int = TIMES,
    progress: Callable[[float, str], None] | None = None,
) -> list[Outcome]:
    """Try attacks, by default all, on raw answers, on a classic defence and on a real gate.

    Args:
        names: Which attacks, of `NAMES`.
        epsilon: What the gate may spend in each trial.
        times: How many trials; a success rate errs by about half of its root.
        progress: Called with the share that is done and what comes next.

    >>> (found,) = tried(["differencing"], epsilon=1, times=10)
    >>> found.raw.success, found.classic.success, round(found.bound, 3)
    (1.0, 1.0, 0.731)
    """
    for name in names:
        if name not in _ATTACKS:
            raise SpecError(f"There is no attack named {name!r}.", fix=f"Use {', '.join(NAMES)}.")
    if times < 2:
        raise SpecError("Too few trials.", fix="Use at least 2 trials.", about="times")
    price = float(positive(epsilon, name="epsilon"))
    if price > _EPSILON_MAX:
        raise SpecError("ε is too large for an experiment.", fix=f"Use at most {_EPSILON_MAX}.")
    found = []
    for place, name in enumerate(names):
        if progress:
            progress(place / len(names), name)
        module, function = _ATTACKS[name]
        attack = getattr(import_module(f"noisegate.lab.attacks.{module}"), function)
        found.append(attack(Setting.of(name, epsilon=price, times=times)))
    if progress:
        progress(1, "done")
    return found
