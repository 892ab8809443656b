"""What a function of the list takes: kinds of arguments, constants, how many; and its refusals."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Domain, Kind

Literals: TypeAlias = Sequence[Any]  # the constants among the arguments, `...` for all others
Rule: TypeAlias = Callable[[Sequence[Domain], Literals], Domain]


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument: ``kinds`` it may have (all if empty), and whether it must be a constant."""

    word: str
    kinds: tuple[Kind, ...] = ()
    fix: str = ""
    literal: bool = False


NUMERIC: Final = Parameter("a number", (Kind.INTEGER, Kind.NUMBER), "Cast it: CAST(x AS DOUBLE).")
INTEGER: Final = Parameter("a whole number", (Kind.INTEGER,), "Cast it: CAST(x AS BIGINT).")
TEXT: Final = Parameter("text", (Kind.TEXT,), "Cast it: CAST(x AS VARCHAR).")
BOOLEAN: Final = Parameter("a condition", (Kind.BOOLEAN,), "Compare it, for example x = 1.")
MOMENT: Final = Parameter(
    "a date or a time", (Kind.DATE, Kind.TIMESTAMP), "Cast it: CAST(x AS DATE)."
)
TIME: Final = Parameter("a time", (Kind.TIMESTAMP,), "Cast it: CAST(x AS TIMESTAMP).")
ANY: Final = Parameter("a value")
CONSTANT: Final = Parameter("a constant", fix="Write the value itself.", literal=True)
CONSTANT_TEXT: Final = replace(TEXT, word="a constant text", literal=True)
CONSTANT_NUMBER: Final = replace(NUMERIC, word="a constant number", literal=True)
CONSTANT_INTEGER: Final = replace(INTEGER, word="a constant whole number", literal=True)


@final
@dataclass(frozen=True, slots=True)
class Function:
    """A function of the closed list: its name, how it is written, what it takes and gives.

    The last ``optional`` parameters may be left out; where it ``repeats``, the last one may come
    again and again.
    """

    name: str
    forms: str
    parameters: tuple[Parameter, ...]
    rule: Rule
    optional: int = 0
    repeats: bool = False

    def domain(self, args: Sequence[Domain], literals: Literals) -> Domain:
        """The facts about the result."""
        return self.rule(self.taken(args, literals), literals)

    def taken(self, args: Sequence[Domain], literals: Literals) -> list[Domain]:
        """The arguments if they fit. A constant NULL becomes of the kind that is needed."""
        count, most = len(args), len(self.parameters)
        if count < most - self.optional or (count > most and not self.repeats):
            raise Unsupported(
                f"{self.name.upper()} does not take {count} arguments.", fix=f"Use {self.forms}."
            )
        pairs = zip(args, literals, strict=True)
        last = self.parameters[-1]
        return [
            self._taken(self.parameters[i] if i < most else last, domain, literal)
            for i, (domain, literal) in enumerate(pairs)
        ]

    def of_values(self, args: Sequence[Domain], literals: Literals) -> Domain:
        """The facts where no argument is missing: nullable if the function itself makes NULLs."""
        return self.domain([replace(arg, nullable=False) for arg in args], literals)

    def _taken(self, parameter: Parameter, domain: Domain, literal: object) -> Domain:
        if parameter.literal and (literal is ... or (literal is None and parameter.kinds)):
            raise Unsupported(
                f"{self.name.upper()} needs {parameter.word} here.",
                fix=f"Use {self.forms}.",
                about="argument",
            )
        if not parameter.kinds or domain.kind in parameter.kinds:
            return domain
        if literal is None:
            return Domain(kind=parameter.kinds[0], nullable=domain.nullable)
        raise Unsupported(
            f"{self.name.upper()} needs {parameter.word}, not {domain.kind.value}.",
            fix=parameter.fix,
            about="argument",
        )


def common_kind(args: Sequence[Domain], literals: Literals) -> Kind:
    """The kind that values become to stand beside each other: numbers as doubles, dates as times.

    A constant NULL fits all.
    """
    kinds = {arg.kind for arg, value in zip(args, literals, strict=True) if value is not None}
    if len(kinds) <= 1:
        return next(iter(kinds), args[0].kind)
    if kinds <= {Kind.INTEGER, Kind.NUMBER}:
        return Kind.NUMBER
    if kinds <= {Kind.DATE, Kind.TIMESTAMP}:
        return Kind.TIMESTAMP
    names = " and ".join(sorted(kind.value for kind in kinds))
    raise Unsupported(
        f"Values of different types are mixed: {names}.",
        fix="Cast one of them, for example CAST(x AS DATE) or CAST(x AS VARCHAR).",
    )


def any_nullable(args: Sequence[Domain]) -> bool:
    """Whether an argument may be missing."""
    return any(arg.nullable for arg in args)
