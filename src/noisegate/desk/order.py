"""Orders as data: what somebody asks for, in values that JSON can send and read again.

An order never changes. Its numbers are exact, and what was read from its JSON is equal to it: the
same order has the same job, the same canonical question, and so the same entry of the ledger. An
order names no file, and holds no rows. What it means is for its `job`, at the desk.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import KeysView, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from math import isfinite
from numbers import Real
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_origin,
    get_type_hints,
)
from typing import get_args as args_of

from noisegate.curator.measurement import digest
from noisegate.desk.desk import Desk
from noisegate.desk.job import Job, Progress
from noisegate.desk.plan import Expected, Plan
from noisegate.desk.terms.terms import Part, PartOf, Rest, price_of
from noisegate.errors import NoisegateError, SpecError
from noisegate.exact import Number, fraction, shown
from noisegate.frozen import MISSING, Field, asdict, dataclass, fields, is_dataclass, replace

R_co = TypeVar("R_co", covariant=True)
E_co = TypeVar("E_co", bound=Expected, covariant=True)
Json: TypeAlias = dict[str, Any]  # an object of JSON

Bins: TypeAlias = Number | Sequence[Number] | None  # a width, edges, a unit of time; None: keys
Columns: TypeAlias = Mapping[str, Bins]
Keys: TypeAlias = object  # a key, a list of keys, or a pair (low, high)
Box: TypeAlias = Mapping[str, Keys]  # by axes: {"age": (20, 39), "ward": ["north", "west"]}
Options: TypeAlias = Mapping[str, object]

_FAR: Final = 1 << 53
_LONG: Final = 60  # letters of a name
_ENDS: Final = ("from", "to")  # how JSON writes a pair
_PAIRS: Final = "pairs"  # and a map whose keys are no texts
_WORDS: Final[Mapping[Any, str]] = {
    bool: "True or False", int: "a whole number", float: "a number", str: "a text",
    Sequence: "a list", Mapping: "a dict by names",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(ABC, Generic[R_co, E_co]):
    """What is asked for, as people say it; a run gives R, and E is what a plan knows of it.

    With a ``part`` it is about the units of that part alone; who plans and runs it sees to that.
    """

    kind: ClassVar[str]
    part: PartOf | None = None

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for each in fields(self):
            value = _held(each.name, getattr(self, each.name), hints[each.name])
            object.__setattr__(self, each.name, value)

    @abstractmethod
    def plan(self, desk: Desk, *, fresh: bool = False) -> Plan[E_co]:
        """Price and error. Free: spends nothing, reads no row."""

    @abstractmethod
    def run(self, desk: Desk, *, fresh: bool = False, progress: Progress | None = None) -> R_co:
        """What is asked for: from the ledger if it was drawn before, else for its price."""

    @classmethod
    def make(cls, **said: Any) -> Self:  # noqa: ANN401 - checked here
        """The order of what was said; what it does not know, or lacks, is refused by name."""
        known = {each.name: each for each in fields(cls)}
        label = getattr(known.get("name"), "default", MISSING)
        label = said.get("name", cls.kind) if label is MISSING else label
        listed = ", ".join(sorted(known.keys() - {"name"}))
        if unknown := said.keys() - known.keys():
            near = nearest(min(unknown), known)
            raise SpecError(
                f"{label!r} has no such option: {min(unknown)!r}.",
                fix=f"{near}It has {listed}.",
                about="option",
            )
        needed = {name for name, each in known.items() if is_required(each)}
        if missing := sorted(needed - said.keys()):
            raise SpecError(
                f"{label!r} needs {missing[0]!r}.", fix=f"It has {listed}.", about="missing"
            )
        try:
            return cls(**said)
        except RecursionError:
            raise SpecError(
                f"{label!r} is nested too deeply.", fix="Use lists of values."
            ) from None

    def settled(self, desk: Desk, *, fresh: bool = False) -> Self:
        """The order with a number for its price, where that is a part of what is left."""
        said = getattr(self, "epsilon", None)
        if not isinstance(said, Rest):
            return self

        def is_paid(epsilon: Fraction) -> bool:
            order = replace(self, epsilon=epsilon)  # type: ignore[call-arg]  # it has one
            with suppress(NoisegateError):
                return order.plan(desk).free
            return False

        name = ""
        with suppress(SpecError):  # objects of this process cannot be told apart
            name = digest(self.to_json())
        found = desk.rest(said) if fresh else desk.rest(said, is_paid, name)
        return replace(self, epsilon=Part(found, name))  # type: ignore[call-arg]  # it has one

    def to_dict(self) -> Json:
        """It as JSON values, without what is as usual; `noisegate.orders.order_from` reads them."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        unsaid = _unsaid(type(self))
        return {"kind": self.kind} | {
            name: _sent(name, _plain_record(value))
            for name, value in said.items()
            if name not in unsaid or value != unsaid[name]
        }

    def to_json(self) -> str:
        """The same as a text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder(Order[R_co, E_co]):
    """An order that is a job of the desk."""

    @abstractmethod
    def job(self, desk: Desk) -> Job[Any, R_co, E_co]:
        """It read and checked: whatever is wrong with it is refused here, for nothing."""

    def anew(self, desk: Desk) -> Job[Any, R_co, E_co]:
        """The job that is to be drawn anew, whatever was released before."""
        return self.job(desk)

    def made(self, desk: Desk, *, fresh: bool) -> Job[Any, R_co, E_co]:
        """The job as of now."""
        return self.anew(desk) if fresh else desk.known(self.job)

    def plan(self, desk: Desk, *, fresh: bool = False) -> Plan[E_co]:  # noqa: D102 - see Order
        return desk.plan(self.made(desk, fresh=fresh), fresh=fresh)

    def run(self, desk: Desk, *, fresh: bool = False, progress: Progress | None = None) -> R_co:  # noqa: D102 - see Order
        return desk.run(self.made(desk, fresh=fresh), fresh=fresh, progress=progress)


@cache
def hints_of(order: type) -> Mapping[str, Any]:
    """The types of an order's fields."""
    return get_type_hints(order)


