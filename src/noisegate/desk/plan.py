"""An order before it is paid for: price and expected error, whatever is ordered. Reads no row."""

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final

from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.inert import lines
from noisegate.privacy.loss import ApproxDP

if TYPE_CHECKING:
    import pyarrow as pa

Fact = tuple[str, str]


class Expected(Protocol):
    """What is known of a result before it is drawn: size, method, error. Depends on no row."""

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The half-width of the confidence interval of each kind of number; None: unknown."""

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""


E_co = TypeVar("E_co", bound=Expected, covariant=True)


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Generic[E_co]):
    """What an order would cost and return. Free, and independent of the rows.

    ``epsilon`` is the price that was asked for; ``price`` is what running the order now charges:
    less where a part was released before, 0 where all of it was. ``early`` is what it charges if no
    group is found, where that is less. ``expected`` is what is known about the result, by its kind.
    ``notes`` say what the error bars leave out; ``endings`` are the forms of file that a release
    can be saved in.
    """

    kind: str
    sql: str
    epsilon: Fraction
    price: ApproxDP
    fits: bool
    expected: E_co
    notes: tuple[str, ...] = ()
    early: ApproxDP | None = None
    endings: tuple[str, ...] = ()

    @property
    def free(self) -> bool:
        """Whether it was released before."""
        return self.price == ApproxDP(0)

    def margins(self, confidence: Number = 0.95) -> dict[str, float | None]:
        """The expected ± of each kind of number; None where it depends on the rows."""
        return self.expected.margins(confidence)

    def facts(self, confidence: Number = 0.95) -> list[Fact]:
        """The plan in words, one fact per line."""
        notes = [("mind", note) for note in self.notes]
        return [*self.expected.facts(confidence), *notes, ("price", self._price())]

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for --json: the same keys for every order, then those of its kind."""
        early = {} if self.early is None else {"price_if_none_found": float(self.early.epsilon)}
        return {
            "kind": self.kind,
            "sql": self.sql,
            "epsilon": float(self.epsilon),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            **early,
            "fits": self.fits,
            "confidence": float(confidence),
            "margins": self.margins(confidence),
            "notes": list(self.notes),
            **self.expected.to_dict(confidence),
        }

    def table(self, confidence: Number = 0.95) -> "pa.Table":
        """The facts as a table."""
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

        facts = self.facts(confidence)
        return pa.table({"about": [name for name, _ in facts], "plan": [fact for _, fact in facts]})

    def _price(self) -> str:
        if self.free:
            return (
                "free: released before"
                if self.epsilon
                else "free: the question reads no private row"
            )
        more = "" if self.fits else " (more than is left)"
        none = "" if self.early is None else f"; {self.early} if no group is found"
        return f"{self.price}{more}{none}"

    def __str__(self) -> str:
        return lines("\n".join(f"{name:12}{fact}" for name, fact in self.facts()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from noisegate.desk.display.numbers import facts_html  # noqa: PLC0415 - notebooks only

        return facts_html(self.facts())
