"""A model that fits its rows too well betrays them: the target's own error is small [SSSS17]."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.base import Outcome, Setting, Trial, worlds

_PEOPLE, _COLUMNS, _PENALTY = 34, 30, 0.1
_CLOSE = 0.3  # half of how much the target varies
Numbers = NDArray[np.float64]


def run(setting: Setting) -> Outcome:
    """Was the target among the rows that a regression was fitted to?"""
    from noisegate.learners import Ridge  # noqa: PLC0415 - slow to load

    def people() -> Numbers:
        return setting.coins.uniform(-1, 1, (_PEOPLE, _COLUMNS + 1))

    def guess(weights: Numbers, target: Numbers) -> bool:
        """A row that helped to choose the weights has a small error."""
        return bool(abs(target[-1] - target[:-1] @ weights) < _CLOSE)

    def fitted(penalty: float, *, held: int) -> bool:
        rows = people()
        table = rows if held else rows[1:]
        columns = table[:, :-1]
        gram = columns.T @ columns + penalty * np.eye(_COLUMNS)
        weights = np.linalg.solve(gram, columns.T @ table[:, -1])
        return guess(weights.astype(np.float64), rows[0])

    rows, names = people(), [f"x{n}" for n in range(_COLUMNS)]
    table = pa.table(dict(zip([*names, "y"], rows.T, strict=True)))
    facts = {name: {"type": "number", "between": [-1, 1]} for name in [*names, "y"]}
    gates = worlds("rows", table, 0, facts)

    def private(held: int) -> bool:
        model = Ridge(epsilon=setting.epsilon)
        model.fit(gates[held].matrix("rows", names, target="y"), fresh=True)
        return guess(np.asarray(model.coef_, np.float64).reshape(-1), rows[0])

    return setting.of_a_bit(
        title="Membership in a model",
        story="A regression with nearly as many weights as rows passes close to every row that it "
        "was fitted to. Who knows the target's row looks at its error. A small penalty does not "
        "help. The gate's learner fits noisy sums, in which no row stands out.",
        measure="right guesses whether the target was in the training rows",
        raw=Trial("least squares", setting.played(lambda held: fitted(1e-9, held=held), often=10)),
        classic=Trial(
            f"ridge regression, penalty {_PENALTY}",
            setting.played(lambda held: fitted(_PENALTY, held=held), often=10),
        ),
        gate=setting.played(private, less=2),
    )
