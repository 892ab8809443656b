"""A count or sum by declared groups, made noisy by a mechanism of a researcher's own.

It is the researcher's word that the mechanism is what it states; the plan, the answer and its card
say so. There is no order of it: it can be asked in the process of the gate alone.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, Final, Protocol, final

from noisegate.curator.own import OwnMeasurement, OwnMechanism
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import bare, percent
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.plan import Fact
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.privacy.event import encode
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.releases.cells.axes import keys_of
from noisegate.releases.cells.grid import Grid, grid_of
from noisegate.sql.reading.reader import read

_UNPROVEN: Final = "not proven by noisegate"


class Audited(Protocol):
    """What an audit found; `dp.Audit.run` gives it."""

    @property
    def is_violation(self) -> bool:
        """Whether any claim is refuted."""

    @property
    def lower_bound(self) -> float:
        """ε is at least this."""

    @property
    def claim(self) -> float:
        """The claimed ε."""

    @property
    def trials(self) -> int:
        """Runs on each neighbour."""

    @property
    def about(self) -> Mapping[str, Any] | None:
        """Name, version, author and parameters of the mechanism."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnExpected:
    """What is known before it is drawn: on whose word, for which sensitivity, how many cells."""

    asked: str
    measurement: OwnMeasurement
    cells: int
    unit: Fraction
    measured: float | None

    def margin(self, confidence: Number) -> float | None:
        """How far a number may be off, where the mechanism says so."""
        return width_of(self.measurement, confidence, self.unit)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        own, off = self.measurement.record, self.margin(confidence)
        error = "the mechanism does not say"
        if off is not None:
            error = f"± {bare(off)} at {percent(confidence)} confidence, as claimed"
        lines = [
            ("asked", self.asked),
            ("mechanism", f"{own['name']} {own['version']}"),
            ("promise", f"claimed by {own['claimed_by']}, {_UNPROVEN}"),
            ("because", "; ".join(self.measurement.query.path)),
            ("cells", f"{self.cells:,}"),
            ("error", error),
        ]
        if self.measured is not None:
            lines.append(("audit", f"measured ε ≥ {self.measured:.4g}"))
        return lines

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of a number, as claimed."""
        return {self.asked: self.margin(confidence)}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        own = {**self.measurement.record, "proven": False, "measured_epsilon": self.measured}
        event = encode(self.measurement.stated)
        return {"cells": self.cells, "margin": self.margin(confidence), "own_mechanism": own,
                "event": event}  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob(Measured[Answer, OwnExpected]):
    """One measurement by a mechanism that is vouched for."""

    kind: str = "own mechanism"
    measurement: OwnMeasurement
    grid: Grid

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """With the word that it rests on."""
        told = f"this answer (provided that {self.measurement.claim}, {_UNPROVEN})"
        return guarantee_of(loss, self.tables, f"{told} about")

    def result(self, content: Release, receipt: Receipt) -> Answer:
        """The answer; refused, as often as it is asked for, where the mechanism gave none."""
        if not content.values.size:
            raise Unsupported(
                "The mechanism failed, was late, or gave something else than one whole number "
                "(int64) for each cell. It was charged, and asking again gives the same.",
                fix="Try it on made-up numbers; then ask with another version, or with fresh=True.",
                about="mechanism",
            )
        stated = receipt.standing
        stated["request_ids"] = (stated.pop("request_id"),)
        stated["questions"] = (stated.pop("question"),)
        grid = self.grid
        exact = [int(each) * grid.grain for each in content.values[0]]
        shown = [round(each) if grid.whole else float(each) for each in exact]
        keys = keys_of(grid.axes, len(shown))
        return Answer(
            sql=self.sql, table=keys.append_column(grid.value, [shown]), caveats=self.notes,
            half_widths=_widths(self.expected, len(grid.axes), len(shown)),
            unsigned=lambda: () if grid.signed else (grid.value,),
            amounts=lambda: () if grid.signed else (grid.value,), **stated,
        )  # fmt: skip


def own_job(
    desk: Desk,
    sql: str,
    mechanism: OwnMechanism,
    *,
    audit: Audited | None = None,
    seconds: int = 60,
) -> OwnJob:
    """The job, checked: nothing about it is left to be refused but its price."""
    if desk.rules.sample is not None:
        raise SpecError(
            "A mechanism of your own sees all rows.",
            fix="Use the gate itself, not gate.sample(...).",
            about="sample",
        )
    if type(sql) is not str:
        raise SpecError("The question is not SQL.", fix="SELECT ward, COUNT(*) FROM visits …")
    if audit is not None and audit.is_violation:
        raise SpecError(
            "The audit refutes what the mechanism claims.",
            fix="Mend the mechanism, or what its event says; then audit it again.",
            about="audit",
        )
    question = read(sql, desk.curator.tables)
    if question.terms != Terms():
        raise SpecError(
            "The price is the mechanism's own.", fix="Leave out the options of the SQL."
        )
    grid = grid_of(question, sql, question.terms)
    asked = OwnMeasurement(query=grid.query, mechanism=mechanism, seconds=seconds)
    if audit is not None and getattr(audit, "about", None) != asked.record:
        raise SpecError(
            "The audit is about another mechanism: its name, version, author or parameters differ.",
            fix="Audit this one: dp.audit_of(mechanism, dp.L1(1)).run().",
            about="audit",
        )
    desk.curator.require_allowed(asked.capabilities)
    epsilon = desk.curator.cost_of(asked.stated).epsilon
    desk.rules.require_price(epsilon)
    measured = None if audit is None else float(audit.lower_bound)
    own = asked.record
    word = f"claimed by {own['claimed_by']}, {_UNPROVEN}"
    words = [f"Noise by {own['name']!r} {own['version']}: {word}."]
    if audit is not None:
        words.append(
            f"An audit of {audit.trials:,} runs on each of two neighbours measured ε ≥ "
            f"{audit.lower_bound:.4g}; {audit.claim:.4g} is claimed."
        )
    return OwnJob(
        sql=sql,
        epsilon=epsilon,
        measurement=asked,
        grid=grid,
        notes=(*words, *grid.caveats),
        expected=OwnExpected(
            asked=sql, measurement=asked, cells=prod(grid.shape), unit=grid.grain, measured=measured
        ),
    )


def _widths(
    expected: OwnExpected, keys: int, cells: int
) -> Callable[[Number], Sequence[HalfWidths]]:
    def widths(confidence: Number) -> Sequence[HalfWidths]:
        off = expected.margin(confidence)
        return (*[None] * keys, (off,) * cells)

    return widths


def width_of(asked: OwnMeasurement, confidence: Number, unit: Fraction) -> float | None:
    """How far a number may be off, if the mechanism has ``interval(confidence, sensitivity)``."""
    interval = getattr(asked.mechanism, "interval", None)
    if interval is None:
        return None
    try:
        off = fraction(interval(confidence, asked.sensitivity), name="interval")
    except Exception:  # noqa: BLE001 - the researcher's own code, which sees no row here
        return None
    return float(off * unit) if off >= 0 else None
