"""What a service sends becomes what a gate in this process would have given."""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Fact, Plan
from noisegate.desk.release import Held
from noisegate.desk.sent import guarantee_from, loss_from
from noisegate.exact import Number, fraction
from noisegate.files import written
from noisegate.frozen import fields, replace
from noisegate.ledger.entry import Entry
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sql.choices.choice import Choice
from noisegate.sql.estimates.profiles import Profile

if TYPE_CHECKING:
    from noisegate.learners.expectations import Expectations

TABLES: Final = (  # kinds whose results are answers
    "sql", "smooth", "distance", "claim", "graph", "thresholds",
)  # fmt: skip
FILES: Final = ("release", "apply")  # and those that are files
_HOMES: Final[Mapping[str, str]] = {  # classes of releases with names of their own
    "apply": "programs.applied:Applied",
    "above": "releases.thresholds.above:AboveRelease",
    "boxplot": "releases.forms.boxplots:BoxplotRelease",
    "cdf": "releases.forms.cdf:CdfRelease",
    "crowd-histogram": "crowd.histogram:CrowdRelease",
    "crowd-points": "crowd.points:CrowdPoints",
    "cube": "releases.forms.cube:CubeRelease",
    "describe": "releases.describe.description:Description",
    "sparse": "releases.sparse.summary:SparseRelease",
    "synthetic": "synthetic.release:SyntheticRelease",
}
_TABLE: Final = "releases.forms.table:TableRelease"
_STATED: Final = (  # of any plan
    "kind", "sql", "epsilon", "price", "price_delta", "price_if_none_found", "fits", "confidence",
    "margins", "notes", "facts", "endings", "exact",
)  # fmt: skip
_DATED: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
}
Again = Callable[[Fraction], Mapping[str, Any]]  # the same at another confidence


@final
class Told:
    """What a service knows of a result: size, method, error. Its JSON is read as attributes."""

    def __init__(self, again: Again, usual: Number = "0.95") -> None:
        self._again, self._usual = lru_cache(maxsize=16)(again), fraction(usual)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        return [(name, fact) for name, fact in self._at(confidence)["facts"]]

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The half-width of the confidence interval of each kind of number; None: unknown."""
        return dict(self._at(confidence)["margins"])

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        at = self._at(confidence)
        return {name: value for name, value in at.items() if name not in _STATED}

    def shortfall(self, confidence: Number) -> float:
        """Of a choice: how far a chosen score may be below the best that was left."""
        return float(self._at(confidence)["shortfall"])

    def gap_error(self, confidence: Number) -> float | None:
        """Of a choice: how far a gap may be off; None where none is released."""
        found: float | None = self._at(confidence)["gap_error"]
        return found

    def _at(self, confidence: Number) -> Mapping[str, Any]:
        return self._again(fraction(confidence))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        known = {} if name.startswith("_") else self.to_dict(self._usual)
        if name not in known:
            raise AttributeError(name)
        return known[name]


def table_of(dataset: str, record: Mapping[str, Any]) -> TableDomain:
    """A table by its public facts. How its rows lead to their owner stays with the service."""
    unit = record["owner"]
    columns = {each["name"]: _column(each) for each in record["columns"]}
    return TableDomain(
        dataset=dataset,
        name=record["name"],
        unit=None if unit is None else PrivacyUnit(**unit),
        columns=columns,
        rows_per_unit_max=record["rows_per_unit"],
        rows_per_unit_holds=record["rows_per_unit_holds"],
        groups_per_unit_max=record["groups_per_unit"],
    )


def _column(record: Mapping[str, Any]) -> Column:
    terms = {name: record[name] for name in ("type", "in", "between", "nullable")}
    if record["in"] is not None and (read := _DATED.get(record["type"])) is not None:
        terms["in"] = [read(key) for key in record["in"]]
    said = {name: value for name, value in terms.items() if value is not None}
    return Column.from_terms(record["name"], said)


def plan_from(again: Again) -> Plan[Any]:
    """The plan that a service made."""
    told = lru_cache(maxsize=16)(again)
    record = told(fraction("0.95"))
    exact = record["exact"]
    return Plan(
        kind=record["kind"], sql=record["sql"], epsilon=Fraction(exact["epsilon"]),
        price=loss_from(exact["price"]), fits=record["fits"], expected=Told(told),
        notes=tuple(record["notes"]), endings=tuple(record["endings"]),
        early=None if exact["early"] is None else loss_from(exact["early"]),
    )  # fmt: skip


def table_from(body: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    with pa.ipc.open_stream(BytesIO(body)) as stream:
        return stream.read_all()


def entry_from(record: Mapping[str, Any]) -> Entry:
    """An entry of the ledger as far as a card states it."""
    body = {name: record[name] for name in ("request", "question") if record.get(name) is not None}
    return Entry(
        seq=record["seq"], kind=record["kind"], at=record["at"], hash=record["hash"], body=body,
        previous_hash="", text="",
    )  # fmt: skip


def release_from(order: Order[Any, Expected], body: bytes, receipt: Mapping[str, Any]) -> Held:
    """The release that a service saved, with what was paid for it."""
    name = order.kind if order.kind != "release" else getattr(order, "name", "")
    module, kind = _HOMES.get(name, _TABLE).split(":")
    loaded = getattr(import_module(f"noisegate.{module}"), kind)
    with TemporaryDirectory(prefix="noisegate-") as folder:
        with written(Path(folder) / "release.parquet") as file:
            file.write_bytes(body)
        found: Held = loaded.load(file)
    left = receipt["remaining"]
    made: Held = _paid(found, loss_from(receipt["cost"]), None if left is None else loss_from(left))
    return made


def _paid(made: Any, cost: ApproxDP, left: ApproxDP | None) -> Any:  # noqa: ANN401 - a release
    """It with its price; that of a release made of another is the other's."""
    names = {each.name for each in fields(made)}
    if "cost" in names:
        return replace(made, cost=cost, remaining=left)
    (inner,) = names & {"histogram", "held"}
    return replace(made, **{inner: _paid(getattr(made, inner), cost, left)})


