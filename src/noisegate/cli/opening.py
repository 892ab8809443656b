"""Options that commands share, typed once: commands take them as one parameter."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, final
from warnings import catch_warnings, simplefilter

from noisegate.cli import options
from noisegate.cli.ending import opened
from noisegate.cli.options import argument, option
from noisegate.cli.printing import bar, print_plan, say, say_json, show
from noisegate.errors import SpecError, UnitWarning
from noisegate.files import require_output
from noisegate.frozen import MISSING, dataclass, fields, is_dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from fractions import Fraction

    from noisegate.desk.answer import Answer
    from noisegate.desk.order import Order
    from noisegate.desk.plan import Expected, Plan
    from noisegate.desk.terms.terms import PartOf as PartAsked
    from noisegate.gate import Gate

R = TypeVar("R")
_ANY_BUDGET = "1000000"


@final
@dataclass(frozen=True, kw_only=True)
class Opening:
    """A table or a policy, whose rows they are, and the budget."""

    file: Annotated[Path, argument("A policy (.toml), or a CSV, Parquet or DuckDB file.")]
    budget: Annotated[
        str | None, option("ε of the whole data set: given with the first question.")
    ] = None
    delta: options.Delta = "0"
    accountant: options.Accountant = None
    analyst: Annotated[
        str | None,
        option("Who is asking: an account below the data set's, or steward.", "--analyst", "--as"),
    ] = None
    purpose: Annotated[str | None, option("What is asked for: one of the policy's purposes.")] = (
        None
    )
    share: Annotated[str | None, option("With --analyst: the ε that this analyst may spend.")] = (
        None
    )
    unit: options.Unit = None
    rows_per_unit: options.RowsPerUnit = None
    groups_per_unit: options.GroupsPerUnit = None
    keys: options.Keys = None
    between: options.Between = None
    types: options.Types = None
    sample: options.Sample = None
    partition: Annotated[
        list[str] | None,
        option(
            "Split the table: a column with declared keys, or conditions (repeatable). "
            "Questions about different parts cost together what the dearest part does."
        ),
    ] = None
    part: Annotated[
        str | None, option("With --partition: the key or condition to ask about.", "--part")
    ] = None
    several: Annotated[
        str | None, option("With --partition and units: first, the part in which a person counts.")
    ] = None
    ledger: Annotated[str | None, option("A ledger: where the budget is kept.", "--ledger")] = None
    practice: Annotated[
        bool, option("Ask made-up rows, at no cost; no private row is read.", "--practice")
    ] = False

    @property
    def caps(self) -> dict[str, int | None]:
        """With a policy, caps on the command line are those of the question."""
        if not self._is_policy:
            return {}
        return {"rows_per_unit": self.rows_per_unit, "groups_per_unit": self.groups_per_unit}

    def gate(self, *, to_plan: bool = False, writes: "Sequence[Path] | None" = None) -> "Gate":
        """The gate, or the one about a sample. One that only plans leaves nothing behind.

        Files that will be written must not be those behind the gate.
        """
        from noisegate.root import ledger_beside  # noqa: PLC0415 - quick help
        from noisegate.root import open as open_gate  # noqa: PLC0415

        ledger, budget = self.ledger, self.budget
        if (
            to_plan
            and not ledger
            and not self._is_policy
            and not ledger_beside(self.file).is_file()
        ):
            ledger, budget = ":memory:", budget or _ANY_BUDGET
        columns = columns_of(self.keys, self.between, self.types)
        own: dict[str, Any] = {"columns": columns or None}
        if not self._is_policy:  # a policy has caps of its own
            own = {"columns": columns, "rows_per_unit": self.rows_per_unit,
                   "groups_per_unit": self.groups_per_unit}  # fmt: skip
        with catch_warnings():
            simplefilter("ignore", UnitWarning)  # said below, in the words of options
            found = open_gate(
                self.file, epsilon=budget, delta=self.delta, accountant=self.accountant,
                analyst=self.analyst, purpose=self.purpose, share=self.share, unit=self.unit,
                ledger=ledger, practice=self.practice, **own,
            )  # fmt: skip
        for table in found.tables.values():
            if table.doubted is not None:
                say("Warning: no --unit is given, so every row counts as a different person. If "
                f"one {table.doubted!r} may have several rows, use --unit {table.doubted} "
                "--rows-per-unit N.", err=True)  # fmt: skip
        for file in writes or []:
            require_output(file)
            if self.practice and file.suffix.lower() == ".md":
                raise SpecError(
                    "Practice numbers are made up and have no card.", fix="Save in another format."
                )
        found = found if self.sample is None else found.sample(self.sample)
        return opened(self._part(found))

    def _part(self, gate: "Gate") -> "Gate":
        """The gate of the part that was named, if any."""
        named = self.named_part
        return gate if named is None else gate.in_part(named)

    @property
    def named_part(self) -> "PartAsked | None":
        """The part that was named, as an order has it."""
        if self.partition is None and self.part is None:
            return None
        from noisegate.desk.terms.terms import PartOf as PartAsked  # noqa: PLC0415 - quick help

        names = tuple(self.partition or ())
        return PartAsked(by=names, key=self.part or "", several=self.several or "")

    def record(self, order: "Order[Any, Any]") -> dict[str, Any]:
        """An order as JSON, with the part that was named."""
        return replace(order, part=self.named_part).to_dict()

    @property
    def _is_policy(self) -> bool:
        return self.file.suffix.lower() == ".toml"


@final
@dataclass(frozen=True, kw_only=True)
class Asking:
    """A price, how surely the ± holds, and whether to pay at all."""

    epsilon: options.Epsilon = None
    confidence: options.Confidence = "0.95"
    fresh: options.Fresh = False
    plan: options.Planned = False
    print_order: Annotated[
        bool, option("Print the order as JSON instead; nothing is asked.", "--print-order")
    ] = False
    as_json: options.Json = False

    def ordered(
        self,
        opening: Opening,
        order: "Order[R, Expected]",
        *,
        writes: "Sequence[Path] | None" = None,
        before: "Callable[[Plan[Any]], None] | None" = None,
    ) -> "R | None":
        """What the order makes; None where it is only printed, or planned.

        ``before`` it is run, its plan may be looked at.
        """
        if self.print_order:
            say_json(opening.record(order))
            return None
        gate = opening.gate(to_plan=self.plan, writes=writes)
        if self.plan or before is not None:
            planned = gate.plan(order, fresh=self.fresh)
            if before is not None:
                before(planned)
            if self.plan:
                print_plan(planned, self.confidence, as_json=self.as_json)
                return None
        with bar() as progress:
            return gate.run(order, fresh=self.fresh, progress=progress)

    def shown(self, opening: Opening, order: "Order[Answer, Expected]") -> None:
        """Order an answer, and print what comes of it."""
        if (found := self.ordered(opening, order)) is not None:
            show(found, self.confidence, as_json=self.as_json)


def said(**terms: Any) -> dict[str, Any]:  # noqa: ANN401 - as typed
    """Terms without those that nobody typed."""
    return {name: value for name, value in terms.items() if value is not None}


def opens(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters of dataclass types stand for all options of these."""
    parameters = signature(command).parameters.values()
    groups: dict[str, Any] = {
        each.name: each.annotation for each in parameters if is_dataclass(each.annotation)
    }
    found: list[Parameter] = []
    for parameter in parameters:
        own = [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
        found += _options(groups[parameter.name]) if parameter.name in groups else own

    @wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401 - what typer read
        held = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**held, **given)

    run.__signature__ = Signature(found)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in found} | {"return": None}
    return run


