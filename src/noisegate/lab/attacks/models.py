"""What is made of rows betrays them: models, and synthetic rows that are disguised ones."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.outcome import Outcome, Trial
from noisegate.lab.attacks.run import Setting, worlds

_ROWS, _COLUMNS, _RIDGE = 34, 30, 0.1
_CLOSE = 0.3  # half of how much the target varies
Numbers = NDArray[np.float64]


def model(setting: Setting) -> Outcome:
    """Was the target among the rows of a regression? Its own error is then small [SSSS17]."""
    from noisegate.learners import Ridge  # noqa: PLC0415 - slow to load

    def people() -> Numbers:
        return setting.coins.uniform(-1, 1, (_ROWS, _COLUMNS + 1))

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
            f"ridge regression, penalty {_RIDGE}",
            setting.played(lambda held: fitted(_RIDGE, held=held), often=10),
        ),
        gate=setting.played(private, less=2),
    )


_TOWN, _PENALTY = 60, 1.0
_NAMES = ("age", "dose", "green")
_SEEN = 0.05  # a weight that noise of the solver is not


def green_hair(setting: Setting) -> Outcome:
    """Was the only person with green hair among the rows that a model was fitted to?"""
    from noisegate.learners import LogisticRegression  # noqa: PLC0415 - slow to load

    def people() -> tuple[Numbers, NDArray[np.bool_]]:
        """The first is the target: green, and sick."""
        known = setting.coins.uniform(-1, 1, (_TOWN, 2))
        green = np.zeros((_TOWN, 1))
        green[0] = 1
        sick = known[:, 1] + setting.coins.normal(0, 0.3, _TOWN) > 0
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


_PEOPLE, _FAR, _MOST = 150, 95, 65


def synthetic(setting: Setting) -> Outcome:
    """Was the target, older and richer than all others, among the rows behind the made-up ones?"""
    chance = setting.coins
    others = np.clip(chance.normal(40, 8, (_PEOPLE - 1, 2)), 0, _MOST).round()
    rows = np.vstack([others, [_FAR, _FAR]])
    tables = (others, rows)
    facts = {name: {"type": "integer", "between": [0, 99]} for name in ("age", "income")}
    table = pa.table({"age": rows[:, 0].astype(int), "income": rows[:, 1].astype(int)})
    gates = worlds("people", table, _PEOPLE - 1, facts)

    def blurred(held: int) -> bool:
        made = tables[held][chance.integers(0, len(tables[held]), 3 * _PEOPLE)]
        return _guess(made + chance.normal(0, 2, made.shape))

    def between(held: int) -> bool:
        """Rows on the lines between each row and its nearest others (SMOTE)."""
        table = tables[held]
        apart = ((table[:, None] - table[None]) ** 2).sum(axis=2)
        near = apart.argsort(axis=1)[:, 1:4]
        first = np.repeat(np.arange(len(table)), 3)
        second = near[first, chance.integers(0, 3, first.size)]
        return _guess(
            table[first] + chance.random((first.size, 1)) * (table[second] - table[first])
        )

    def private(held: int) -> bool:
        release = gates[held].release(
            "synthetic", table="people", epsilon=setting.epsilon, fresh=True
        )
        made = release.to_arrow()
        return _guess(np.column_stack([made[name].to_numpy() for name in facts]))

    return setting.of_a_bit(
        title="Disguised rows",
        story="Made-up rows that are real rows with a blur, or lie between real rows, fill the "
        "place around an unusual person exactly if that person is there. The gate's synthetic "
        "rows follow from noisy tables; noise also fills places where nobody is.",
        measure="right guesses whether the target was among the rows",
        raw=Trial("rows with a blur", setting.played(blurred)),
        classic=Trial("rows between neighbours (SMOTE)", setting.played(between)),
        gate=setting.played(private, less=4),
    )


def _guess(made: Numbers) -> bool:
    """Whether a made-up row lies in the corner where only the target could be."""
    return bool((made > _MOST + 5).all(axis=1).any())
