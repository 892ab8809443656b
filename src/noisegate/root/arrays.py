"""A budget for rows that are given as arrays, to estimators of scikit-learn's kind."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, final
from uuid import uuid4

from noisegate.desk.terms.terms import require_texts
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.gate import Gate
from noisegate.ledger.ledger import Ledger
from noisegate.privacy.domain import Key
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.root.opening import open  # noqa: A004 - noisegate.open
from noisegate.root.parts import book_of, open_root

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from noisegate.learners.matrix import Matrix

_MEMORY: Final = "memory"


@final
class Memory:
    """A budget for rows that are given as arrays, to estimators of scikit-learn's kind.

    Every fit on such rows is charged to one account, whichever part of the rows it is given, so
    that folds and searches add up. Each row is one unit. Made by `noisegate.memory`.
    """

    def __init__(
        self,
        epsilon: Number,
        delta: Number,
        accountant: str | None,
        ledger: "str | Path | Ledger | None",
    ) -> None:
        require_texts(accountant=accountant)
        self._epsilon, self._delta, self._accountant = epsilon, delta, accountant
        self._book = book_of(ledger, None, practice=False)
        budget = ApproxDP(epsilon, delta)
        unit = str(PrivacyUnit(column=None))
        open_root(self._book, _MEMORY, unit, budget=budget, accountant=accountant)

    def matrix(
        self,
        X: Any,  # noqa: ANN401, N803 - scikit-learn's name; an array or a frame
        y: Any = None,  # noqa: ANN401
        *,
        bounds: Any,  # noqa: ANN401 - (low, high), or such for each column
        classes: Sequence[Key] | None = None,
        target_bounds: Any = None,  # noqa: ANN401 - (low, high)
    ) -> "Matrix":
        """A handle of these rows. Bounds and classes are said, never read from the rows."""
        from noisegate.learners.arrays import facts_of, frame_of  # noqa: PLC0415 - learners only

        frame = frame_of(X, y, classes=classes)
        facts = facts_of(frame, bounds=bounds, classes=classes, target_bounds=target_bounds)
        gate = self._open(frame, facts)
        target = None if y is None else frame.column_names[-1]
        columns = frame.column_names[: len(frame.column_names) - (target is not None)]
        return gate.matrix(_MEMORY, columns, target=target)

    def average(self, values: Any, *, bounds: tuple[float, float], epsilon: Number) -> float:  # noqa: ANN401 - an array
        """A noisy average of numbers, one of each row: for scores of models on private rows."""
        from noisegate.learners.arrays import facts_of, frame_of  # noqa: PLC0415 - learners only

        if getattr(values, "ndim", None) != 1:
            raise SpecError(
                "The values must be one number per row.", fix="Give an array of numbers."
            )
        try:
            frame = frame_of(values[:, None])
        except (TypeError, ValueError) as refusal:
            raise SpecError(str(refusal), fix="Give an array of numbers.") from None
        gate = self._open(frame, facts_of(frame, bounds=bounds))
        answer = gate.sql(f"SELECT AVG(x0) AS a FROM {_MEMORY}", epsilon=epsilon)  # noqa: S608
        return float(answer.to_arrow().column("a")[0].as_py())

    def _open(self, frame: "pa.Table", facts: Mapping[str, Mapping[str, Any]]) -> Gate:
        """A gate of its own for these rows, below the one budget."""
        return open(
            frame, epsilon=self._epsilon, delta=self._delta, accountant=self._accountant,
            columns=facts, table=_MEMORY, ledger=self._book, snapshot=uuid4().hex,
        )  # fmt: skip

    @property
    def spent(self) -> ApproxDP:
        """What all fits have spent together."""
        return self._book.balance(_MEMORY).spent

    @property
    def remaining(self) -> ApproxDP:
        """What is left for further ones."""
        return self._book.balance(_MEMORY).remaining

    @property
    def ledger(self) -> Ledger:
        """The ledger behind it."""
        return self._book

    def __deepcopy__(self, memo: dict[int, Any]) -> "Memory":
        """The same: an estimator's clones share its budget."""
        return self

    def __reduce__(self) -> tuple[type["_Elsewhere"], tuple[()]]:
        """A stored estimator still predicts, but its budget stays here."""
        return _Elsewhere, ()

    def __repr__(self) -> str:
        return f"<Memory: spent {self.spent}, left {self.remaining:left}>"


@final
class _Elsewhere:
    """What is left of a budget in another process: nothing can be charged to it."""

    def matrix(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Refuse."""
        raise SpecError(
            "An in-memory budget cannot be used from another process or a file.",
            fix="Use n_jobs=1 or threads, and give a loaded estimator a new memory.",
            about="process",
        )

    average = matrix


def memory(
    epsilon: Number,
    *,
    delta: Number = 0,
    accountant: str | None = None,
    ledger: "str | Path | Ledger | None" = None,
) -> Memory:
    """A budget for arrays: ``KMeans(epsilon=1, bounds=(0, 1), memory=memory(3)).fit(X)``.

    Args:
        epsilon: The budget of all fits together.
        delta: The budget's δ, for accountants that need one.
        accountant: "pure" (sums of ε), or "zcdp" (with a δ): Gaussian noise.
        ledger: Where the budget is kept; by default in memory alone.
    """
    return Memory(epsilon, delta, accountant, ledger)