def _options(group: Any) -> list[Parameter]:  # noqa: ANN401 - a dataclass
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(group)
    ]


def columns_of(
    keys: list[str] | None, between: list[str] | None, types: list[str] | None
) -> dict[str, dict[str, Any]]:
    """The public facts of columns that --keys, --between and --type state."""
    columns: dict[str, dict[str, Any]] = {}
    for asked, items in (("keys", keys or []), ("between", between or [])):
        for item in items:
            name, sign, values = item.partition("=")
            if not sign or not name or not values:
                example = "ward=north,south" if asked == "keys" else "age=0,120"
                raise SpecError(
                    f"--{asked} {item} is not understood.",
                    fix=f"For example: --{asked} {example}.",
                )
            texts = values.split(",")
            terms = columns.setdefault(name, {})
            if asked == "between":
                terms["between"] = [_bound(text) for text in texts]
            else:
                whole = all(text.removeprefix("-").isdecimal() for text in texts)
                terms["in"] = [int(text) for text in texts] if whole else texts
    for item in types or []:
        name, sign, kind = item.partition("=")
        if not name or not sign or not kind:
            raise SpecError(
                f"--type {item} is not understood.", fix="For example: --type age=integer."
            )
        columns.setdefault(name, {})["type"] = kind
    return columns


def _bound(text: str) -> "Fraction | date":
    """A bound as typed: a date such as 2026-01-31, or a number."""
    from datetime import date  # noqa: PLC0415

    from noisegate.exact import fraction  # noqa: PLC0415

    try:
        return date.fromisoformat(text)
    except ValueError:
        return fraction(text, name="bound")
