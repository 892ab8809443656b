"""``gate.release``: each name of a release has terms and a result of its own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Unpack, final, overload

import noisegate.orders as orders  # noqa: PLR0402 - loads each kind when it is used
from noisegate.desk.plan import Expected, Plan

if TYPE_CHECKING:
    from noisegate.crowd.histogram import CrowdExpected, CrowdRelease
    from noisegate.crowd.points import CrowdPoints
    from noisegate.desk.job import Progress
    from noisegate.releases.describe.description import Description
    from noisegate.releases.describe.job import DescribeExpected
    from noisegate.releases.forms.boxplots import BoxplotRelease
    from noisegate.releases.forms.cdf import CdfRelease
    from noisegate.releases.forms.cube import CubeExpected, CubeRelease
    from noisegate.releases.forms.running import SeriesRelease
    from noisegate.releases.forms.table import TableExpected, TableRelease
    from noisegate.releases.forms.table_job import TableName
    from noisegate.releases.sparse.job import SparseExpected
    from noisegate.releases.sparse.summary import SparseRelease
    from noisegate.releases.thresholds.above import AboveExpected, AboveRelease
    from noisegate.sql.plan import AnswerExpected
    from noisegate.synthetic.expected import SyntheticExpected
    from noisegate.synthetic.release import SyntheticRelease


@final
class Releases:
    """Publishes tables, once; what was released before is free."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., object]) -> None:
        self._run = run

    @overload
    def __call__(
        self, name: "TableName", sql: str | None = None, **terms: "Unpack[orders.TableTerms]"
    ) -> "TableRelease": ...
    @overload
    def __call__(
        self, name: Literal["series"], sql: str | None = None, **terms: "Unpack[orders.SeriesTerms]"
    ) -> "SeriesRelease": ...
    @overload
    def __call__(
        self, name: Literal["cdf"], sql: str | None = None, **terms: "Unpack[orders.TableTerms]"
    ) -> "CdfRelease": ...
    @overload
    def __call__(
        self, name: Literal["describe"], **terms: "Unpack[orders.DescribeTerms]"
    ) -> "Description": ...
    @overload
    def __call__(
        self, name: Literal["cube"], **terms: "Unpack[orders.CubeTerms]"
    ) -> "CubeRelease": ...
    @overload
    def __call__(
        self, name: Literal["sparse"], sql: str | None = None, **terms: "Unpack[orders.SparseTerms]"
    ) -> "SparseRelease": ...
    @overload
    def __call__(
        self, name: Literal["above"], sql: str | None = None, **terms: "Unpack[orders.AboveTerms]"
    ) -> "AboveRelease": ...
    @overload
    def __call__(
        self, name: Literal["boxplot"], **terms: "Unpack[orders.BoxplotTerms]"
    ) -> "BoxplotRelease": ...
    @overload
    def __call__(
        self, name: Literal["synthetic"], **terms: "Unpack[orders.SyntheticTerms]"
    ) -> "SyntheticRelease": ...
    @overload
    def __call__(
        self, name: Literal["questions"], **terms: "Unpack[orders.QuestionsTerms]"
    ) -> "TableRelease": ...
    @overload
    def __call__(
        self,
        name: Literal["crowd-histogram"],
        sql: str | None = None,
        **terms: "Unpack[orders.CrowdTerms]",
    ) -> "CrowdRelease": ...
    @overload
    def __call__(
        self,
        name: Literal["crowd-points"],
        sql: str | None = None,
        **terms: "Unpack[orders.CrowdTerms]",
    ) -> "CrowdPoints": ...
    def __call__(
        self,
        name: str,
        sql: str | None = None,
        *,
        fresh: bool = False,
        progress: "Progress | None" = None,
        **terms: object,
    ) -> object:
        """Publish a table once, to be used from then on. What was released before is free.

        Args:
            name: "histogram", "table", "map", "series", "marginals", or the name of a method: the
                result is a `TableRelease`. "sparse", "cube", "above", "boxplot", "cdf", and a
                series that grows, have results of their own: see docs/releases.md. "synthetic"
                are synthetic rows, a `SyntheticRelease`: see docs/synthetic.md. "questions" is a
                table for a ``workload`` of SQL counting questions: see docs/many.md. "describe"
                is `Gate.describe`.
            sql: One SELECT of one COUNT or SUM by declared groups, such as
                ``SELECT COUNT(*) FROM visits GROUP BY BIN(age, 5), ward``.
            fresh: Pay for new, independent draws instead of the release that exists.
            progress: Called now and then with a fraction from 0 to 1 and a text.
            terms: Those of the order with this name; see `TableOrder` for the first ones.
        """
        order = orders.release_order(name, sql, **terms)
        return self._run(order, fresh=fresh, progress=progress)


@final
class ReleasePlans:
    """Price, method and predicted error of releases."""

    __slots__ = ("_plan",)

    def __init__(self, plan: Callable[..., Plan[Expected]]) -> None:
        self._plan = plan

    @overload
    def __call__(
        self, name: "TableName", sql: str | None = None, **terms: "Unpack[orders.TableTerms]"
    ) -> "Plan[TableExpected]": ...
    @overload
    def __call__(
        self, name: Literal["series"], sql: str | None = None, **terms: "Unpack[orders.SeriesTerms]"
    ) -> "Plan[TableExpected]": ...
    @overload
    def __call__(
        self, name: Literal["cdf"], sql: str | None = None, **terms: "Unpack[orders.TableTerms]"
    ) -> "Plan[TableExpected]": ...
    @overload
    def __call__(
        self, name: Literal["describe"], **terms: "Unpack[orders.DescribeTerms]"
    ) -> "Plan[DescribeExpected]": ...
    @overload
    def __call__(
        self, name: Literal["cube"], **terms: "Unpack[orders.CubeTerms]"
    ) -> "Plan[CubeExpected]": ...
    @overload
    def __call__(
        self, name: Literal["sparse"], sql: str | None = None, **terms: "Unpack[orders.SparseTerms]"
    ) -> "Plan[SparseExpected]": ...
    @overload
    def __call__(
        self, name: Literal["above"], sql: str | None = None, **terms: "Unpack[orders.AboveTerms]"
    ) -> "Plan[AboveExpected]": ...
    @overload
    def __call__(
        self, name: Literal["boxplot"], **terms: "Unpack[orders.BoxplotTerms]"
    ) -> "Plan[AnswerExpected]": ...
    @overload
    def __call__(
        self, name: Literal["synthetic"], **terms: "Unpack[orders.SyntheticTerms]"
    ) -> "Plan[SyntheticExpected]": ...
    @overload
    def __call__(
        self, name: Literal["questions"], **terms: "Unpack[orders.QuestionsTerms]"
    ) -> "Plan[TableExpected]": ...
    @overload
    def __call__(
        self,
        name: Literal["crowd-histogram"],
        sql: str | None = None,
        **terms: "Unpack[orders.CrowdTerms]",
    ) -> "Plan[CrowdExpected]": ...
    @overload
    def __call__(
        self,
        name: Literal["crowd-points"],
        sql: str | None = None,
        **terms: "Unpack[orders.CrowdTerms]",
    ) -> "Plan[CrowdExpected]": ...
    def __call__(
        self, name: str, sql: str | None = None, *, fresh: bool = False, **terms: object
    ) -> Plan[Expected]:
        """Price, method and predicted error of a release. Free: spends nothing, reads no row."""
        return self._plan(orders.release_order(name, sql, **terms), fresh=fresh)