@cache
def _unsaid(order: type) -> Mapping[str, Any]:
    """What an order holds of fields that nobody says."""
    hints = hints_of(order)
    return {
        each.name: _held(each.name, usual(each), hints[each.name])
        for each in fields(order)
        if not is_required(each)
    }


def is_required(each: "Field[Any]") -> bool:
    """Whether a field has to be said."""
    return each.default is MISSING and each.default_factory is MISSING


def usual(each: "Field[Any]") -> Any:  # noqa: ANN401 - of any field
    """What a field is if nobody says it."""
    return each.default if each.default_factory is MISSING else each.default_factory()


def nearest(said: str, known: Mapping[str, object] | Sequence[str]) -> str:
    """Words about the known name that is meant, if one is near."""
    found = get_close_matches(said[:_LONG], list(known), 1)
    return f"Did you mean {found[0]!r}? " if found else ""


@cache
def options_of(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type as it is written
    """The types that a type leaves open, without None."""
    listed = args_of(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(each for each in listed if each is not NoneType)


@cache
def is_number(hint: Any) -> bool:  # noqa: ANN401 - a type as it is written
    """Whether it is an exact number, or none."""
    return set(options_of(hint)) == set(args_of(Number))


def is_record(kind: Any) -> bool:  # noqa: ANN401 - a type as it is written
    """Whether it is a dataclass of texts, which JSON can send; others are of one process."""
    texts = (str, tuple[str, ...])
    return is_dataclass(kind) and all(each.type in texts for each in fields(kind))


# what an order holds


def _held(name: str, value: Any, hint: Any) -> Any:  # noqa: ANN401 - as people write it
    """A value as an order holds it, unless its field is of another type."""
    types = options_of(hint)
    if value is None and NoneType in args_of(hint):
        return None
    if is_number(hint):
        return price_of(value) if name == "epsilon" else fraction(value, name=name)
    if range in types and (isinstance(value, range) or _is_ends(value)):
        return value if isinstance(value, range) else _range(name, value)
    found = kept(value)
    if not any(_fits(found, each) for each in types):
        raise _misfit(name, value, types)
    if Columns in types and isinstance(found, Mapping):  # edges are no range
        return {each: list(how) if isinstance(how, tuple) else how for each, how in found.items()}
    made = next((each for each in types if is_record(each)), None)
    return _record(name, found, made) if made and isinstance(found, Mapping) else found


def kept(value: Any, *, inside: bool = False) -> Any:  # noqa: ANN401 - as people write it
    """A value that JSON can send. Lists are tuples, and dates texts.

    Directly ``inside`` a dict a pair and a list differ, as (20, 39) and [20, 39] do in a range: a
    pair stays one, and is {"from": 20, "to": 39} in JSON. Objects are left as they are.
    """
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, Mapping):
        if inside and _is_ends(value):
            return tuple(kept(value.get(end)) for end in _ENDS)
        pairs = value.items()
        if value.keys() == {_PAIRS} and isinstance(value[_PAIRS], list | tuple):
            pairs = _pairs(value[_PAIRS])
        return {_key(key): kept(each, inside=True) for key, each in pairs}
    if isinstance(value, list | tuple | set | frozenset | range | KeysView):
        found = tuple(kept(each) for each in value)
        return found if not inside or (type(value) is tuple and len(found) == 2) else list(found)
    if isinstance(value, Fraction | Decimal):
        return _plain(value)
    if isinstance(value, datetime) and value.time() == time.min:
        value = value.date()
    return value.isoformat() if isinstance(value, date) else value


def _plain(value: Fraction | Decimal) -> int | float | str:
    """A number as JSON can send it and `fraction` reads it."""
    exact = fraction(value)
    if exact.denominator == 1:
        return int(exact)
    near = float(exact)
    return near if fraction(near) == exact else str(exact)


def _key(key: Any) -> Any:  # noqa: ANN401 - of a dict
    found = kept(key)
    try:
        hash(found)
    except TypeError:
        raise SpecError(
            "A key is not a plain value.", fix="Use a text, a number or a list."
        ) from None
    return found


def _is_ends(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and value.keys() <= set(_ENDS)


def _pairs(listed: Sequence[Any]) -> Any:  # noqa: ANN401 - pairs
    if not all(isinstance(each, list | tuple) and len(each) == 2 for each in listed):
        raise SpecError("A map is not a list of pairs.", fix='Use {"pairs": [[key, value], …]}.')
    return listed


def _range(name: str, ends: Mapping[str, Any]) -> range:
    low, high = (ends.get(end) for end in _ENDS)
    if type(low) is not int or type(high) is not int or max(-low, high) > _FAR:
        raise SpecError(f"{name} is not a range.", fix='Use {"from": 0, "to": 99}, both ends.')
    return range(low, high + 1)


def _record(name: str, value: Mapping[str, Any], kind: Any) -> Any:  # noqa: ANN401 - a dataclass
    """A dataclass within an order."""
    types = hints_of(kind)
    if unknown := value.keys() - types.keys():
        raise SpecError(
            f"{name} has no {min(unknown)!r}.",
            fix=f"{nearest(min(unknown), types)}Use {', '.join(types)}.",
        )
    needed = {each.name for each in fields(kind) if is_required(each)}
    if missing := sorted(needed - value.keys()):
        raise SpecError(f"{name} lacks {missing[0]!r}.", fix=f"Give {', '.join(types)}.")
    listed = {key: [v] if isinstance(v, str) and types[key] is not str else v
              for key, v in value.items()}  # fmt: skip
    found = {key: tuple(v) if isinstance(v, list) else v for key, v in listed.items()}
    return kind(**{key: _held(f"{name}.{key}", each, types[key]) for key, each in found.items()})


def _fits(value: Any, kind: Any) -> bool:  # noqa: ANN401, PLR0911 - a type as it is written
    """Whether a value can be meant; whatever else a type says is for those who read the value."""
    if get_origin(kind) is Literal:
        return value in args_of(kind)
    if kind is int:
        return type(value) is int
    if kind in (str, bool):
        return isinstance(value, kind)
    if kind in (float, Fraction, Decimal):
        return isinstance(value, Real) and not isinstance(value, bool)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, kind):
        return True
    if get_origin(kind) is Mapping or is_dataclass(kind):
        return isinstance(value, Mapping) and (not is_dataclass(kind) or is_record(kind))
    if get_origin(kind) in (Sequence, tuple):
        of = args_of(kind)[0] is str
        return isinstance(value, tuple) and (not of or all(isinstance(each, str) for each in value))
    return kind is not range


def _misfit(name: str, value: Any, types: Sequence[Any]) -> SpecError:  # noqa: ANN401 - any value
    listed = [each for kind in types if get_origin(kind) is Literal for each in args_of(kind)]
    if listed and isinstance(value, str):
        near, names = nearest(value, listed), ", ".join(map(str, listed))
        return SpecError(f"There is no {name} {value!r}.", fix=f"{near}Use {names}.", about=name)
    plain = [get_origin(kind) or kind for kind in types]
    if isinstance(value, str) and plain == [Sequence]:
        return SpecError(f"{name} is a single string.", fix=f"Use {name}=[{value!r}].", about=name)
    words = [_WORDS[kind] for kind in dict.fromkeys(plain) if kind in _WORDS]
    words += [f"one of {', '.join(map(str, listed))}"] if listed else []
    fix = f"Use {' or '.join(words)}." if words else "Give it as its description says."
    return SpecError(f"{name} is {shown(value)[:40]!r}.", fix=fix, about=name)


# what is sent


def _plain_record(value: Any) -> Any:  # noqa: ANN401 - of any field
    if not is_dataclass(value) or isinstance(value, type):
        return value
    plain = asdict(value)  # of texts, and lists of them: two texts are no range
    return {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}


def _sent(name: str, value: Any, *, inside: bool = False) -> Any:  # noqa: ANN401, PLR0911 - JSON
    """A value of an order as JSON has it."""
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        sent = [(key, _sent(name, each, inside=True)) for key, each in value.items()]
        plain = all(isinstance(key, str) for key in value) and not _is_ends(value)
        if plain and value.keys() != {_PAIRS}:
            return dict(sent)
        return {_PAIRS: [[_sent(name, key), each] for key, each in sent]}
    if isinstance(value, range) and value and value.step == 1:
        return dict(zip(_ENDS, (value[0], value[-1]), strict=True))
    if isinstance(value, tuple) and inside and len(value) == 2:
        return dict(zip(_ENDS, (_sent(name, each) for each in value), strict=True))
    if isinstance(value, list | tuple | range):
        return [_sent(name, each) for each in value]
    finite = not isinstance(value, float) or isfinite(value)
    if value is None or (isinstance(value, bool | int | float | str) and finite):
        return value
    raise SpecError(
        f"{name} holds {type(value).__name__!r}, which cannot be sent.",
        fix="Use numbers, texts and lists, or run the order where it was made.",
    )
