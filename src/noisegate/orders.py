"""What each name of a release makes: the one place where a name becomes a job."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from noisegate.desk.desk import Desk
from noisegate.desk.job import Job, derived
from noisegate.desk.terms import Terms
from noisegate.errors import SpecError
from noisegate.releases.ask.order import Order, agreed, boxes, is_running, own, steps

AnyJob: TypeAlias = Job[Any, Any, Any]


def job_of(desk: Desk, order: Order, *, fresh: bool = False) -> AnyJob:
    """The job that an order is; whatever is wrong with it is refused here, at no cost."""
    if order.name.startswith("crowd-"):
        return _crowd(desk, order)
    if order.name == "boxplot":
        from noisegate.releases.forms.boxplots import boxplot_job  # noqa: PLC0415

        return boxplot_job(desk, boxes(order), agreed(Terms(), order), fresh=fresh)
    return _JOBS.get(order.name, _table)(desk, order)


def _synthetic(desk: Desk, order: Order) -> AnyJob:
    from noisegate.synthetic.synthesis import synthetic_job, synthetic_of  # noqa: PLC0415

    return synthetic_job(desk, synthetic_of(order))


def _questions(desk: Desk, order: Order) -> AnyJob:
    from noisegate.synthetic.pmw.multiplicative import questions_job  # noqa: PLC0415

    return questions_job(desk, order)


def _cube(desk: Desk, order: Order) -> AnyJob:
    from noisegate.releases.forms.cube_job import cube_job, cube_of  # noqa: PLC0415

    return cube_job(desk, cube_of(order))


def _sparse(desk: Desk, order: Order) -> AnyJob:
    from noisegate.releases.sparse.job import SparseOrder, sparse_job  # noqa: PLC0415

    return sparse_job(desk, own(SparseOrder, order))


def _above(desk: Desk, order: Order) -> AnyJob:
    from noisegate.releases.thresholds.above import AboveOrder, above_job  # noqa: PLC0415

    return above_job(desk, own(AboveOrder, order))


def _table(desk: Desk, order: Order) -> AnyJob:
    from noisegate.releases.forms.table_job import epsilon_of, grid_and_terms, table_job  # noqa: PLC0415

    if order.name == "cdf":
        from noisegate.releases.forms.cdf import CdfRelease  # noqa: PLC0415

        counted = table_job(desk, steps(order))
        return derived("cdf", counted, lambda made: CdfRelease(histogram=made), CdfRelease.endings)
    if is_running(order):
        from noisegate.releases.series.running import series_job  # noqa: PLC0415

        grid, terms = grid_and_terms(desk, order)
        return series_job(
            desk, grid, epsilon=epsilon_of(desk, terms), method=order.method, options=order.options
        )
    return table_job(desk, order)


def _crowd(desk: Desk, order: Order) -> AnyJob:
    from noisegate.crowd.histogram import CrowdOrder, crowd_job  # noqa: PLC0415
    from noisegate.crowd.points import CrowdPoints, points_of  # noqa: PLC0415

    names = ("crowd-histogram", "crowd-points")
    if desk.rules.sample is not None:
        raise SpecError(
            "A crowd draws its own sample.", fix="Use the gate itself, not gate.sample(...)."
        )
    if order.name not in names:
        raise SpecError(f"There is no release {order.name!r}.", fix=f"Use {' or '.join(names)}.")
    if order.rows_per_unit is not None:
        raise SpecError("In a crowd everybody has exactly one row.", fix="Leave out rows_per_unit.")
    job = crowd_job(desk, own(CrowdOrder, order))
    if order.name == "crowd-histogram":
        return job
    return derived(order.name, job, points_of, CrowdPoints.endings)


_JOBS: Final[Mapping[str, Callable[[Desk, Order], AnyJob]]] = {
    "synthetic": _synthetic,
    "questions": _questions,
    "cube": _cube,
    "sparse": _sparse,
    "above": _above,
}
