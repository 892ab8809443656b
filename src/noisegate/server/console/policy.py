"""Policy: what it says, what to look at again, and what ε would mean; computed without rows."""

from fractions import Fraction
from functools import partial
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from noisegate.accounting.accountants import accountant_named
from noisegate.errors import NoisegateError, SpecError
from noisegate.exact import fraction
from noisegate.planning.calibrate import order_error
from noisegate.planning.enough import questions
from noisegate.planning.meaning import meaning
from noisegate.privacy.event import DeclaredEvent, DeclaredZCDPEvent
from noisegate.root import check_policy, policy_page
from noisegate.server.console.shown import CONFIDENCE, markdown, number, up
from noisegate.server.console.visits import Visit
from noisegate.server.views import View

_LADDER: Final = ("0.01", "0.1", "0.5", "1", "2", "5")
_PRIOR: Final = "1"  # percent
_EPSILON_MAX: Final = 20
_CAP_MAX: Final = 10**6


def policy(visit: Visit) -> Response:
    """The policy as people read it, findings, and sliders."""
    view = visit.view()
    said = _said(visit, view)
    try:
        found, wrong = what_if(view, said), None
    except NoisegateError as error:
        found, wrong = None, visit.refused(error)
    return visit.page(
        "policy.html",
        title=f"Policy of {view.name}",
        names=visit.names(),
        data=view.name,
        page=markdown(policy_page(view.file).partition("\n")[2]),  # its title is ours
        findings=[
            {"severity": each.severity.value, "place": each.place, "problem": each.problem,
             "fix": each.fix}
            for each in check_policy(view.file)
        ],
        said=said,
        columns=_columns(view),
        found=found,
        error=wrong,
    )  # fmt: skip


def what_if_live(visit: Visit) -> Response:
    """The same while a slider moves."""
    view = visit.view()
    found = what_if(view, _said(visit, view))
    chosen = next(row for row in found["rows"] if row["chosen"])
    words = f"COUNT {chosen['count']}; odds {chosen['odds']}; belief {chosen['posterior']}"
    return JSONResponse({"html": visit.write("what_if.html", found=found), "words": words})


def what_if(view: View, said: dict[str, str]) -> dict[str, Any]:
    """Error and risk of an ε, side by side, beside those of others. Reads no row.

    Where the account adds up ρ, ε buys the ρ that implies (ε, δ) by itself, as an order does:
    Gaussian noise, and a risk that holds but for the budget's δ.
    """
    epsilon, prior = (
        fraction(said["epsilon"], name="epsilon"),
        fraction(said["prior"], name="prior"),
    )
    cap = fraction(said["cap"], name="cap")
    if not 0 < epsilon <= _EPSILON_MAX or not 0 < prior < 100 or not 1 <= cap <= _CAP_MAX:
        raise SpecError(
            "A number is out of its range.",
            fix=f"Use 0 < ε ≤ {_EPSILON_MAX}, 1 ≤ rows ≤ {_CAP_MAX}, 0 < belief < 100.",
            about="range",
        )
    most = next((each["most"] for each in _columns(view) if each["id"] == said["column"]), None)
    ladder = sorted({epsilon, *map(Fraction, _LADDER)})
    budget = view.hosted.policy.budget
    delta = Fraction(0) if _rho(view, epsilon) is None else budget.delta
    return {
        "rows": [
            _row(each, view, cap, most, prior / 100, delta) | {"chosen": each == epsilon}
            for each in ladder
        ],
        "sum": said["column"] if most is not None else "",
        "prior": number(float(prior)),
        "cap": f"{int(cap):,}",
        "sentences": meaning(epsilon, delta=delta, prior=prior / 100).sentences,
        "epsilon": number(float(epsilon)),
        "delta": f"{float(delta):.3g}" if delta else "",
    }


def _rho(view: View, epsilon: Fraction) -> Fraction | None:
    """The ρ that an order of ε buys; None where ε itself adds up."""
    policy = view.hosted.policy
    return accountant_named(policy.accountant).rho(epsilon, policy.budget)


def _row(
    epsilon: Fraction,
    view: View,
    cap: Fraction,
    most: Fraction | None,
    prior: Fraction,
    delta: Fraction,
) -> dict[str, Any]:
    rho = _rho(view, epsilon)
    error = partial(order_error, epsilon=epsilon, rho=rho, confidence=CONFIDENCE)
    count, added = error(cap), None if most is None else error(cap * most)
    risk = meaning(epsilon, delta=delta, prior=prior, groups=())
    return {
        "epsilon": number(float(epsilon)),
        "count": f"± {count:,}",
        "sum": "" if added is None else f"± {added:,}",
        "odds": f"× {up(float(risk.odds_factor))}",
        "posterior": f"{up(float(100 * risk.posterior))} %",
        "fits": f"{_fits(view, epsilon, rho):,}",
    }


def _fits(view: View, epsilon: Fraction, rho: Fraction | None) -> int:
    """How many such questions all of the budget buys."""
    policy = view.hosted.policy
    event = DeclaredEvent(epsilon=epsilon) if rho is None else DeclaredZCDPEvent(rho=rho)
    return questions(event, policy.budget, accountant=accountant_named(policy.accountant))


def _said(visit: Visit, view: View) -> dict[str, str]:
    caps = [table["rows_per_unit"] for table in view.facts()["tables"] if table["rows_per_unit"]]
    defaults = {"epsilon": "0.1", "prior": _PRIOR, "cap": str(max(caps, default=1)), "column": ""}
    return {name: visit.said(name) or default for name, default in defaults.items()}


def _columns(view: View) -> list[dict[str, Any]]:
    """Columns whose sums can be asked for, with the most that one row adds."""
    return [
        {"id": f"{table['name']}.{column['name']}", "most": Fraction(max(map(abs, ends)))}
        for table in view.facts()["tables"]
        if not table["public"]
        for column in table["columns"]
        if column["type"] in ("integer", "number")
        and (ends := column["between"]) is not None
        and max(map(abs, ends)) > 0
    ]