def made_from(order: Order[Any, Expected], again: Again) -> Any:  # noqa: ANN401 - by the order's kind
    """What JSON says of an order's result: a choice, a look, means, a model."""
    record = again(fraction("0.95"))
    match order.kind:
        case "caps":
            return Profile(
                table=record["table"], units=tuple(record["units"]), scale=record["scale"]
            )
        case "bounds":
            low, high = (Fraction(end) for end in record["between"])  # powers of two: exact
            return low, high
        case "choose" | "auction" | "score":
            return _choice(record, again)
        case "statistic":
            return _means(record)
    return _model(order, record)


def _choice(record: Mapping[str, Any], again: Again) -> Choice:
    exact = record["exact"]
    return Choice(
        sql=record["sql"], expected=Told(again),  # type: ignore[arg-type]  # as much as is shown
        notes=tuple(record["notes"]), winners=tuple(map(_candidate, record["winners"])),
        gaps=None if record["gaps"] is None else tuple(record["gaps"]),
        cost=loss_from(exact["cost"]), remaining=loss_from(exact["remaining"]),
        guarantee=guarantee_from(record["guarantee"]), question="", request_id="",
        practice=record["practice"],
    )  # fmt: skip


def _candidate(said: Any) -> Any:  # noqa: ANN401 - JSON
    return tuple(map(_candidate, said)) if isinstance(said, list) else said


def _means(record: Mapping[str, Any]) -> "Expectations":
    """Means, whose ± at any confidence follows from the noise that they have."""
    from noisegate.learners.expectations import Expectations, means_from  # noqa: PLC0415 - seldom

    exact = record["exact"]
    return Expectations(
        means=means_from(exact["means"]), cost=loss_from(exact["cost"]),
        remaining=loss_from(exact["remaining"]), guarantee=guarantee_from(exact["guarantee"]),
        request_id="", caveats=tuple(record.get("caveats", ())),
    )  # fmt: skip


def _model(order: Order[Any, Expected], record: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an estimator
    """An estimator with what it has learned, as its attributes. It does not predict here."""
    model, exact = order.learner(), record["exact"]  # type: ignore[attr-defined]  # a `FitOrder`
    for name, value in record["fitted"].items():
        setattr(model, name, np.array(value) if isinstance(value, list) else value)
    model.cost_, model.remaining_ = loss_from(exact["cost"]), loss_from(exact["remaining"])
    model.guarantee_ = guarantee_from(exact["guarantee"])
    return model
