"""What linear classifiers by a loss of the margin share: their parameters and their methods."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar, Final

from noisegate.errors import SpecError
from noisegate.learners.asking import RowsAsk
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.linear.classifier import LinearClassifier
from noisegate.learners.linear.moments import Loss, descended
from noisegate.learners.matrix import Matrix
from noisegate.learners.parameters import require_one_of, require_rounds

METHODS: Final = ("auto", "moments", "newton", "sulq")


@dataclass(eq=False, repr=False, kw_only=True)
class MarginClassifier(LinearClassifier):
    """Linear scores with little loss: by class moments, and Newton steps where noise allows."""

    _loss: ClassVar[Loss]

    C: float = 1.0
    method: str = "auto"
    max_iter: int | None = None

    @staticmethod
    @abstractmethod
    def _refined(ask: RowsAsk, *, penalty: float, rounds: int | None) -> Fitted:
        """Lines from moments, and so many steps; by default as many as noise allows."""

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        method = require_one_of(self.method, "method", METHODS)
        penalty, rounds = self._penalty(), require_rounds(self.max_iter)
        options = {"penalty": penalty, "method": method, "rounds": rounds}
        if method == "sulq":
            steps = rounds or 10
            return partial(descended, loss=self._loss, rounds=steps, penalty=penalty), options
        fixed = {"moments": 0, "newton": rounds or 3}.get(method, rounds)
        return partial(self._refined, penalty=penalty, rounds=fixed), options

    def _penalty(self) -> float:
        """One over C."""
        given = self.C
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < inf:
            raise SpecError(
                "C is not a positive number.", fix="Use 1.0, or less for smaller weights."
            )
        return 1.0 / given
