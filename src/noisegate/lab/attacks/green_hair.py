"""Only one person in town has green hair: does the model give that feature any weight?"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.base import Outcome, Setting, Trial, worlds

_PEOPLE, _PENALTY = 60, 1.0
_NAMES = ("age", "dose", "green")
_SEEN = 0.05  # a weight that noise of the solver is not
Numbers = NDArray[np.float64]


def run(setting: Setting) -> Outcome:
    """Was the only person with green hair among the rows that a model was fitted to?"""
    from noisegate.learners import LogisticRegression  # noqa: PLC0415 - slow to load

    def people() -> tuple[Numbers, NDArray[np.bool_]]:
        """The first is the target: green, and sick."""
        known = setting.coins.uniform(-1, 1, (_PEOPLE, 2))
        green = np.zeros((_PEOPLE, 1))
        green[0] = 1
        sick = known[:, 1] + setting.coins.normal(0, 0.3, _PEOPLE) > 0
        sick[0] = True
        return np.hstack([known, green]).astype(np.float64), sick

    def fitted(penalty: float, *, held: int) -> bool:
        rows, sick = people()
        start = 0 if held else 1
        return bool(abs(_weights(rows[start:], sick[start:], penalty)[-1]) > _SEEN)

    rows, sick = people()
    columns = dict(zip(_NAMES, rows.T, strict=True)) | {"sick": np.where(sick, "yes", "no")}
    facts = {name: {"type": "number", "between": [-1, 1]} for name in _NAMES}
    facts |= {"sick": {"in": ["no", "yes"]}}
    gates = worlds("rows", pa.table(columns), 0, facts)

    def private(held: int) -> bool:
        model = LogisticRegression(epsilon=setting.epsilon)
        model.fit(gates[held].matrix("rows", list(_NAMES), target="sick"), fresh=True)
        return bool(np.asarray(model.coef_, np.float64).reshape(-1)[-1] > 0)  # more likely if held

    return setting.of_a_bit(
        title="The person with green hair",
        story="One person in town has green hair. A model of the sick gives that feature a weight "
        "only if this person was in the study, so that anybody can read it from the weights. A "
        "penalty makes the weight smaller, not zero. Of the gate's model every weight has noise, "
        "with the person and without.",
        measure="right guesses whether the one with green hair was in the study",
        raw=Trial("logistic regression", setting.played(lambda held: fitted(1e-3, held=held))),
        classic=Trial(
            f"logistic regression, penalty {_PENALTY:g}",
            setting.played(lambda held: fitted(_PENALTY, held=held)),
        ),
        gate=setting.played(private),
    )


def _weights(rows: Numbers, sick: NDArray[np.bool_], penalty: float) -> Numbers:
    """Logistic regression by Newton's steps, with a penalty on half the squared weights."""
    held = np.column_stack([np.ones(len(rows)), rows])
    weights = np.zeros(held.shape[1])
    for _ in range(40):
        odds = 1 / (1 + np.exp(-np.clip(held @ weights, -30, 30)))
        slope = held.T @ (odds - sick) + penalty * weights
        bend = (held.T * (odds * (1 - odds))) @ held + penalty * np.eye(held.shape[1])
        weights = weights - np.linalg.solve(bend, slope)
    return weights.astype(np.float64)
