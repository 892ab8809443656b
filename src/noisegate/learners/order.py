"""A model that is to be learnt, as an order."""

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, final

import noisegate.learners as learners  # noqa: PLR0402 - estimators are loaded when they are used
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress
from noisegate.desk.order import Options, Order, nearest
from noisegate.desk.plan import Plan
from noisegate.desk.terms.terms import Terms, checked_terms
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass, field
from noisegate.learners.fitting import FitExpected, no_score
from noisegate.learners.matrix import Matrix, matrix_of

if TYPE_CHECKING:
    from noisegate.learners.base import PrivateEstimator
    from noisegate.learners.items.families import ExponentialFamily
    from noisegate.learners.items.itemsets import FrequentItemsets
    from noisegate.learners.items.rules import AssociationRules

Model: TypeAlias = "PrivateEstimator | FrequentItemsets | AssociationRules | ExponentialFamily"
MODELS: Final = (
    *learners.ESTIMATORS, "FrequentItemsets", "AssociationRules", "ExponentialFamily",
    "NetDatabase",
)  # fmt: skip
_NOT_SENT: Final = ("self", "epsilon", "bounds", "memory", "classes", "target_bounds")  # of arrays


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FitOrder(Order[Model, FitExpected]):
    """A ``model`` of `noisegate.learners` with its ``options``, fitted to columns of a table.

    ``rows``: about how many rows there are, as far as that is public; a plan then says what score
    to expect.
    """

    kind: ClassVar[str] = "fit"
    model: str
    table: str | None = None
    columns: Sequence[str] | None = None
    target: str | None = None
    where: str | None = None
    rows_per_unit: int | None = None
    epsilon: Number | None = None
    options: Options = field(default_factory=dict)
    rows: int | None = None

    def __post_init__(self) -> None:
        Order.__post_init__(self)
        if self.model not in MODELS:
            raise SpecError(
                f"There is no model {self.model!r}.",
                fix=f"{nearest(self.model, MODELS)}Use {', '.join(MODELS)}.",
            )
        known = _options(self.model)
        if unknown := self.options.keys() - {*known}:
            near = nearest(min(unknown), known)
            raise SpecError(
                f"{self.model} has no {min(unknown)!r}.", fix=f"{near}Use {', '.join(known)}."
            )
        checked_terms(Terms(rows=self.rows))
        if self.rows is not None and self.model not in learners.ESTIMATORS:
            raise no_score(self.model)

    def learner(self) -> Any:  # noqa: ANN401 - an estimator
        """The model before it is fitted."""
        return getattr(learners, self.model)(epsilon=self.epsilon, **self.options)

    def plan(self, desk: Desk, *, fresh: bool = False) -> Plan[FitExpected]:  # noqa: D102 - see Order
        sized = {} if self.rows is None else {"rows": self.rows}
        found: Plan[FitExpected] = self.learner().plan(self._matrix(desk), fresh=fresh, **sized)
        return found

    def run(self, desk: Desk, *, fresh: bool = False, progress: Progress | None = None) -> Model:  # noqa: D102 - see Order
        told = {"progress": progress} if self.model in learners.ESTIMATORS else {}
        fitted: Model = self.learner().fit(self._matrix(desk), fresh=fresh, **told)
        return fitted

    def _matrix(self, desk: Desk) -> Matrix:
        return matrix_of(
            desk.curator, desk.rules, self.table, self.columns, target=self.target,
            where=self.where, rows_per_unit=self.rows_per_unit,
        )  # fmt: skip


def _options(model: str) -> list[str]:
    """The options of a model, in order; rules have those of the sets that they come from."""
    found = set(signature(getattr(learners, model)).parameters)
    if "search" in found:
        sets = {*signature(learners.FrequentItemsets).parameters} - {"subsets"}
        found = found - {"search"} | sets
    return sorted(found - {*_NOT_SENT})
